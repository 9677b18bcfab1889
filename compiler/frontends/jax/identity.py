"""Asking a JAX object once: an unrolled loop meets the same types and equations again and again."""

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
LARGEST = 1 << 16
"""How many objects are remembered before all are forgotten."""


def remembered_by_identity(ask: Callable[[Any], T]) -> Callable[[Any], T]:
    """`ask`, a pure function of an object, called once for each object, which is held so that it keeps its identity."""
    memory: dict[int, tuple[Any, T]] = {}

    def recall(thing: Any) -> T:
        known = memory.get(id(thing))
        if known is None:
            if len(memory) >= LARGEST:
                memory.clear()
            known = memory[id(thing)] = thing, ask(thing)
        return known[1]

    return recall
