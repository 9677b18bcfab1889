"""Imports programs that Shardy's MPMD compiler has partitioned, so that they can be placed, scheduled and run here. See
docs/shardy.md. The driver and `pw.from_mpmd` call it.
"""
