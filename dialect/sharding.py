"""Represents meshes and shardings as plain data, like `jax.sharding.NamedSharding` but without devices, and computes
the shards. Compiler, plans and runtime share it.

A `MeshSpec` names devices by their *position in the slice*. So a sharding stays valid when its slice is bound to other
devices. `Sharding` is `jax.sharding.NamedSharding` without JAX devices.
"""

import math
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

Shape: TypeAlias = tuple[int, ...]
Box: TypeAlias = tuple[tuple[int, int], ...]
"""A rectangular region of an array: start and stop for each dimension."""


Axes: TypeAlias = tuple[tuple[str, int], ...]
"""Names and sizes of mesh axes, major to minor."""


def size_of_axes(axes: Axes) -> int:
    """Returns the number of devices of a mesh with these axes."""
    return math.prod(size for _, size in axes)


@dataclass(frozen=True, slots=True)
class MeshSpec:
    """A mesh: named axes over devices of one slice. `devices` is row-major over the axes."""

    axes: tuple[tuple[str, int], ...]
    devices: tuple[int, ...]

    @property
    def size(self) -> int:
        return len(self.devices)

    @property
    def shape(self) -> Shape:
        return tuple(size for _, size in self.axes)

    def size_of(self, axes: tuple[str, ...]) -> int:
        sizes = dict(self.axes)
        return math.prod(sizes[a] for a in axes)

    def __str__(self) -> str:
        return ", ".join(f"{name}={size}" for name, size in self.axes) or "one device"


Dims: TypeAlias = tuple[tuple[str, ...], ...]
"""For each dimension of an array, the mesh axes that split it, major to minor."""


def replicated(rank: int) -> Dims:
    return ((),) * rank


@dataclass(frozen=True, slots=True)
class Sharding:
    """The layout of an array on a mesh: `dims[i]` are the axes that split dimension i."""

    mesh: MeshSpec
    dims: Dims

    def shard_shape(self, shape: Shape) -> Shape:
        """Returns the shape of one shard. Each dimension must be divisible: check with `undivided` first."""
        return tuple(d // self.mesh.size_of(axes) for d, axes in zip(shape, self.dims, strict=True))

    def undivided(self, shape: Shape) -> list[tuple[int, int]]:
        """Lists the dimensions that do not divide evenly, as (dimension, number of shards)."""
        parts = [self.mesh.size_of(axes) for axes in self.dims]
        return [(i, n) for i, (d, n) in enumerate(zip(shape, parts, strict=True)) if d % n]

    def boxes(self, shape: Shape) -> list[Box]:
        """Lists the region of the array that each device of the mesh holds, in the order of `mesh.devices`."""
        shard = self.shard_shape(shape)
        sizes = dict(self.mesh.axes)
        names = [name for name, _ in self.mesh.axes]
        boxes: list[Box] = []
        for coordinates in product(*(range(n) for n in self.mesh.shape)):
            at = dict(zip(names, coordinates, strict=True))
            box: list[tuple[int, int]] = []
            for length, axes in zip(shard, self.dims, strict=True):
                index = 0
                for axis in axes:
                    index = index * sizes[axis] + at[axis]
                box.append((index * length, (index + 1) * length))
            boxes.append(tuple(box))
        return boxes

    def same_layout(self, other: "Sharding", shape: Shape) -> bool:
        """Returns whether both put the same shards on the same devices in the same order; axis names do not matter."""
        if self == other:
            return True
        return self.mesh.devices == other.mesh.devices and self._digits(shape) == other._digits(shape)

    def _digits(self, shape: Shape) -> list[tuple[int, list[tuple[int, int, int]]]]:
        """Returns for each dimension the shard length, and the terms that map a device's position to its shard number.

        The shard number is the sum of (position // stride % size) * weight, in terms that cannot be merged further. Two
        shardings are the same exactly if these terms are equal, which is cheaper than comparing every device.
        """
        strides: dict[str, int] = {}
        stride = 1
        for name, size in reversed(self.mesh.axes):
            strides[name] = stride
            stride *= size
        sizes = dict(self.mesh.axes)
        found: list[tuple[int, list[tuple[int, int, int]]]] = []
        for length, axes in zip(self.shard_shape(shape), self.dims, strict=True):
            terms: list[tuple[int, int, int]] = []
            weight = 1
            for axis in reversed(axes):
                if sizes[axis] > 1:
                    terms.append((strides[axis], sizes[axis], weight))
                weight *= sizes[axis]
            found.append((length, _drawn_together(sorted(terms)) if length else []))
        return found

    def __str__(self) -> str:
        dims = ", ".join("+".join(axes) if axes else "-" for axes in self.dims)
        return f"({dims})"


def _drawn_together(terms: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Merges two consecutive terms if the second continues the first in both stride and weight."""
    found: list[tuple[int, int, int]] = []
    for stride, size, weight in terms:
        if found and (stride, weight) == (found[-1][0] * found[-1][1], found[-1][2] * found[-1][1]):
            found[-1] = found[-1][0], found[-1][1] * size, found[-1][2]
        else:
            found.append((stride, size, weight))
    return found


def intersect(a: Box, b: Box) -> Box | None:
    """Returns the intersection of two boxes, or None if it is empty."""
    common = tuple((max(p, r), min(q, s)) for (p, q), (r, s) in zip(a, b, strict=True))
    return None if any(p >= q for p, q in common) else common


def volume(box: Box) -> int:
    return math.prod(stop - start for start, stop in box)
