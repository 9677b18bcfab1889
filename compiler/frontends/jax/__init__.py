"""Turns a Python function over virtual devices into the compiler's first IR (phase `trace`). `pathways.api` calls it
when a `pw.program` is traced, through `trace.py`.
"""
