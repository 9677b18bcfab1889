"""Lists the parts in which a snapshot writes or reads one array of the user. The parts are the whole array, or each
piece if the array is stored in several buffers. `snapshots.py` uses it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

from pathways.api.array import Array
from pathways.api.array_in_pieces import ArrayInPieces
from pathways.api.piece_shardings import PiecesSharding
from pathways.dialect.array_files import ArrayFile
from pathways.dialect.sharding import Shape
from pathways.runtime.client.buffers import StoredBuffer


@dataclass(frozen=True)
class LeafPart:
    """A part of a leaf, as its own leaf: `size` elements from `start` along `axis`, or all of it if `axis` is None."""

    leaf: Any
    axis: int | None = None
    start: int = 0
    size: int = 0

    def of(self, file: ArrayFile) -> ArrayFile:
        """Returns the same part of a file."""
        return file if self.axis is None else file.part(self.axis, self.start, self.size)


def leaf_parts(leaf: Any) -> list[LeafPart]:
    """Lists the parts of a leaf. The leaf is an array, or a description of one."""
    sharding = getattr(leaf, "sharding", None)
    if isinstance(leaf, ArrayInPieces):
        found, axis, sizes = leaf.pieces, leaf.axis, leaf.sizes
    elif isinstance(sharding, PiecesSharding):
        axis, sizes = sharding.axis, sharding.sizes
        found = [_like(leaf, axis, *piece) for piece in zip(sizes, sharding.pieces, strict=True)]
    else:
        return [LeafPart(leaf)]
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    return [LeafPart(piece, axis, *place) for piece, *place in zip(found, starts, sizes, strict=True)]


def _like(leaf: Any, axis: int, size: int, sharding: Any) -> jax.ShapeDtypeStruct:
    shape = (*leaf.shape[:axis], size, *leaf.shape[axis + 1 :])
    weak: bool = getattr(leaf, "weak_type", False)
    return jax.ShapeDtypeStruct(shape, leaf.dtype, sharding=sharding, weak_type=weak)


def buffers_of(array: Array) -> list[StoredBuffer]:
    """Lists the buffers that hold an array."""
    pieces = array.pieces if isinstance(array, ArrayInPieces) else (array,)
    return [piece.handle.buffer for piece in pieces]


def common_part(shards: Sequence[Shape]) -> Shape:
    """Returns the largest shape that divides the shards of all pieces, so that no chunk spans two shards."""
    return tuple(math.gcd(*lengths) for lengths in zip(*shards, strict=True))
