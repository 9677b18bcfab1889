"""The values of an array, for another process: all, or what this one sends of it where others have a part."""

import json
from typing import Any

from pathways.dialect.sharding import Box
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.layouts import Shards


def all_values(array: Any, shard: int = -1) -> tuple[str, bytes]:
    """Copies an array, or its shard at a position, of which this process has all. Gives its shape (JSON) and bytes."""
    values = pjrt.to_host(array if shard < 0 else pjrt.shard(array, shard))
    return json.dumps(values.shape), values.tobytes()


def local_values(array: Any, shard: int = -1) -> tuple[str, bytes]:
    """Copies what this process has of an array, or of its shard at a position; of equal parts, the first one's host has
    them. Gives JSON (shape, size of an element, the part that each block of bytes is) and the bytes; nothing where it
    has none.
    """
    if isinstance(array, Shards):  # on a mesh without a device of this process
        return "", b""
    devices: list[Any] = list(array.sharding.mesh.devices.flat)
    boxes = _boxes(array)
    here = [position for position, device in enumerate(devices) if pjrt.is_here(device)]
    if shard >= 0:
        if shard not in here:
            return "", b""
        values = pjrt.to_host(pjrt.shard(array, here.index(shard)))
        box = [(0, length) for length in values.shape]
        return _said(values.shape, values.dtype.itemsize, [tuple(box)]), values.tobytes()
    wanted = [p for p in here if boxes.index(boxes[p]) == p]
    shards = [pjrt.to_host(pjrt.shard(array, here.index(p))) for p in wanted]
    if not shards:
        pjrt.to_host(pjrt.shard(array, 0))  # raises what is wrong with it
        return "", b""
    said = _said(array.shape, shards[0].dtype.itemsize, [boxes[p] for p in wanted])
    return said, b"".join(values.tobytes() for values in shards)


def _boxes(array: Any) -> list[Box]:
    """The part of an array that each device has, in the order of its mesh."""
    found = array.sharding.devices_indices_map(tuple(array.shape))
    return [
        tuple(s.indices(length)[:2] for s, length in zip(found[device], array.shape, strict=True))
        for device in array.sharding.mesh.devices.flat
    ]


def _said(shape: tuple[int, ...], itemsize: int, boxes: list[Box]) -> str:
    return json.dumps({"shape": shape, "itemsize": itemsize, "boxes": boxes})
