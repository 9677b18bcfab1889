"""Tells by which error a call is refused."""

from collections.abc import Callable
from typing import Any

import pathways as pw


def code_of(call: Callable[..., Any], *arguments: Any, **named: Any) -> str:
    """Returns the code of the PathwaysError that a call raises; '' if it raises none."""
    try:
        call(*arguments, **named)
    except pw.PathwaysError as error:
        return error.code
    return ""
