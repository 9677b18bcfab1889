"""Changing one computation, a StableHLO module: inlining, merging, splitting, propagating shardings, counting."""
