"""Warnings of the Python API: Python's own, at the user's line; without a line, a note as on the command line."""

import sys
import warnings

from pathways.dialect.user_line import caller


def warn(text: str) -> None:
    """Warns as Python does, once a line unless the user's filters say otherwise."""
    where = caller()
    if where is None:
        print(f"note: {text}", file=sys.stderr)
    else:
        warnings.warn_explicit(text, UserWarning, where.file, where.line)
