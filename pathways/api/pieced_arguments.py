"""Converts between the user's arrays and the buffers of a plan that stores an array in several buffers (pieces).
Arguments in the same pieces are used as they are; others are cut on the host. A result stays in pieces and looks like
one array (`ArrayInPieces`). `stages.py` (JAX's stages: lowered, compiled) calls it in each call.
"""

from collections.abc import Sequence
from typing import Any

from pathways.api.array import Array
from pathways.api.array_in_pieces import ArrayInPieces
from pathways.dialect.plan.leaves import Leaf
from pathways.dialect.user_line import caller
from pathways.runtime.client.inputs import as_host


def spread_leaves(leaves: Sequence[Any], wanted: Sequence[Leaf], program: str) -> list[Any]:
    """Returns one value for each buffer. Pieces that match are used as they are; other arrays are cut on the host.

    Raises PWC0501 for values that do not match, PWC0516 for an array above the limit that is held in other pieces.
    """
    values: list[Any] = []
    for value, leaf in zip(leaves, wanted, strict=True):
        if leaf.port.slot < 0:  # no computation reads it
            values += [value] * len(leaf.pieces)
        elif _fits(value, leaf):
            values += value.pieces if isinstance(value, ArrayInPieces) else [value]
        else:
            host = as_host(value.stored() if isinstance(value, Array) else value, leaf.port, program)
            values += [host[index] for index in leaf.indices]
    return values


def give_up_others(leaves: Sequence[Any], wanted: Sequence[Leaf], program: str) -> None:
    """Frees donated arrays whose values the program received as copies, because it needs other pieces."""
    for value, leaf in zip(leaves, wanted, strict=True):
        if leaf.port.donated and isinstance(value, Array) and not _fits(value, leaf):
            for piece in value.pieces if isinstance(value, ArrayInPieces) else (value,):
                piece.handle.give_up(program, caller())


def whole(leaf: Leaf, arrays: Sequence[Array]) -> Array:
    """Returns the array of a leaf, built from the arrays of its buffers."""
    return ArrayInPieces(arrays, leaf.axis, leaf.port) if leaf.is_cut else arrays[0]


def _fits(value: Any, leaf: Leaf) -> bool:
    if isinstance(value, ArrayInPieces):
        return leaf.is_cut and (value.axis, value.sizes) == (leaf.axis, leaf.sizes)
    return not leaf.is_cut
