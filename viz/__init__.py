"""Draws plans and recorded runs, as HTML pages, pictures, text, and files for other viewers. The `visualize` methods of
the API and `pwc viz` use this package.
"""
