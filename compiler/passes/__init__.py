"""Holds the compiler passes, one file for each, named after the pass. `compiler/pass_manager.py` defines their order
and runs them.
"""
