"""Warnings of the import face, at the user's line."""

import warnings

from pathways.compiler.frontend.caller import caller


def warn(text: str) -> None:
    """Warns, as Python does: once a line, unless the user filters warnings otherwise."""
    where = caller()
    if where is None:
        warnings.warn(text, UserWarning, stacklevel=2)
    else:
        warnings.warn_explicit(text, UserWarning, where.file, where.line)
