"""Draws plans and their recorded runs: HTML pages, drawings, text, and files for other viewers.

The `visualize` methods of the API and `pwc viz` use it.
"""
