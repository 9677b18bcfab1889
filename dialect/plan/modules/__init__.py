"""Checks that the modules of a plan are safe for XLA: the rules, and the process that applies them to foreign plans."""
