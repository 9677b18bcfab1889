"""Executes one run of a loaded plan: enqueues its steps, waits for values that decide loops and branches, tracks the
run on the devices, and handles failures.
"""
