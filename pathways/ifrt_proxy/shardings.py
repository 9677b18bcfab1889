"""Converts shardings between the IFRT proxy protocol and this project's meshes.

XLA states a sharding as tiles in an order of devices. This project states it as mesh axes that split each dimension.
Uneven tiles and manual shardings are refused: no argument or result of `jax.jit` has them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.sharding import Dims, MeshSpec, Shape, Sharding
from pathways.ifrt_proxy.errors import RequestRefused
from pathways.ifrt_proxy.protocol import MESSAGES

_TYPES = {name: f"xla::ifrt::{name}" for name in ("SingleDeviceSharding", "ConcreteEvenSharding", "HloSharding")}
_MANUAL_OR_UNKNOWN = "a sharding that states the shard of each device"
DEVICE_MEMORY = "device"
MAX_TILES = 1 << 20
"""The most devices of a sharding that is read."""
_OpSharding: Any = MESSAGES["OpSharding"]


@dataclass(frozen=True)
class Location:
    """The ids of an array's devices, in the client's order, and its sharding. Its mesh names positions in that list."""

    devices: tuple[int, ...]
    sharding: Sharding

    @cached_property
    def in_mesh_order(self) -> tuple[int, ...]:
        """The ids in the order of the mesh."""
        return tuple(self.devices[p] for p in self.sharding.mesh.devices)

    def mesh_position(self, index: int) -> int:
        """Returns the position in the mesh of a device in the client's order."""
        return self.sharding.mesh.devices.index(index)

    def reordered(self, order: Sequence[int]) -> "Location":
        """Lists the same devices in another order: `order[i]` is the present position of the device number i."""
        mesh = self.sharding.mesh
        moved = MeshSpec(mesh.axes, tuple(order.index(p) for p in mesh.devices))
        return Location(tuple(self.devices[p] for p in order), Sharding(moved, self.sharding.dims))


def read_location(message: Any, shape: Shape) -> Location:
    """Reads a ShardingProto. Raises PWC0940 for shardings that no argument or result of `jax.jit` has."""
    kind, data = message.serialized_sharding.type_name, message.serialized_sharding.data
    name = kind.rpartition(":")[2]
    if kind not in _TYPES.values():
        raise _refused(f"a sharding of type {kind}")
    read = MESSAGES[f"{name}Proto"].FromString(data)
    if read.HasField("memory_kind") and read.memory_kind not in ("", DEVICE_MEMORY):
        raise _refused(f"an array in the memory {read.memory_kind}")
    if name == "SingleDeviceSharding":
        return on_one_device(read.device_id, len(shape))
    devices = tuple(read.devices.device_ids)
    if len(set(devices)) != len(devices):
        raise _refused(f"a sharding that names a device twice: {devices}")
    if name == "HloSharding":
        found = Sharding(*read_tiles(read.xla_op_sharding, len(devices), len(shape)))
        if found.undivided(shape):
            raise _refused(f"shards of different sizes: {list(shape)} split as {found}")
        return Location(devices, found)
    if not read.is_fully_replicated and len(devices) > 1:
        raise _refused("a ConcreteEvenSharding that splits the array")
    return Location(devices, Sharding(_line(len(devices)), ((),) * len(shape)))


def has_location(message: Any, shape: Shape, location: Location) -> bool:
    """Checks whether a ShardingProto states this location. ConcreteEvenSharding states only the size of the shards."""
    if message.serialized_sharding.type_name == _TYPES["ConcreteEvenSharding"]:
        stated = MESSAGES["ConcreteEvenShardingProto"].FromString(message.serialized_sharding.data)
        shard = location.sharding.shard_shape(shape)
        return (tuple(stated.devices.device_ids), tuple(stated.shard_shape.dims)) == (location.devices, shard)
    read = read_location(message, shape)
    if read.devices != location.devices:
        return False
    boxes, wanted = location.sharding.boxes(shape), read.sharding.boxes(shape)
    positions = range(len(location.devices))
    return all(boxes[location.mesh_position(p)] == wanted[read.mesh_position(p)] for p in positions)


def on_one_device(device: int, rank: int) -> Location:
    return Location((device,), Sharding(_line(1), ((),) * rank))


def _line(count: int) -> MeshSpec:
    return MeshSpec((("devices", count),), tuple(range(count)))


def read_tiles(tiles: Any, devices: int, rank: int) -> tuple[MeshSpec, Dims]:
    """Reads an OpSharding over a number of devices; returns a mesh with one axis per dimension, and the split axes."""
    if tiles.type == _OpSharding.REPLICATED:
        return _line(devices), ((),) * rank
    if tiles.type != _OpSharding.OTHER or any(kind != _OpSharding.REPLICATED for kind in tiles.last_tile_dims):
        raise _refused("a maximal, manual, unreduced or unknown sharding")
    sizes = [int(size) for size in tiles.tile_assignment_dimensions]
    if len(tiles.last_tile_dims) > 1:
        kept = len(sizes) - len(tiles.last_tile_dims)
        sizes = [*sizes[:kept], math.prod(sizes[kept:])]
    order = _order(tiles)
    if (
        len(order) != devices
        or math.prod(sizes) != devices
        or len(sizes) not in (rank, rank + 1)
        or sorted(order) != list(range(devices))
    ):
        raise _refused(f"a sharding of {len(sizes)} dimensions over {len(order)} devices for {devices} devices")
    axes = tuple((f"d{i}", size) for i, size in enumerate(sizes))
    dims = tuple((f"d{i}",) if sizes[i] > 1 else () for i in range(rank))
    return _sorted_mesh(axes, order, dims)


def _order(tiles: Any) -> list[int]:
    """Returns the device of each tile: a list, or a transposed range."""
    if not tiles.iota_reshape_dims:
        return [int(d) for d in tiles.tile_assignment_devices]
    shape, turned = tuple(tiles.iota_reshape_dims), tuple(tiles.iota_transpose_perm)
    count = math.prod(shape)
    if not 0 < count <= MAX_TILES or sorted(turned) != list(range(len(shape))):
        raise _refused(f"a sharding over a range of {count} devices in the order {turned}")
    return [int(d) for d in np.arange(count).reshape(shape).transpose(turned).flat]


def _sorted_mesh(axes: tuple[tuple[str, int], ...], order: Sequence[int], dims: Dims) -> tuple[MeshSpec, Dims]:
    """Reorders the axes so that devices are in ascending order if they can be, as in the meshes of most programs."""
    grid = np.array(order).reshape([size for _, size in axes])
    strides = [int(grid.take(1, i).flat[0] - grid.flat[0]) if size > 1 else 0 for i, (_, size) in enumerate(axes)]
    by_stride = sorted(range(len(axes)), key=lambda i: -strides[i])
    turned = np.transpose(grid, by_stride)
    if list(turned.flat) == sorted(order):
        return MeshSpec(tuple(axes[i] for i in by_stride), tuple(sorted(order))), dims
    return MeshSpec(axes, tuple(order)), dims


def write_tiles(mesh: MeshSpec, dims: Dims, into: Any) -> None:
    """Writes an OpSharding: tiles over positions in the order of the devices of an executable or array."""
    into.SetInParent()
    if not any(dims) or mesh.size == 1:
        return
    names = [name for name, _ in mesh.axes]
    used = [names.index(axis) for axes in dims for axis in axes]
    rest = [i for i in range(len(names)) if i not in used]
    grid = np.array(mesh.devices).reshape(mesh.shape).transpose([*used, *rest])
    sizes = [mesh.size_of(axes) for axes in dims]
    left = math.prod(mesh.shape[i] for i in rest)
    into.type = _OpSharding.OTHER
    into.tile_assignment_dimensions.extend([*sizes, left] if left > 1 else sizes)
    into.tile_assignment_devices.extend(int(d) for d in grid.flat)
    into.replicate_on_last_tile_dim = left > 1


def write_location(location: Location, into: Any) -> None:
    """Writes a ShardingProto for an array."""
    if len(location.devices) == 1:
        name, message = "SingleDeviceSharding", MESSAGES["SingleDeviceShardingProto"](device_id=location.devices[0])
    else:
        name, message = "HloSharding", MESSAGES["HloShardingProto"]()
        message.devices.device_ids.extend(location.devices)
        write_tiles(location.sharding.mesh, location.sharding.dims, message.xla_op_sharding)
    message.memory_kind = DEVICE_MEMORY
    into.serialized_sharding.type_name = _TYPES[name]
    into.serialized_sharding.data = message.SerializeToString()


def _refused(have: str) -> PathwaysError:
    return PathwaysError(RequestRefused(what="a sharding", have_=have, rule=_MANUAL_OR_UNKNOWN))
