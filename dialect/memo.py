"""Asking once: of MLIR's attributes and types, and of JAX's objects, since both answer slowly.

Each thread remembers for itself, so that none empties or fills the memory of another.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")
MOST_REMEMBERED = 1 << 16
"""How many objects are remembered by identity before all are forgotten."""


class _Memory(threading.local):
    """What a thread knows of attributes: one dictionary a function that reads them."""

    def __init__(self) -> None:
        self.known: dict[Any, dict[Any, Any]] = {}


_memory = _Memory()


def remembered(read: Callable[[Any], _T]) -> Callable[[Any], _T]:
    """`read`, a pure function of an attribute or a type, called once for each: equal ones are one object."""

    def recall(key: Any) -> _T:
        try:
            return _memory.known[read][key]
        except KeyError:
            found = read(key)
            _memory.known.setdefault(read, {})[key] = found
            return found

    return recall


def forget() -> None:
    """Drops what this thread remembers of attributes, which keep their context alive: before it makes another."""
    _memory.known.clear()


def remembered_by_identity(ask: Callable[[Any], _T]) -> Callable[[Any], _T]:
    """`ask`, a pure function of an object, called once for each object, which is held so that it keeps its identity."""
    memory: dict[int, tuple[Any, _T]] = {}

    def recall(thing: Any) -> _T:
        known = memory.get(id(thing))
        if known is None:
            if len(memory) >= MOST_REMEMBERED:
                memory.clear()
            known = memory[id(thing)] = thing, ask(thing)
        return known[1]

    return recall
