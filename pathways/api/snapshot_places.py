"""Finds the devices on which `pw.restore` puts each array: those of the array that it replaces, or those of a sharding
that the user gives.
"""

import math
from collections.abc import Mapping
from typing import Any, TypeVar

from jax.sharding import Mesh, NamedSharding

from pathways.api.array import Array
from pathways.api.process import process
from pathways.api.program import program
from pathways.compiler.frontends.jax.devices import VirtualDevice
from pathways.dialect.jax_api import jit
from pathways.dialect.jax_api import numpy as jnp
from pathways.dialect.sharding import Sharding
from pathways.runtime.client.saved_buffers import BufferPlace, place_of_buffer

_Key = TypeVar("_Key")


def places_of(leaves: Mapping[_Key, Any]) -> dict[_Key, BufferPlace]:
    """Finds the devices of leaves, by key. Leaves that name no devices are left out.

    Slices that no program has used are placed first, as by a program that uses them. Raises the errors of that
    placement.
    """
    found: dict[_Key, BufferPlace] = {}
    by_mesh: dict[Mesh, dict[_Key, Any]] = {}
    for number, leaf in leaves.items():
        place = place_of_buffer(process().machine, leaf.handle.buffer) if isinstance(leaf, Array) else None
        if place is not None:
            found[number] = place
        elif (mesh := _virtual_mesh(leaf)) is not None:
            by_mesh.setdefault(mesh, {})[number] = leaf
    for of_mesh in by_mesh.values():
        found |= _place_by_program(of_mesh)
    return found


def _virtual_mesh(leaf: Any) -> Mesh | None:
    sharding = virtual_sharding_of(leaf)
    if not isinstance(sharding, NamedSharding) or not isinstance(sharding.mesh, Mesh):
        return None
    return sharding.mesh if isinstance(sharding.mesh.devices.flat[0], VirtualDevice) else None


def _place_by_program(leaves: Mapping[_Key, Any]) -> dict[_Key, BufferPlace]:
    """Finds the devices of leaves on one mesh, by running a program with the smallest arrays of the same shardings."""
    shapes = [_grid(leaf) for leaf in leaves.values()]
    made = jit(
        lambda: [jnp.zeros(shape, jnp.uint8) for shape in shapes],
        out_shardings=[virtual_sharding_of(leaf) for leaf in leaves.values()],
    )
    arrays = program(lambda: made())()
    found: dict[_Key, BufferPlace] = {}
    for (number, leaf), array in zip(leaves.items(), arrays, strict=True):
        buffer = array.handle.buffer
        words = 1 if str(leaf.dtype).startswith("key<") else 0
        dims = buffer.sharding.dims + ((),) * (leaf.ndim + words - len(buffer.sharding.dims))
        place = BufferPlace(Sharding(buffer.sharding.mesh, dims), buffer.devices)
        found[number] = place.keep(process().machine)
    return found


def virtual_sharding_of(leaf: Any) -> Any:
    """Returns the sharding of a leaf on virtual devices, or None if it has no sharding."""
    return leaf.virtual_sharding if isinstance(leaf, Array) else getattr(leaf, "sharding", None)


def _grid(leaf: Any) -> tuple[int, ...]:
    """Returns the number of parts in each dimension."""
    sharding = virtual_sharding_of(leaf)
    sizes = dict(sharding.mesh.shape)
    entries = [*sharding.spec, *[None] * (leaf.ndim - len(sharding.spec))]
    axes = [() if e is None else (e,) if isinstance(e, str) else tuple(e) for e in entries]
    return tuple(math.prod(sizes[axis] for axis in of_dim) for of_dim in axes)
