"""Implements `pw.pipeline`: cuts a user's loss function into pipeline stages before JAX differentiates it. Each stage
becomes a jit that is placed on its own slice of virtual devices.
"""
