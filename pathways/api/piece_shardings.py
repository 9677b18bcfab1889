"""Represents the sharding of an array that is stored in several buffers (pieces): one sharding for each piece.
`ArrayInPieces.sharding` returns it to users.
"""

import math
from typing import TYPE_CHECKING, Any

import jax

if TYPE_CHECKING:
    Sharding: Any = object
else:
    Sharding = jax.sharding.Sharding


class PiecesSharding(Sharding):
    """The sharding of an array held in pieces of `sizes` elements along `axis`, each sharded as in `pieces`.

    JAX cannot compute with this sharding: `jax.jit` and `jax.device_put` need a sharding on one mesh.
    """

    def __init__(self, axis: int, sizes: tuple[int, ...], pieces: tuple[Any, ...]) -> None:
        self.axis = axis
        self.sizes = sizes
        self.pieces = pieces

    @property
    def device_set(self) -> set[Any]:
        """The virtual devices of all pieces."""
        return {device for piece in self.pieces for device in piece.device_set}

    @property
    def num_devices(self) -> int:
        return len(self.device_set)

    @property
    def is_fully_replicated(self) -> bool:
        return False

    @property
    def is_fully_addressable(self) -> bool:
        return True

    @property
    def memory_kind(self) -> str | None:
        return None

    def devices_indices_map(self, global_shape: tuple[int, ...]) -> dict[Any, tuple[slice, ...]]:
        """Returns the slice of an array of this shape on each device; the last one if pieces share devices."""
        found: dict[Any, tuple[slice, ...]] = {}
        start = 0
        for size, piece in zip(self.sizes, self.pieces, strict=True):
            shape = list(global_shape)
            shape[self.axis] = size
            for device, index in piece.devices_indices_map(tuple(shape)).items():
                found[device] = shifted(index, self.axis, start, size)
            start += size
        return found

    def check_compatible_aval(self, aval_shape: tuple[int, ...]) -> None:
        """Raises ValueError if an array of this shape cannot be cut into these pieces."""
        if len(aval_shape) <= self.axis or aval_shape[self.axis] != sum(self.sizes):
            raise ValueError(f"{self} of an array of shape {aval_shape}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PiecesSharding):
            return NotImplemented
        return (self.axis, self.sizes, self.pieces) == (other.axis, other.sizes, other.pieces)

    def __hash__(self) -> int:
        return hash((self.axis, self.sizes, self.pieces))

    def __repr__(self) -> str:
        shown = ", ".join(f"{size} on {_slices(piece)}" for size, piece in zip(self.sizes, self.pieces, strict=True))
        return f"PiecesSharding(axis {self.axis}: {shown})"


def shifted(index: tuple[slice, ...], axis: int, start: int, size: int) -> tuple[slice, ...]:
    """Converts an index in a piece of `size` elements, which begins at `start`, to an index in the array."""
    first, stop, _ = index[axis].indices(size)
    return (*index[:axis], slice(start + first, start + stop), *index[axis + 1 :])


def _slices(sharding: Any) -> str:
    devices = list(sharding.device_set)
    names = sorted({getattr(getattr(d, "slice", None), "name", str(d)) for d in devices})
    return f"{', '.join(names)} {sharding.spec}" if math.prod(sharding.mesh.shape.values()) > 1 else ", ".join(names)
