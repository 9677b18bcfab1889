"""Implements the host side of the runtime, in the process that has the devices. It loads plans on devices, enqueues
their computations, and watches for failures and hangs.
"""
