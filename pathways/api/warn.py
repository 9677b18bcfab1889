"""Emits the warnings of the Python API at the user's source line, or on stderr if there is no such line."""

import sys
import warnings

from pathways.dialect.user_line import caller


def warn(text: str) -> None:
    """Emits a Python warning, once for each line unless the user's filters change that."""
    where = caller()
    if where is None:
        print(f"note: {text}", file=sys.stderr)
    else:
        warnings.warn_explicit(text, UserWarning, where.file, where.line)
