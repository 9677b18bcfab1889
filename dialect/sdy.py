"""Converts shardings and meshes to attributes of Shardy (`#sdy.sharding<@m0, [{"x"}, {}]>`) and back. The compiler and
the checks of plan modules call it.

The bindings return plain attributes: each must be cast to its class before it is read.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pathways.dialect.bare_mlir import Attribute, Operation, bare_ir, bare_sdy
from pathways.dialect.memo import remembered
from pathways.dialect.sharding import Dims, MeshSpec, Sharding


@dataclass(frozen=True, slots=True)
class Placed:
    """A sharding that names its mesh by symbol, with the mesh axes of each dimension."""

    mesh: str
    dims: Dims

    def on(self, mesh: MeshSpec) -> Sharding:
        return Sharding(mesh, self.dims)


@functools.lru_cache(1 << 14)
def shared_sharding(mesh: str, dims: Dims) -> Placed:
    """Returns one shared object for most equal shardings, because comparison by identity is faster."""
    return Placed(mesh, dims)


def write_sharding(placed: Placed) -> Attribute:
    """Makes a closed sharding attribute, which propagation may not split further."""
    dims = [
        bare_sdy.DimensionShardingAttr.get([bare_sdy.AxisRefAttr.get(a) for a in axes], True) for axes in placed.dims
    ]
    return bare_sdy.TensorShardingAttr.get(placed.mesh, dims)


@remembered
def read_sharding(attribute: Attribute) -> Placed:
    """Reads mesh and dimensions; ignores whether the sharding is open, its priorities and its unreduced axes."""
    attribute = bare_sdy.TensorShardingAttr(attribute)
    mesh = attribute.mesh_or_ref
    name = mesh.value if isinstance(mesh, bare_ir.FlatSymbolRefAttr) else ""
    dims = tuple(tuple(bare_sdy.AxisRefAttr(axis).name for axis in dim.axes) for dim in _dims(attribute))
    return shared_sharding(name, dims)


def has_sub_axes(attribute: Attribute) -> bool:
    """Returns whether the sharding uses part of an axis, as in `"x":(1)2`, which `Placed` cannot represent."""
    axes = [bare_sdy.AxisRefAttr(axis) for dim in _dims(bare_sdy.TensorShardingAttr(attribute)) for axis in dim.axes]
    return any(axis.sub_axis_info is not None for axis in axes)


def is_closed(attribute: Attribute) -> bool:
    """Returns whether propagation may not split any dimension further."""
    return all(dim.is_closed for dim in _dims(bare_sdy.TensorShardingAttr(attribute)))


def _dims(attribute: Attribute) -> list[Any]:
    return [bare_sdy.DimensionShardingAttr(dim) for dim in attribute.dimension_shardings]


def parts_of_sharding(attribute: Attribute, sizes: Mapping[str, int]) -> int:
    """Returns into how many parts a sharding splits an array. `sizes` are those of the axes of its mesh."""
    axes = [bare_sdy.AxisRefAttr(axis) for dim in _dims(bare_sdy.TensorShardingAttr(attribute)) for axis in dim.axes]
    return math.prod(
        sizes.get(axis.name, 1) if axis.sub_axis_info is None else bare_sdy.SubAxisInfoAttr(axis.sub_axis_info).size
        for axis in axes
    )


def manual_axes(manual: Operation) -> list[str]:
    """Returns the axes of an `sdy.manual_computation` over which its region is that of one device."""
    axes = bare_sdy.ManualAxesAttr(manual.attributes["manual_axes"])
    return [axes[i] for i in range(len(axes))]


def write_shardings(placed: tuple[Placed, ...]) -> Attribute:
    written = {p: write_sharding(p) for p in dict.fromkeys(placed)}
    return bare_sdy.TensorShardingPerValueAttr.get([written[p] for p in placed])


def shardings_in(attribute: Attribute) -> list[Attribute]:
    return list(bare_sdy.TensorShardingPerValueAttr(attribute).shardings)


@remembered
def read_shardings(attribute: Attribute) -> tuple[Placed, ...]:
    return tuple(read_sharding(s) for s in shardings_in(attribute))


def write_axes(axes: tuple[tuple[str, int], ...]) -> Attribute:
    return bare_sdy.MeshAttr.get([bare_sdy.MeshAxisAttr.get(name, size) for name, size in axes])


@remembered
def read_axes(attribute: Attribute) -> tuple[tuple[str, int], ...]:
    axes = [bare_sdy.MeshAxisAttr(axis) for axis in bare_sdy.MeshAttr(attribute).axes]
    return tuple((axis.name, axis.size) for axis in axes)


def mesh_ids(attribute: Attribute) -> tuple[int, ...]:
    """Reads the order of the devices of a mesh; empty if they are in ascending order."""
    return tuple(int(d) for d in bare_sdy.MeshAttr(attribute).device_ids)


def mesh_ops_of(module: Operation) -> dict[str, Operation]:
    """Finds the `sdy.mesh` ops of a module, by symbol."""
    operations = (op.operation for op in module.regions[0].blocks[0].operations)
    return {op.attributes["sym_name"].value: op for op in operations if op.name == "sdy.mesh"}


def meshes_of(module: Operation) -> dict[str, tuple[tuple[str, int], ...]]:
    """Finds the axes of the `sdy.mesh` symbols of a module, by name."""
    return {name: read_axes(op.attributes["mesh"]) for name, op in mesh_ops_of(module).items()}


def create_mesh(name: str, axes: tuple[tuple[str, int], ...], ip: Any) -> None:
    """Creates an `sdy.mesh` op. Call it inside the MLIR context."""
    attributes = {"sym_name": bare_ir.StringAttr.get(name), "mesh": write_axes(axes)}
    bare_ir.Operation.create("sdy.mesh", attributes=attributes, ip=ip)
