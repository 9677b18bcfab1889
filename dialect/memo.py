"""Memos of what is read from MLIR's attributes and types, and from JAX's objects, since both answer slowly.

Each thread has memos of its own, so that none empties or fills those of another.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")
MOST_REMEMBERED = 1 << 16
"""The most objects that are remembered by identity before all are forgotten."""


class _Memory(threading.local):
    """The memos of a thread: one dictionary for each function that reads attributes."""

    def __init__(self) -> None:
        self.known: dict[Any, dict[Any, Any]] = {}


_memory = _Memory()


def remembered(read: Callable[[Any], _T]) -> Callable[[Any], _T]:
    """Caches `read`, a pure function of an attribute or a type, by that one: equal ones are one object."""

    def recall(key: Any) -> _T:
        try:
            return _memory.known[read][key]
        except KeyError:
            found = read(key)
            _memory.known.setdefault(read, {})[key] = found
            return found

    return recall


def forget() -> None:
    """Drops this thread's memos of attributes, which keep their context alive: before it makes another context."""
    _memory.known.clear()


def remembered_by_identity(ask: Callable[[Any], _T]) -> Callable[[Any], _T]:
    """Caches `ask`, a pure function of an object, by identity; holds the object, so that its identity stays its own."""
    memory: dict[int, tuple[Any, _T]] = {}

    def recall(thing: Any) -> _T:
        known = memory.get(id(thing))
        if known is None:
            if len(memory) >= MOST_REMEMBERED:
                memory.clear()
            known = memory[id(thing)] = thing, ask(thing)
        return known[1]

    return recall
