"""Plans the buffers of a program: lifetimes, the owner of each, and the instruction streams that use them."""
