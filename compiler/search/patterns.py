"""Writes how parameters are split as patterns of their pytree paths, so that all similar layers share one line.
`pw.search` writes these lines to choice.toml.
"""

import re
from collections.abc import Mapping, Sequence

from pathways.dialect.choice import MODEL_AXIS

_NUMBER = re.compile(r"\d+")


def spec_patterns(names: Sequence[str], dims: Mapping[int, int], whole: Sequence[int]) -> dict[str, tuple[str, ...]]:
    """Returns patterns of the paths of all split leaves. `dims[i]` is the split dimension of leaf i.

    A number in a path stands for any number. The pattern is the exact path if a leaf that is whole or split otherwise
    differs only in numbers.
    """
    groups: dict[str, set[int | None]] = {}
    for i in (*dims, *whole):
        groups.setdefault(_general(names[i]), set()).add(dims.get(i))
    found: dict[str, tuple[str, ...]] = {}
    for i, dim in dims.items():
        alike = len(groups[_general(names[i])]) == 1
        pattern = _general(names[i]) if alike else f"^{re.escape(names[i])}$"
        found[pattern] = (*("",) * dim, MODEL_AXIS)
    return found


def _general(name: str) -> str:
    return "^" + _NUMBER.sub(lambda _: r"\d+", re.escape(name)) + "$"
