"""Tests which part of an array each timed device has."""

import numpy as np
import pytest

from pathways.dialect.sharding import MeshSpec, Sharding
from pathways.runtime.host.timed.devices import TimedClient, TimedDevice, TimedSharding

DEVICES = tuple(TimedDevice(n, "pod", "timed", "cpu", 0, TimedClient(0)) for n in range(4))
MESH = MeshSpec((("x", 2), ("y", 2)), (0, 1, 2, 3))
HOST = np.arange(24).reshape(4, 6)
WHOLE = HOST.tolist()


@pytest.mark.parametrize(
    ("where", "parts"),
    [
        (None, [WHOLE] * 4),
        (Sharding(MESH, ((), ())), [WHOLE] * 4),
        (Sharding(MESH, (("x",), ())), [WHOLE[:2], WHOLE[:2], WHOLE[2:], WHOLE[2:]]),
        (Sharding(MESH, ((), ("y",))), [HOST[:, :3].tolist(), HOST[:, 3:].tolist()] * 2),
    ],
)
def test_each_device_has_the_part_that_the_sharding_states(where: Sharding | None, parts: list[object]) -> None:
    sharding = TimedSharding(where, DEVICES)
    indices = sharding.devices_indices_map(HOST.shape)
    assert list(indices) == list(DEVICES) and [HOST[index].tolist() for index in indices.values()] == parts
    assert all(HOST[index].shape == sharding.shard_shape(HOST.shape) for index in indices.values())
