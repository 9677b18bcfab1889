"""Python functions that computations of this process call back, by number.

A module holds only the index of a callback; which functions those are stands on the computation as numbers, which mean
nothing to another process. So a plan with callbacks cannot be saved, and its dumps compile on in this process only.
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
    """Numbers that cannot be guessed: a dump from elsewhere must not call what it does not know."""
    numbers = tuple(secrets.randbits(62) for _ in functions)
    _functions.update(zip(numbers, functions, strict=True))
    return numbers


def find(number: int) -> Callable[..., Any] | None:
    return _functions.get(number)


def calls_back(module: bytes) -> bool:
    """Whether a serialized module calls Python. To run one without its functions kills the process."""
    return _TARGET.search(module) is not None


def read_callbacks(computation: Operation) -> tuple[int, ...]:
    """The numbers of a computation's callbacks, by their index in the module."""
    attributes = computation.attributes
    return tuple(attributes[ATTRIBUTE]) if ATTRIBUTE in attributes else ()


def write_callbacks(computation: Operation, numbers: Sequence[int]) -> None:
    """Needs the context of the computation."""
    if numbers:
        computation.attributes[ATTRIBUTE] = ir.DenseI64ArrayAttr.get(list(numbers))
