"""What is known of an MPMD program beside its module: names, structures, types, and functions that it calls."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pathways.compiler.frontends.builder import Taken
from pathways.dialect.ir.program import Argument


@dataclass(frozen=True)
class Described:
    """What the function that was traced takes and gives: arguments in order, used or not, and results.

    `kept` are the numbers of the arguments that the module takes; the trees are `PyTreeDef`s.
    """

    inputs: Taken
    kept: Sequence[int]
    results: Sequence[Argument]
    in_tree: Any
    out_tree: Any


@dataclass(frozen=True)
class MpmdSource:
    """A module as text or bytecode. `described` is None for text by itself, which has its names only in places.

    `callbacks`: the numbers of the Python functions that it calls, by index; None where they are not known.
    """

    name: str
    module: str | bytes
    described: Described | None = None
    callbacks: tuple[int, ...] | None = None
