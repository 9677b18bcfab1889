"""Serves the devices of a process or of a cluster to unmodified JAX programs, by the IFRT proxy protocol."""
