"""A plan that moves one array: within its place, to another mesh of the island, or to another island."""

from dataclasses import replace

from support.plans_by_hand import TOPOLOGY

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.check import validate
from pathways.dialect.plan.instructions import Copy, Recv, Send
from pathways.dialect.plan.move import ArrayPlace, move_plan
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.part import edges_of
from pathways.dialect.topology import Island, Topology

TYPE = ArrayType((8,), "float32")
HALVES = ArrayPlace("left", (3, 1), (("x", 2),), (("x",),))
WHOLE = ArrayPlace("left", (1, 0), (("x", 2),), ((),))
AWAY = ArrayPlace("right", (0, 1, 2, 3), (("y", 4),), (("y",),))


def moved(here: ArrayPlace, there: ArrayPlace) -> Plan:
    """Makes the plan, and asserts that it moves its argument to its result."""
    plan = move_plan("cpu", TOPOLOGY, TYPE, here, there)
    validate(plan)
    (argument,), (result,) = plan.inputs, plan.results
    assert not argument.donated and not argument.weak and not result.weak and argument.dtype == "float32"
    for place, port in ((here, argument), (there, result)):
        buffer = plan.stream(port.island).buffers[port.slot]
        mesh = plan.meshes[buffer.layout.mesh]
        assert (mesh.island, mesh.devices, mesh.axes) == (place.island, place.devices, place.axes)
        assert buffer.layout.dims == place.dims and buffer.type == TYPE and buffer.death == -1
    return plan


def test_an_array_that_stays_needs_no_instruction() -> None:
    plan = moved(HALVES, HALVES)
    (stream,) = plan.streams
    assert stream.instructions == () and [b.bytes for b in stream.buffers] == [16] and stream.peak_bytes == 16
    assert [s.devices for s in plan.slices] == [(1, 3)]


def test_an_array_is_copied_within_its_island() -> None:
    plan = moved(HALVES, WHOLE)
    (stream,) = plan.streams
    assert stream.instructions == (Copy(0, 0, 1, None),) and stream.peak_bytes == 16 + 32
    assert [(b.bytes, b.birth) for b in stream.buffers] == [(16, -1), (32, 0)]
    assert [s.devices for s in plan.slices] == [(0, 1, 3)]


def test_an_array_is_sent_to_another_island() -> None:
    plan = moved(HALVES, AWAY)
    source, target = plan.streams
    assert source.instructions == (Send(0, 0, 0, "right", None),)
    assert target.instructions == (Recv(0, 0, 0, "left", None),)
    assert (source.peak_bytes, target.peak_bytes) == (16, 8)
    assert [(b.bytes, b.birth) for s in plan.streams for b in s.buffers] == [(16, -1), (8, 0)]
    assert [(e.source, e.target) for e in edges_of(plan)] == [("left", "right")]
    assert [(s.island, s.devices) for s in plan.slices] == [("left", (1, 3)), ("right", (0, 1, 2, 3))]


def test_devices_of_a_slice_are_in_order() -> None:
    wide = Topology((Island("left", 64),))
    far = ArrayPlace("left", (40, 8), (("x", 2),), (("x",),))
    plan = move_plan("cpu", wide, TYPE, far, replace(far, devices=(33, 1)))
    assert [s.devices for s in plan.slices] == [(1, 8, 33, 40)]
