"""Finds the fastest way to split a training step over machines. It enumerates numbers of stages, data-parallel and
model-parallel devices, predicts the time of each, and ranks them. `pathways/api/search.py` calls it for `pw.search`.
"""
