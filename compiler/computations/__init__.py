"""Analyzes and transforms single StableHLO modules: inlines, merges and splits them, propagates shardings, counts
flops. The compiler passes call this package. One module is one computation of a program.
"""
