"""Python functions that computations of this process call back, by number.

A module holds only the index of a callback; the computation has the numbers of its functions, which mean nothing to
another process. So a plan with callbacks cannot be saved, and its dumps compile on in this process only: for as long
as a context or a plan that names the number is there. A function goes with the last of those that hold it.
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
"""Of both. It may be taken again where it is held: an object's end comes in the middle of anything."""
_TARGET = re.compile(rb"xla_(ffi_)?(partitioned_)?python_\w*callback")


def register_callbacks(functions: Sequence[Callable[..., Any]], owner: object) -> tuple[int, ...]:
    """Registers functions; returns numbers that cannot be guessed, or a foreign dump could call a function."""
    numbers = tuple(secrets.randbits(62) for _ in functions)
    with _lock:
        _functions.update(zip(numbers, functions, strict=True))
    hold(owner, numbers)
    return numbers


def hold(owner: object, numbers: Sequence[int]) -> None:
    """Keeps functions of this process for as long as an object lives that may call them; others are nothing to it."""
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
    """Returns whether a serialized module calls Python. To run one without its functions kills the process."""
    return _TARGET.search(module) is not None


def read_callbacks(computation: Operation) -> tuple[int, ...]:
    """Reads the numbers of a computation's callbacks, by their index in the module."""
    attributes = computation.attributes
    return tuple(attributes[ATTRIBUTE]) if ATTRIBUTE in attributes else ()


def write_callbacks(computation: Operation, numbers: Sequence[int]) -> None:
    """Writes the numbers of a computation's callbacks; needs its MLIR context."""
    if numbers:
        computation.attributes[ATTRIBUTE] = ir.DenseI64ArrayAttr.get(list(numbers))
