"""Implements the client side of the runtime, in the process that calls programs. It loads plans, passes arguments,
starts runs, and holds the resulting arrays.
"""
