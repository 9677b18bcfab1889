"""Tests which parts of an array a process writes, reads and sends, for arrays that are split and copied."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from pathways.dialect.array_files import ArrayFile
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.sharding import MeshSpec, Sharding
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.layouts import Shards, Side, put_on_side
from pathways.runtime.host.devices.local_values import all_values, local_values
from pathways.runtime.host.devices.saved_arrays import read_shards, side_on, write_shards
from pathways.runtime.host.load.loaded_part import copy_if_array

HOST = np.arange(24, dtype=np.int16).reshape(4, 6)
TYPE = ArrayType((4, 6), "int16")
MESH = MeshSpec((("x", 2), ("y", 2)), (0, 1, 2, 3))
BOTH, ROWS, COPIES = (Sharding(MESH, dims) for dims in ((("x",), ("y",)), (("x",), ()), ((), ())))
FIRST_ROWS, LAST_ROWS = ((0, 2), (0, 6)), ((2, 4), (0, 6))


@pytest.fixture(scope="module")
def devices() -> list[Any]:
    return pjrt.make_devices(4)


class File:
    """A file that keeps what is written, and notes what is read."""

    type = TYPE

    def __init__(self) -> None:
        self.written: list[tuple[Any, np.ndarray[Any, Any]]] = []
        self.read_boxes: list[Any] = []

    def write(self, folder: Path, box: Any, values: "np.ndarray[Any, Any]") -> None:
        self.written.append((box, values))

    def read(self, folder: Path, box: Any) -> "np.ndarray[Any, Any]":
        self.read_boxes.append(box)
        return part(box)


def part(box: Any) -> "np.ndarray[Any, Any]":
    return HOST[tuple(slice(*bounds) for bounds in box)].copy()


def boxes_of(sharding: Sharding) -> Sequence[Any]:
    return list(dict.fromkeys(sharding.boxes(TYPE.shape)))


@pytest.mark.parametrize("sharding", [BOTH, ROWS, COPIES])
def test_each_part_of_an_array_is_written_and_read_once(devices: list[Any], sharding: Sharding) -> None:
    side, file = side_on(sharding, devices), File()
    array = put_on_side(HOST, TYPE, side)
    as_file: ArrayFile = file  # pyright: ignore[reportAssignmentType]
    write_shards(array, Path(), as_file)
    assert [box for box, _ in file.written] == list(boxes_of(sharding))
    for box, values in file.written:
        np.testing.assert_array_equal(values, part(box))
    back = read_shards(Path(), as_file, side)
    assert file.read_boxes == list(boxes_of(sharding)) and back.sharding == array.sharding
    np.testing.assert_array_equal(np.asarray(back), HOST)
    for shard, again in zip(array.addressable_shards, back.addressable_shards, strict=True):
        assert shard.device == again.device
        np.testing.assert_array_equal(np.asarray(shard.data), np.asarray(again.data))


def test_a_side_that_is_on_other_hosts_is_not_read() -> None:
    class Elsewhere:
        process_index = 1

        class client:
            process_index = staticmethod(lambda: 0)

    away: Any = Elsewhere()
    real: Any = None
    side, file = Side(COPIES, real, (away,) * 4), File()
    as_file: ArrayFile = file  # pyright: ignore[reportAssignmentType]
    assert side.here == () and read_shards(Path(), as_file, side) == [] and put_on_side(HOST, TYPE, side) == []
    assert file.read_boxes == []


def test_a_side_counts_its_devices_from_zero(devices: list[Any]) -> None:
    later = Sharding(MeshSpec(MESH.axes, (4, 7, 5, 6)), ROWS.dims)
    side = side_on(later, devices)
    assert side.local == ROWS and side.here == (0, 1, 2, 3) and side.devices == tuple(devices)


@pytest.mark.parametrize(("shard", "box"), [(-1, ((0, 4), (0, 6))), (0, FIRST_ROWS), (1, FIRST_ROWS), (2, LAST_ROWS)])
def test_all_values_are_those_of_the_array_or_of_a_shard(devices: list[Any], shard: int, box: Any) -> None:
    said, raw = all_values(put_on_side(HOST, TYPE, side_on(ROWS, devices)), shard)
    assert json.loads(said) == list(part(box).shape) and raw == part(box).tobytes()


def test_a_process_sends_each_part_that_it_has_once(devices: list[Any]) -> None:
    array = put_on_side(HOST, TYPE, side_on(ROWS, devices))
    said, raw = local_values(array)
    assert json.loads(said) == {"shape": [4, 6], "itemsize": 2, "boxes": [[[0, 2], [0, 6]], [[2, 4], [0, 6]]]}
    assert raw == HOST.tobytes()
    for position, box in ((0, FIRST_ROWS), (1, FIRST_ROWS), (3, LAST_ROWS)):
        said, raw = local_values(array, position)
        assert json.loads(said) == {"shape": [2, 6], "itemsize": 2, "boxes": [[[0, 2], [0, 6]]]}
        assert raw == part(box).tobytes()
    assert local_values(Shards()) == ("", b"")
    for values in (local_values, all_values):
        with pytest.raises(ValueError, match="shard 4 of an array on 4 devices"):
            values(array, 4)
    whole = put_on_side(HOST, TYPE, side_on(COPIES, devices))
    assert (
        json.loads(local_values(whole)[0])["boxes"] == [[[0, 4], [0, 6]]] and local_values(whole)[1] == HOST.tobytes()
    )


def test_a_list_of_shards_is_ready_when_all_are() -> None:
    class Shard:
        def __init__(self, ready: bool) -> None:
            self.ready, self.waits, self.addressable_shards = ready, 0, [ready, "more"]

        def is_ready(self) -> bool:
            return self.ready

        def block_until_ready(self) -> None:
            self.waits += 1

    some, every = Shards([Shard(True), Shard(False)]), Shards([Shard(True), Shard(True)])
    assert not some.is_ready() and every.is_ready() and Shards().is_ready()
    every.block_until_ready()
    assert [one.waits for one in every] == [1, 1] and some.addressable_shards == [True, "more", False, "more"]


@pytest.mark.parametrize("sharding", [BOTH, ROWS, COPIES])
def test_runs_never_write_to_the_memory_of_a_host_array(devices: list[Any], sharding: Sharding) -> None:
    """All copies of an aligned array share its memory on CPU. A run that overwrites them must not add up their ones."""
    room = np.empty(TYPE.bytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    host = room[start : start + TYPE.bytes].view(HOST.dtype).reshape(HOST.shape)
    host[...] = HOST
    side = side_on(sharding, devices)
    array = put_on_side(host, TYPE, side, keeps=True)
    add = jax.jit(lambda v: v + 1, donate_argnums=0, out_shardings=side.real)
    for _ in range(3):
        array = add(array)
    for shard in array.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), (HOST + 3)[shard.index])
    np.testing.assert_array_equal(host, HOST)


@pytest.mark.parametrize("keeps", [False, True])
def test_a_scalar_has_no_dimensions_on_devices(devices: list[Any], keeps: bool) -> None:
    side = side_on(Sharding(MESH, ()), devices)
    array = put_on_side(np.array(7, np.int16), ArrayType((), "int16"), side, keeps=keeps)
    assert [shard.data.shape for shard in array.addressable_shards] == [()] * 4 and int(array) == 7


@pytest.mark.parametrize("sharding", [BOTH, ROWS, COPIES])
def test_a_copied_shard_is_an_array_of_its_own(devices: list[Any], sharding: Sharding) -> None:
    array = put_on_side(HOST, TYPE, side_on(sharding, devices))
    for position, box in enumerate(sharding.boxes(TYPE.shape)):
        copied = copy_if_array(array, position)
        assert list(copied.sharding.mesh.devices.flat) == [devices[position]]
        np.testing.assert_array_equal(np.asarray(copied), part(box))
        copied.delete()
    assert not array.is_deleted()
    with pytest.raises(ValueError, match="shard 4"):
        copy_if_array(array, 4)
    assert copy_if_array("no array", 2) == "no array"


def test_a_shard_of_another_process_is_copied_there(devices: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    array = put_on_side(HOST, TYPE, side_on(ROWS, devices))
    monkeypatch.setattr(pjrt, "is_here", lambda device: device.id >= devices[2].id)
    monkeypatch.setattr(pjrt, "shards_of", lambda _: array._arrays[2:])
    assert copy_if_array(array, 1) == []
    np.testing.assert_array_equal(np.asarray(copy_if_array(array, 3)), part(LAST_ROWS))
