"""Keeps the Python functions behind `jax.pure_callback` and similar calls in a table, by number. Front ends add the
functions of a program, and the runtime looks them up to run them.

A module holds only the index of a callback; the computation holds the numbers of its functions. These numbers mean
nothing in another process. So a plan with callbacks cannot be saved, and its dumps can be compiled in this process
only.

Contexts and plans that name a number keep its function registered. It is removed together with the last of them.
"""

import re
import secrets
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from pathways.dialect.mlir import Operation, ir

ATTRIBUTE = "pw.callbacks"
_functions: dict[int, Callable[..., Any]] = {}
_holders: Counter[int] = Counter()
_lock = threading.RLock()
"""Guards `_functions` and `_holders`. Reentrant: a finalizer may run while the same thread already holds it."""
_TARGET = re.compile(rb"xla_(ffi_)?(partitioned_)?python_\w*callback")


def register_callbacks(functions: Sequence[Callable[..., Any]], owner: object) -> tuple[int, ...]:
    """Registers functions and returns their numbers, which are random so that a foreign dump cannot guess one."""
    numbers = tuple(secrets.randbits(62) for _ in functions)
    with _lock:
        _functions.update(zip(numbers, functions, strict=True))
    hold(owner, numbers)
    return numbers


def hold(owner: object, numbers: Sequence[int]) -> None:
    """Keeps functions registered as long as `owner` lives. Ignores numbers that this process does not know."""
    with _lock:
        known = [n for n in dict.fromkeys(numbers) if n in _functions]
        _holders.update(known)
    if known:
        weakref.finalize(owner, _release, known).atexit = False


def _release(numbers: Sequence[int]) -> None:
    with _lock:
        _holders.subtract(numbers)
        for number in numbers:
            if _holders[number] <= 0:
                del _holders[number], _functions[number]


def find(number: int) -> Callable[..., Any] | None:
    return _functions.get(number)


def calls_back(module: bytes) -> bool:
    """Returns whether a serialized module calls Python. Running it without its functions kills the process."""
    return _TARGET.search(module) is not None


def read_callbacks(computation: Operation) -> tuple[int, ...]:
    """Reads the numbers of a computation's callbacks, in the order of their index in the module."""
    attributes = computation.attributes
    return tuple(attributes[ATTRIBUTE]) if ATTRIBUTE in attributes else ()


def write_callbacks(computation: Operation, numbers: Sequence[int]) -> None:
    """Writes the numbers of a computation's callbacks. Call it inside the computation's MLIR context."""
    if numbers:
        computation.attributes[ATTRIBUTE] = ir.DenseI64ArrayAttr.get(list(numbers))
