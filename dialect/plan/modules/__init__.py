"""Checks that the StableHLO modules of a plan are safe to give to XLA. It has the rules, and a separate process that
applies them to plans of other users.
"""
