"""The buffers of a program: when each lives, what it is counted to, and the instruction streams that use it."""
