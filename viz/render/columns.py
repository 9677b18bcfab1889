"""Packs tables of numbers so that the HTML page stays small: column by column, with integers as differences to the
previous row. viz/page/data.js unpacks them in the browser. Pure functions.
"""

from collections.abc import Sequence
from itertools import chain
from operator import sub
from typing import Any


def pack_rows(rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Packs rows of equal width. A column of integers is written as its first value and the following differences."""
    packed = [pack_column(values) for values in zip(*rows, strict=True)]
    return {"rows": len(rows), "columns": packed}


def pack_column(values: Sequence[Any]) -> dict[str, Any]:
    """Packs one column: as `steps` from zero if all values are integers, else as `plain`."""
    if not set(map(type, values)) <= {int}:
        return {"plain": list(values)}
    return {"steps": list(map(sub, values, chain((0,), values)))}


def pack_times(values: Sequence[float], tick: float) -> dict[str, Any]:
    """Packs times as multiples of `tick`."""
    return pack_column([round(v / tick) for v in values])
