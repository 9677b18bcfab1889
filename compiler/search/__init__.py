"""Searches for the best split of a loss over machines: enumerates splits, predicts their cost, and ranks them.

`pathways/api/search.py` calls this package.
"""
