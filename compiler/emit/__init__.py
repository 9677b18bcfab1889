"""Writes programs for other compilers: as a module of Shardy's MPMD dialect, and as IFRT IR."""
