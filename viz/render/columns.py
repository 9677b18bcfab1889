"""Packs rows as columns, numbers as differences: a table of many equal steps becomes small when it is compressed. Pure.

viz/page/data.js unpacks them.
"""

from collections.abc import Sequence
from itertools import chain
from operator import sub
from typing import Any


def pack_rows(rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Packs rows of equal width. A column of whole numbers is written as its first and the differences that follow."""
    packed = [pack_column(values) for values in zip(*rows, strict=True)]
    return {"rows": len(rows), "columns": packed}


def pack_column(values: Sequence[Any]) -> dict[str, Any]:
    """Packs one column: `plain`, or `steps` from zero where all are whole numbers."""
    if not set(map(type, values)) <= {int}:
        return {"plain": list(values)}
    return {"steps": list(map(sub, values, chain((0,), values)))}


def pack_times(values: Sequence[float], tick: float) -> dict[str, Any]:
    """Packs times as whole numbers of `tick`."""
    return pack_column([round(v / tick) for v in values])
