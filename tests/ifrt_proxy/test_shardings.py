"""Tests that a sharding keeps the shard of every device when it is written for JAX's client and read again."""

import math
import random
from typing import Any

import pytest

from pathways.api.process import Process, process
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.sharding import Dims, MeshSpec, Sharding
from pathways.dialect.topology import Island, Topology
from pathways.ifrt_proxy.devices import ServedDevices
from pathways.ifrt_proxy.protocol import MESSAGES
from pathways.ifrt_proxy.shardings import (
    Location,
    has_location,
    on_one_device,
    read_location,
    read_tiles,
    write_location,
    write_tiles,
)


def by_device(mesh: MeshSpec, dims: Dims, shape: tuple[int, ...]) -> dict[int, Any]:
    return dict(zip(mesh.devices, Sharding(mesh, dims).boxes(shape), strict=True))


def drawn(seed: int) -> tuple[MeshSpec, Dims, tuple[int, ...]]:
    rng = random.Random(seed)
    sizes = [rng.choice((1, 2, 2, 3, 4)) for _ in range(rng.randint(1, 3))]
    devices = list(range(math.prod(sizes)))
    if rng.random() < 0.5:
        rng.shuffle(devices)
    mesh = MeshSpec(tuple((f"a{i}", size) for i, size in enumerate(sizes)), tuple(devices))
    names = [name for name, _ in mesh.axes]
    rng.shuffle(names)
    rank = rng.randint(1, 3)
    dims: list[tuple[str, ...]] = [()] * rank
    for name in names[: rng.randint(0, len(names))]:
        at = rng.randrange(rank)
        dims[at] = (*dims[at], name)
    return mesh, tuple(dims), (144,) * rank


@pytest.mark.parametrize("seed", range(60))
def test_written_tiles_give_every_device_its_shard(seed: int) -> None:
    mesh, dims, shape = drawn(seed)
    tiles = MESSAGES["OpSharding"]()
    write_tiles(mesh, dims, tiles)
    again = read_tiles(tiles, mesh.size, len(shape))
    assert by_device(*again, shape) == by_device(mesh, dims, shape)


@pytest.mark.parametrize("seed", range(20))
def test_a_written_location_gives_every_device_its_shard(seed: int) -> None:
    mesh, dims, shape = drawn(seed)
    ids = tuple(random.Random(seed).sample(range(100), mesh.size))
    message = MESSAGES["ShardingProto"]()
    write_location(Location(ids, Sharding(mesh, dims)), message)
    again = read_location(message, shape)
    assert again.devices == ids
    assert by_device(again.sharding.mesh, again.sharding.dims, shape) == by_device(mesh, dims, shape)


def test_a_transposed_range_of_devices_is_read() -> None:
    """The form that JAX writes for P(('y', 'x')) on a mesh of x=4 and y=2."""
    tiles = MESSAGES["OpSharding"](
        type="OTHER", tile_assignment_dimensions=[8], iota_reshape_dims=[4, 2], iota_transpose_perm=[1, 0]
    )
    found = by_device(*read_tiles(tiles, 8, 1), (8,))
    assert [found[d][0][0] for d in range(8)] == [0, 4, 1, 5, 2, 6, 3, 7]


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "MAXIMAL"},
        {"type": "MANUAL"},
        {"type": "OTHER", "tile_assignment_dimensions": [2], "tile_assignment_devices": [0, 0]},
        {"type": "OTHER", "tile_assignment_dimensions": [2], "tile_assignment_devices": [0, 7]},
        {"type": "OTHER", "tile_assignment_dimensions": [2, 1, 1], "tile_assignment_devices": [0, 1]},
        {"type": "OTHER", "tile_assignment_dimensions": [1 << 62], "iota_reshape_dims": [1 << 62]},
        {"type": "OTHER", "tile_assignment_dimensions": [2], "iota_reshape_dims": [2], "iota_transpose_perm": [5]},
        {"type": "OTHER", "tile_assignment_dimensions": [3], "tile_assignment_devices": [0, 1]},
        {"type": "OTHER", "tile_assignment_dimensions": [1, 2], "tile_assignment_devices": [0, 1],
         "last_tile_dims": ["MANUAL"]},
    ],
)  # fmt: skip
def test_invalid_and_unsupported_tiles_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(PathwaysError, match="PWC0940"):
        read_tiles(MESSAGES["OpSharding"](**fields), 2, 1)


@pytest.mark.parametrize(
    ("devices", "shape", "reason"),
    [([0, 0], (4,), "names a device twice"), ([0, 1], (7,), "shards of different sizes")],
)
def test_repeated_devices_and_uneven_shards_are_refused(devices: list[int], shape: tuple[int], reason: str) -> None:
    tiles = {"type": "OTHER", "tile_assignment_dimensions": [2], "tile_assignment_devices": [0, 1]}
    data = MESSAGES["HloShardingProto"](devices={"device_ids": devices}, xla_op_sharding=tiles).SerializeToString()
    message = MESSAGES["ShardingProto"]()
    message.serialized_sharding.type_name, message.serialized_sharding.data = "xla::ifrt::HloSharding", data
    with pytest.raises(PathwaysError, match=reason):
        read_location(message, shape)


def test_other_memories_are_refused() -> None:
    message = MESSAGES["ShardingProto"]()
    data = MESSAGES["SingleDeviceShardingProto"](device_id=1, memory_kind="pinned_host").SerializeToString()
    message.serialized_sharding.type_name, message.serialized_sharding.data = "xla::ifrt::SingleDeviceSharding", data
    with pytest.raises(PathwaysError, match="pinned_host"):
        read_location(message, (2,))
    assert on_one_device(3, 1).in_mesh_order == (3,)


def test_a_location_is_compared_by_the_shard_of_each_device() -> None:
    mesh = MeshSpec((("x", 2),), (0, 1))
    rows = Location((4, 5), Sharding(mesh, (("x",), ())))
    turned = rows.reordered([1, 0])
    assert turned.devices == (5, 4) and turned.sharding.mesh.devices == (1, 0)

    def stated(location: Location) -> Any:
        message = MESSAGES["ShardingProto"]()
        write_location(location, message)
        return message

    other = Location((5, 4), rows.sharding)
    for location in (rows, turned, other):
        for message_of in (rows, turned, other):
            assert has_location(stated(message_of), (4, 2), location) == (location == message_of)
    even = MESSAGES["ShardingProto"]()
    said = MESSAGES["ConcreteEvenShardingProto"]()
    said.devices.device_ids.extend((5, 4))
    said.shape.dims.extend((4, 2))
    said.shard_shape.dims.extend((2, 2))
    even.serialized_sharding.type_name = "xla::ifrt::ConcreteEvenSharding"
    even.serialized_sharding.data = said.SerializeToString()
    assert has_location(even, (4, 2), turned) and not has_location(even, (8, 2), turned)
    assert not has_location(even, (4, 2), rows)


def test_devices_state_the_platform_for_which_clients_must_lower() -> None:
    """JAX's client refuses to lower for `gpu`, which may be CUDA or ROCm."""
    island = Island("one", devices=2)
    for platform, wanted in (("cpu", "cpu"), ("gpu", "cuda"), ("tpu", "tpu")):
        own = Process(platform, process().controller)
        answer = ServedDevices(own, Topology((island,)), island, 2).describe(1)
        assert {answer.platform_name, *(device.platform_name for device in answer.all_devices)} == {wanted}
