"""Python functions that computations of this process call back, by number.

A module holds only the index of a callback; the computation has the numbers of its functions, which mean nothing to
another process. So a plan with callbacks cannot be saved, and its dumps compile on in this process only.
"""

import re
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from pathways.dialect.mlir import Operation, ir

ATTRIBUTE = "pw.callbacks"
_functions: dict[int, Callable[..., Any]] = {}
_TARGET = re.compile(rb"xla_(ffi_)?(partitioned_)?python_\w*callback")


def register(functions: Sequence[Callable[..., Any]]) -> tuple[int, ...]:
    """Registers functions; returns numbers that cannot be guessed, or a foreign dump could call a function."""
    numbers = tuple(secrets.randbits(62) for _ in functions)
    _functions.update(zip(numbers, functions, strict=True))
    return numbers


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
