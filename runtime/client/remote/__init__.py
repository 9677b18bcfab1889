"""Client side of a cluster: its islands, their hosts, and the connection to its controller."""
