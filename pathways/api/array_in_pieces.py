"""Defines results that the plan stores in several buffers (pieces), for example the stacked weights of all pipeline
stages. To the user it is one array. Each piece stays on the devices that use it.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pathways.api.array import Array
from pathways.api.fetched import as_jax
from pathways.api.piece_shardings import PiecesSharding, shifted
from pathways.api.shards import Shard
from pathways.compiler.frontends.jax import compat
from pathways.dialect.plan.nouns import Port


class ArrayInPieces(Array):
    """An array that stages hold in pieces: `pieces` are arrays, concatenated along `axis`.

    It is used like any other `pw.Array`. A program that takes the same pieces reads them without a copy. A program that
    needs it whole, or cut elsewhere, receives it through the host. Reading it fetches all pieces and joins them on the
    host. It counts as donated, deleted or failed as soon as one of its pieces does.
    """

    def __init__(self, pieces: Sequence[Array], axis: int, port: Port) -> None:
        self.pieces = tuple(pieces)
        self.axis = axis
        self._port = port
        self._sharding = PiecesSharding(axis, self.sizes, tuple(p.virtual_sharding for p in pieces))

    @property
    def handle(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The handle that determines the state of the array: of a donated or deleted piece, else of the first piece."""
        unusable = (p.handle for p in self.pieces if p.handle.taken_by is not None or not p.handle.is_mine)
        return next(unusable, self.pieces[0].handle)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the pieces along the axis."""
        return tuple(p.shape[self.axis] for p in self.pieces)

    @property
    def is_fully_replicated(self) -> bool:
        return False

    @property
    def addressable_shards(self) -> list[Shard]:
        """The shards of all pieces, piece by piece. `.data` of a shard fetches only that shard."""
        found: list[Shard] = []
        start = 0
        for piece, size in zip(self.pieces, self.sizes, strict=True):
            found += [replace(s, index=shifted(s.index, self.axis, start, size)) for s in piece.addressable_shards]
            start += size
        return found

    def addressable_data(self, index: int) -> Any:
        """Returns the shard on one virtual device, by position among all pieces, as a `jax.Array`."""
        return self.addressable_shards[index].data

    def on_device_size_in_bytes(self) -> int:
        return sum(p.on_device_size_in_bytes() for p in self.pieces)

    def is_ready(self) -> bool:
        return all([p.is_ready() for p in self.pieces])

    def is_deleted(self) -> bool:
        return any(p.is_deleted() for p in self.pieces)

    def delete(self) -> None:
        for piece in self.pieces:
            piece.delete()

    def block_until_ready(self, timeout: float | None = None) -> "ArrayInPieces":
        end = None if timeout is None else time.monotonic() + timeout
        for piece in self.pieces:
            piece.block_until_ready(None if end is None else max(0.0, end - time.monotonic()))
        return self

    def cancel(self) -> bool:
        return any([p.cancel() for p in self.pieces])

    def copy_to_host_async(self) -> None:
        for piece in self.pieces:
            piece.copy_to_host_async()

    def stored(self) -> "np.ndarray[Any, Any]":
        """Returns a joined copy on the host in its stored form. Waits, and raises as each piece does."""
        self.check_limit(self.nbytes)
        self.copy_to_host_async()
        return np.concatenate([p.stored() for p in self.pieces], self.axis)

    def copy(self) -> "ArrayInPieces":
        return type(self)([p.copy() for p in self.pieces], self.axis, self._port)

    clone = __copy__ = copy

    def __reduce__(self) -> Any:
        """Pickles the values: unpickling makes a `jax.Array`."""
        return as_jax, (self.stored(), self._port.name, self._port.dtype, self._port.weak)


compat.take_for_arrays(ArrayInPieces, ArrayInPieces.__jax_array__)
