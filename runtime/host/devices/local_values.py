"""Copies the values of an array to bytes, to send them to a client: the whole array, or the shards that this process
has. Copies one shard on its device. `host/host.py` calls it.
"""

import json
from typing import Any

from pathways.dialect.sharding import Box, MeshSpec
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.layouts import Shards


def copy_shard(array: pjrt.DeviceArray, position: int) -> pjrt.DeviceArray | None:
    """Copies the shard at a mesh position on its device; returns None if that belongs to another process.

    Raises ValueError if the array has no such shard.
    """
    devices = _devices_of(array, position)
    device = devices[position]
    if not pjrt.is_here(device):
        return None
    found = pjrt.shards_of(array)[sum(map(pjrt.is_here, devices[:position]))]
    alone = pjrt.named_sharding(MeshSpec((("devices", 1),), (0,)), ((),) * array.ndim, [device])
    return pjrt.copy_whole(found, pjrt.device_list([device]), alone)


def _devices_of(array: pjrt.DeviceArray, position: int) -> list[pjrt.Device]:
    """Returns the devices of an array in mesh order; -1 stands for no position.

    Raises ValueError if none has the shard at this position: a client may send any.
    """
    devices = list(array.sharding.mesh.devices.flat)
    if position >= len(devices):
        raise ValueError(f"shard {position} of an array on {len(devices)} devices")
    return devices


def all_values(array: Any, shard: int = -1) -> tuple[str, bytes]:
    """Copies an array, or its shard at a position, from this process, which has all of it.

    Returns the shape as JSON, and the bytes. Raises ValueError if it has no such shard.
    """
    _devices_of(array, shard)
    values = pjrt.to_host(array if shard < 0 else pjrt.shard(array, shard))
    return json.dumps(values.shape), values.tobytes()


def local_values(array: Any, shard: int = -1) -> tuple[str, bytes]:
    """Copies the shards of an array that this process must send, or its shard at a position.

    Of equal shards (replicas), the host of the first one sends it. Returns JSON and the bytes, both empty if there are
    none. The JSON states the shape, the size of an element, and the box that each block of bytes fills. Raises
    ValueError if there is no such shard.
    """
    if isinstance(array, Shards):  # the mesh has no device of this process
        return "", b""
    devices = _devices_of(array, shard)
    boxes = _boxes(array)
    here = [position for position, device in enumerate(devices) if pjrt.is_here(device)]
    if shard >= 0:
        if shard not in here:
            return "", b""
        values = pjrt.to_host(pjrt.shard(array, here.index(shard)))
        box = [(0, length) for length in values.shape]
        return _header(values.shape, values.dtype.itemsize, [tuple(box)]), values.tobytes()
    wanted = [p for p in here if boxes.index(boxes[p]) == p]
    shards = [pjrt.to_host(pjrt.shard(array, here.index(p))) for p in wanted]
    if not shards:
        pjrt.to_host(pjrt.shard(array, 0))  # raises if its computation failed
        return "", b""
    header = _header(array.shape, shards[0].dtype.itemsize, [boxes[p] for p in wanted])
    return header, b"".join(values.tobytes() for values in shards)


def _boxes(array: Any) -> list[Box]:
    """Returns the box of the array that each device holds, in mesh order."""
    found = array.sharding.devices_indices_map(tuple(array.shape))
    return [
        tuple(s.indices(length)[:2] for s, length in zip(found[device], array.shape, strict=True))
        for device in array.sharding.mesh.devices.flat
    ]


def _header(shape: tuple[int, ...], itemsize: int, boxes: list[Box]) -> str:
    return json.dumps({"shape": shape, "itemsize": itemsize, "boxes": boxes})
