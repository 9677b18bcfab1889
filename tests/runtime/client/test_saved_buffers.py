"""Tests where a restored array may lie: where the array before it lies, unless that is lost or on several islands."""

from typing import Any

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.sharding import MeshSpec, Sharding
from pathways.runtime.client.buffers import KindOfBuffer, StoredBuffer
from pathways.runtime.client.saved_buffers import BufferPlace, place_of_buffer
from pathways.runtime.client_state import ClientState
from pathways.runtime.host.devices.islands import Machine

SHARDING = Sharding(MeshSpec((("x", 2),), (0, 1)), (("x",),))


def place(machine: Machine, *devices: Any) -> BufferPlace | None:
    type_, origin = ArrayType((4,), "int8"), ("call", "", None)
    made: Any = devices
    kind = KindOfBuffer(type_, "int8", SHARDING, made, 2)
    return place_of_buffer(machine, StoredBuffer(object(), kind, "x", origin, ClientState("a")))


def test_an_array_is_restored_to_its_devices_unless_one_is_lost_or_they_are_of_two_islands() -> None:
    machine = Machine("none")
    bound: list[Any] = [(name, number) for name in "ab" for number in range(2)]
    machine.bind("a", bound[:2])
    machine.bind("b", bound[2:])
    found = place(machine, *bound[:2])
    assert found == BufferPlace(SHARDING, tuple(bound[:2]))
    assert place(machine, bound[0], bound[2]) is None
    assert place(machine, bound[0], "unknown") is None
    machine.lose(machine.islands[0], 1, "a test", None)
    assert place(machine, *bound[:2]) is None and place(machine, *bound[2:]) is not None


def test_an_island_stays_bound_while_an_array_is_about_to_be_restored_there() -> None:
    machine = Machine("none")
    bound: list[Any] = [("a", number) for number in range(2)]
    machine.bind("a", bound)
    (island,) = machine.islands
    found = place(machine, *bound)
    assert found is not None and len(island.users) == 1
    del found
    assert len(island.users) == 0
