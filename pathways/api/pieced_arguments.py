"""Brings the leaves of a call into the buffers of a plan, and results back: arrays that are held in pieces."""

from collections.abc import Sequence
from typing import Any

from pathways.api.array import Array
from pathways.api.array_in_pieces import ArrayInPieces
from pathways.dialect.plan.leaves import Leaf
from pathways.dialect.user_line import caller
from pathways.runtime.client.inputs import as_host


def is_spread(leaves: Sequence[Any], wanted: Sequence[Leaf]) -> bool:
    """Returns whether any array is held in pieces, or wanted so."""
    return ArrayInPieces in map(type, leaves) or any(leaf.is_cut for leaf in wanted)


def spread_leaves(leaves: Sequence[Any], wanted: Sequence[Leaf], program: str) -> list[Any]:
    """Returns one value a buffer. Pieces that fit are taken as they are; others, and arrays on the host, are cut here.

    Raises PWC0501 for values that do not fit, PWC0516 for an array above the limit that is in other pieces.
    """
    values: list[Any] = []
    for value, leaf in zip(leaves, wanted, strict=True):
        if leaf.port.slot < 0:  # nothing reads it
            values += [value] * len(leaf.pieces)
        elif _fits(value, leaf):
            values += value.pieces if isinstance(value, ArrayInPieces) else [value]
        else:
            host = as_host(value.stored() if isinstance(value, Array) else value, leaf.port, program)
            values += [host[index] for index in leaf.indices]
    return values


def give_up_others(leaves: Sequence[Any], wanted: Sequence[Leaf], program: str) -> None:
    """Gives up donated arrays of which the program got copies, since it wants them cut otherwise."""
    for value, leaf in zip(leaves, wanted, strict=True):
        if leaf.port.donated and isinstance(value, Array) and not _fits(value, leaf):
            for piece in value.pieces if isinstance(value, ArrayInPieces) else (value,):
                piece.handle.give_up(program, caller())


def whole(leaf: Leaf, arrays: Sequence[Array]) -> Array:
    """Returns the array of a leaf, made of those of its buffers."""
    return ArrayInPieces(arrays, leaf.axis, leaf.port) if leaf.is_cut else arrays[0]


def _fits(value: Any, leaf: Leaf) -> bool:
    if isinstance(value, ArrayInPieces):
        return leaf.is_cut and (value.axis, value.sizes) == (leaf.axis, leaf.sizes)
    return not leaf.is_cut
