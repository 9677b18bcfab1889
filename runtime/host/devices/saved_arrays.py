"""Arrays on devices of this process, written to files shard by shard, and read back onto whatever devices."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pathways.dialect.array_files import ArrayFile
from pathways.dialect.sharding import Box, Sharding
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.layouts import Shards, Side


def write_shards(array: pjrt.DeviceArray, folder: Path, file: ArrayFile) -> None:
    """Writes what the devices hold, one shard after another; replicas once. Waits for the array.

    Raises PWC0606, and one of `pjrt.FAILURES` where the array never comes.
    """
    array.block_until_ready()
    for box, copied in pjrt.distinct_shards(array):
        file.write(folder, box, copied())


def read_shards(folder: Path, file: ArrayFile, side: Side) -> Any:
    """Reads an array onto the devices of a side that are of this process, one shard after another. Raises PWC0615."""
    if not side.here:
        return Shards()
    holders: dict[Box, list[int]] = {}
    boxes = list(side.sharding.boxes(file.type.shape))
    for position, box in ((p, boxes[p]) for p in side.here):
        holders.setdefault(box, []).append(position)
    shards: dict[int, Any] = {}
    for box, positions in holders.items():
        values = file.read(folder, box)
        made = pjrt.put_shards(values, file.type, [side.devices[p] for p in positions])
        shards.update(zip(positions, made, strict=True))
    return pjrt.assemble(file.type, side.real, [shards[p] for p in side.here])


def side_on(sharding: Sharding, devices: Sequence[pjrt.Device]) -> Side:
    """A sharding by position, on devices of this process in the order of its mesh."""
    real = pjrt.named_sharding(sharding.mesh, sharding.dims, devices)
    return Side(sharding, real, tuple(devices))
