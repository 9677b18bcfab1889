"""Provides decorators that cache what is read from MLIR attributes and types, and from JAX objects, because both are
slow to read. The dialect, the front ends and viz use them.

MLIR caches are per thread, so that no thread clears or fills those of another.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

_S = TypeVar("_S")
_T = TypeVar("_T")
MAX_REMEMBERED = 1 << 16
"""The most objects that one cache by identity holds; a full cache is cleared."""


class _Memory(threading.local):
    """The caches of a thread: one dictionary for each decorated function."""

    def __init__(self) -> None:
        self.known: dict[Any, dict[Any, Any]] = {}


_memory = _Memory()


def remembered(read: Callable[[Any], _T]) -> Callable[[Any], _T]:
    """Caches `read`, a pure function of an MLIR attribute or type. Equal attributes are one object in MLIR."""

    def recall(key: Any) -> _T:
        try:
            return _memory.known[read][key]
        except KeyError:
            found = read(key)
            _memory.known.setdefault(read, {})[key] = found
            return found

    return recall


def forget() -> None:
    """Clears this thread's caches of attributes, which keep their context alive. Call it before making another."""
    _memory.known.clear()


def remembered_by_identity(ask: Callable[[Any], _T]) -> Callable[[Any], _T]:
    """Caches `ask`, a pure function of an object, by identity. Keeps the object alive, so that its id is not reused."""
    memory: dict[int, tuple[Any, _T]] = {}

    def recall(thing: Any) -> _T:
        known = memory.get(id(thing))
        if known is None:
            if len(memory) >= MAX_REMEMBERED:
                memory.clear()
            known = memory[id(thing)] = thing, ask(thing)
        return known[1]

    return recall


def map_by_identity(ask: Callable[[_S], _T], things: Sequence[_S]) -> list[_T]:
    """Applies `ask`, a pure function, to objects, once for each different one: hundreds of thousands share a few."""
    different = dict(zip(map(id, things), things, strict=True))
    found = {key: ask(thing) for key, thing in different.items()}
    return list(map(found.__getitem__, map(id, things)))
