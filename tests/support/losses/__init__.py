"""Losses of every kind, each with what it is over microbatches (table.py). Importing this fills the table."""

from support.losses import exact, indices, loops, means, mixing, more_means, partial_sums
from support.losses.table import CASES, Case

__all__ = ["CASES", "Case", "exact", "indices", "loops", "means", "mixing", "more_means", "partial_sums"]
