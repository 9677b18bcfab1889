"""Helpers shared by several test files: programs, plans, mutants, and processes that run `pwc`."""
