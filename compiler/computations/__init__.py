"""Transformations and analyses of one computation (a StableHLO module): inline, merge, split, propagate, count."""
