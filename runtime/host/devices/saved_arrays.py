"""Writes arrays on devices of this process to files, shard by shard, and reads them back onto any devices. Snapshots
(`pw.save`) call it, in a client or on a host.

`client/saved_buffers.py` calls it in a client, and `host/snapshots.py` on a host.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pathways.dialect.array_files import ArrayFile
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.sharding import Box, MeshSpec, Sharding
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.layouts import Shards, Side


def write_shards(array: pjrt.DeviceArray, folder: Path, file: ArrayFile) -> None:
    """Waits for an array and writes the shards that devices here hold, one after another. Replicas are written once.

    Raises PWC0606, and one of `pjrt.FAILURES` if the computation of the array failed.
    """
    array.block_until_ready()
    for box, copied in _distinct_shards(array):
        file.write(folder, box, copied())


def read_shards(folder: Path, file: ArrayFile, side: Side) -> Any:
    """Reads an array, one shard after another, onto those devices of a side that belong to this process.

    Raises PWC0615.
    """
    if not side.here:
        return Shards()
    holders: dict[Box, list[int]] = {}
    boxes = list(side.sharding.boxes(file.type.shape))
    for position, box in ((p, boxes[p]) for p in side.here):
        holders.setdefault(box, []).append(position)
    shards: dict[int, Any] = {}
    for box, positions in holders.items():
        values = file.read(folder, box)
        made = _put_shards(values, file.type, [side.devices[p] for p in positions])
        shards.update(zip(positions, made, strict=True))
    return pjrt.assembler(file.type, side.real)([shards[p] for p in side.here])


def side_on(sharding: Sharding, devices: Sequence[pjrt.Device]) -> Side:
    """Applies a sharding by position to devices of this process, given in mesh order."""
    real = pjrt.named_sharding(sharding.mesh, sharding.dims, devices)
    return Side(sharding, real, tuple(devices))


def _distinct_shards(array: pjrt.DeviceArray) -> list[tuple[Box, Callable[[], "np.ndarray[Any, Any]"]]]:
    """Lists the distinct shards of an array that this process must write, each with a function that copies it.

    A shard held by several processes is listed only in the process of its first replica. The host copy is not cached in
    the array, so that a caller that handles one shard at a time needs memory for one only.
    """
    found: dict[Box, Callable[[], np.ndarray[Any, Any]]] = {}
    first: dict[Box, pjrt.Device] = {}
    for device, index in array.sharding.devices_indices_map(array.shape).items():
        first.setdefault(_box(index, array.shape), device)
    indices = array.sharding.addressable_devices_indices_map(array.shape).values()
    for shard, index in zip(pjrt.shards_of(array), indices, strict=True):
        box = _box(index, array.shape)
        if pjrt.is_here(first[box]):
            found.setdefault(box, lambda shard=shard: np.asarray(pjrt.again(shard)))
    return list(found.items())


def _box(index: tuple[slice, ...], shape: tuple[int, ...]) -> Box:
    return tuple(s.indices(n)[:2] for s, n in zip(index, shape, strict=True))


def _put_shards(
    host: "np.ndarray[Any, Any]", type_: ArrayType, devices: Sequence[pjrt.Device]
) -> list[pjrt.DeviceArray]:
    """Copies the same shard to each of these devices."""
    aval = ArrayType(host.shape, type_.dtype)
    spec = MeshSpec((), (0,))
    where = Sharding(spec, ((),) * host.ndim)
    placed = [pjrt.putter(aval, where, pjrt.named_sharding(spec, where.dims, [d]), [d])(host) for d in devices]
    return [pjrt.shards_of(array)[0] for array in placed]
