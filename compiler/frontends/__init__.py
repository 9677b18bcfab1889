"""Holds the front ends, one folder for each source language: JAX, and Shardy's MPMD dialect. A front end turns a user's
program into IR of phase `trace`, the compiler's first phase.
"""
