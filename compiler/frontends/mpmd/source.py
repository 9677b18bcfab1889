"""Defines the input of the MPMD front end: the text or bytecode of a module, with argument names, pytree structures and
callbacks if they are known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pathways.compiler.frontends.builder import Taken
from pathways.dialect.ir.arguments import Argument


@dataclass(frozen=True)
class Described:
    """The arguments of a traced function, used or not, in order, and its results.

    `kept` are the numbers of the arguments that the module takes; the trees are `PyTreeDef`s.
    """

    inputs: Taken
    kept: Sequence[int]
    results: Sequence[Argument]
    in_tree: Any
    out_tree: Any


@dataclass(frozen=True)
class MpmdSource:
    """A module as text or bytecode. `described` is None if there is only text, whose names are in locations.

    `callbacks` are the numbers of the Python functions that it calls, by index; None if they are unknown.
    """

    name: str
    module: str | bytes
    described: Described | None = None
    callbacks: tuple[int, ...] | None = None
