"""Helpers that several tests share: programs, plans, mutants, and processes that run `pwc`."""
