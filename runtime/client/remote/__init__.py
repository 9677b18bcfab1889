"""A cluster as a client has it: its islands, their hosts, and the way to its controller."""
