"""Reads StableHLO modules of clients that run unmodified JAX."""
