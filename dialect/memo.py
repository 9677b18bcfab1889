"""Reading an MLIR attribute or type once: the bindings are slow, and MLIR makes one object of all equal ones."""

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_memories: list[dict[Any, Any]] = []


def remembered(read: Callable[[Any], T]) -> Callable[[Any], T]:
    """`read`, a pure function of an attribute or a type, called once for each."""
    memory: dict[Any, T] = {}
    _memories.append(memory)

    def recall(key: Any) -> T:
        try:
            return memory[key]
        except KeyError:
            found = memory[key] = read(key)
            return found

    return recall


def forget() -> None:
    """Drops all that is remembered, which keeps its context alive; done whenever a new context is made."""
    for memory in _memories:
        memory.clear()
