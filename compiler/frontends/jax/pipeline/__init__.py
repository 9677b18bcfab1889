"""Implements `pw.pipeline`: cuts a loss into stages before it is differentiated; each stage is a jit on its slice."""
