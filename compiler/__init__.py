"""Compiles JAX programs to plans. A plan holds StableHLO modules, and a list of instructions for each island of
devices. The code here must never import the runtime, which executes plans.
"""
