"""Writes a compiled program in the formats of other compilers: Shardy's MPMD dialect, and IFRT IR. `pwc compile --emit`
uses this package.
"""
