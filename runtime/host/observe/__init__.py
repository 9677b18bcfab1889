"""Watches the runs on devices: detects hangs, records times for `pw.trace`, checks for NaN, and injects faults for
tests.
"""
