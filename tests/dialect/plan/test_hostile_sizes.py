"""Small files may not expand to huge archives, device lists, or products of the contents of a plan."""

import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.plan_edits import body_of, changed, code_of, every, on
from support.plan_mutations import archive, members_of
from support.processes import pwc_here

import pathways as pw
from pathways.api.summary import LONGEST, WIDEST, table
from pathways.dialect.call_labels import read_part
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.check import validate
from pathways.dialect.plan.codec import plan_message
from pathways.dialect.plan.instructions import Branch, Free, Recv, Send
from pathways.dialect.plan.limits import check_memory_shown
from pathways.dialect.plan.memory import classes_of
from pathways.dialect.plan.nouns import BufferKind, Buffers, ConstantData, Layout, Plan, PlanMesh, Stream
from pathways.dialect.plan.plan_file import read_plan, write_plan
from pathways.dialect.ranges import LARGEST_RANGE, MAX_DEVICES_NAMED, RangeReader, read_ranges


def _overlapping(count: int) -> bytes:
    """Returns an archive in which the data of each member contains all later members."""
    names = [b"executables/%06d" % i for i in range(count)]
    data, listed = b"", b""
    headers: list[tuple[bytes, int, int]] = []
    for name in reversed(names):
        crc, size = zlib.crc32(data), len(data)
        data = struct.pack("<IHHHHHIIIHH", 0x04034B50, 20, 0, 0, 0, 0x21, crc, size, size, len(name), 0) + name + data
        headers.append((name, crc, size))
    for at, (name, crc, size) in enumerate(reversed(headers)):
        listed += struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 20, 20, 0, 0, 0, 0x21, crc, size, size, len(name), 0, 0,
                              0, 0, 0, at * (30 + len(name))) + name  # fmt: skip
    return data + listed + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, count, count, len(listed), len(data), 0)


def test_overlapping_members_are_refused() -> None:
    with pytest.raises(PathwaysError, match=r"PWC0602[\s\S]*overlaps another member"):
        read_plan(_overlapping(300))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_members_with_equal_names_are_refused(pipe: Plan) -> None:
    members = members_of(write_plan(pipe))
    assert read_plan(archive(members)) == read_plan(write_plan(pipe))
    for name in ("plan.pb", f"computations/{pipe.computations[0].name}.vhlo"):
        with pytest.raises(PathwaysError, match=r"PWC0602[\s\S]*two members have one name"):
            read_plan(archive(members, twice=(name,)))


def test_the_number_of_devices_named_in_a_plan_is_limited(plans: list[Plan]) -> None:
    whole = f"0:{LARGEST_RANGE}"
    assert len(read_ranges(whole)) == LARGEST_RANGE
    for bad in (f"0:{LARGEST_RANGE + 1}", "0:5,-3", "1_0", " 5", "a", "5:", "99999999", "0:1:2", "٣"):
        with pytest.raises(ValueError):
            read_ranges(bad)
    reader = RangeReader()
    half = [reader.read(text) for text in (f"0:{MAX_DEVICES_NAMED // 2}", f"0:7,7:{MAX_DEVICES_NAMED // 2}")]
    assert half[0] is half[1]
    with pytest.raises(ValueError, match="in all"):
        reader.read("0")
    members = members_of(write_plan(plans[0]))
    message = plan_message(members["plan.pb"])
    for number in range(300):
        message.meshes.add(name=f"m{number}", slice="s0", island="island0", devices=whole)
    members["plan.pb"] = message.SerializeToString()
    with pytest.raises(PathwaysError, match=r"PWC0602[\s\S]*in all"):
        read_plan(archive(members))


def _large(plan: Plan, devices: int) -> Plan:
    """Adds two islands to a plan. All devices of each island are in one mesh."""
    islands = tuple(replace(plan.topology.islands[0], name=f"large{i}", devices=devices, hosts=1) for i in (0, 1))
    everywhere = tuple(range(devices))
    slices = tuple(replace(plan.slices[0], name=f"l{i}", island=f"large{i}", devices=everywhere) for i in (0, 1))
    meshes = tuple(PlanMesh(f"ml{i}", f"l{i}", f"large{i}", (("x", devices),), everywhere) for i in (0, 1))
    return replace(
        plan,
        topology=replace(plan.topology, islands=(*plan.topology.islands, *islands)),
        slices=(*plan.slices, *slices),
        meshes=(*plan.meshes, *meshes),
    )


def _all_to_all(plan: Plan, devices: int) -> Plan:
    """Adds a constant that is split over all devices of one island and sent whole to each device of another."""
    plan, count = _large(plan, devices), len(plan.meshes)
    type_ = ArrayType((devices,), "int8")
    split, whole = Layout(count, (("x",),)), Layout(count + 1, ((),))
    streams: list[Stream] = []
    for i, (layout, size) in enumerate(((split, 1), (whole, devices))):
        group = Buffers("c", "constant", "c", (0,), -1, (-1,))
        move: Any = Send(0, 999, 0, "large1", None) if i == 0 else Recv(0, 999, 0, "large0", None)
        streams.append(Stream(f"large{i}", size, (BufferKind(type_, layout, size),), (group,), (move,)))
    held = ConstantData("large0", 0, "c")
    return replace(
        plan,
        streams=(*plan.streams, *streams),
        constant_buffers=(*plan.constant_buffers, held),
        constants={**plan.constants, "c": bytes(devices)},
    )


def _many_owners(plan: Plan) -> Plan:
    group = plan.streams[0].groups[0]
    owners = tuple(replace(group, owner=f"owner{i}") for i in range(5000))
    frees = tuple(Free(0, ()) for _ in range(5000))
    return on(plan, 0, groups=(*plan.streams[0].groups, *owners), instructions=(*plan.streams[0].instructions, *frees))


def _many_names(plan: Plan) -> Plan:
    group = replace(plan.streams[0].groups[0], name="x" * 10_000, kinds=(0,) * 10_000, deaths=(-1,) * 10_000)
    return on(plan, 0, groups=(*plan.streams[0].groups, group))


def _many_bodies(plan: Plan) -> Plan:
    return replace(plan, bodies=(*plan.bodies, *(replace(body_of(plan), streams=()) for _ in range(5000))))


PRODUCTS: dict[str, Callable[[Plan], Plan]] = {
    "pieces": lambda p: _all_to_all(p, 4096),
    "names": _many_names,
    "bodies": _many_bodies,
}


@pytest.mark.parametrize("case", list(PRODUCTS))
def test_plans_that_multiply_small_contents_are_refused(pipe: Plan, case: str) -> None:
    assert code_of(PRODUCTS[case](pipe)) == "PWC0613"


def test_memory_of_too_many_owners_is_not_listed(pipe: Plan) -> None:
    """A plan may have any number of owners and steps. Only the list of all of them is limited."""
    plan = _many_owners(pipe)
    check_memory_shown(pipe, "plan")
    with pytest.raises(PathwaysError) as caught:
        check_memory_shown(plan, "plan")
    assert caught.value.code == "PWC0613"


def test_a_transfer_from_1024_to_1024_devices_is_accepted(pipe: Plan) -> None:
    """The limit applies to products of contents, not to large machines."""
    validate(_all_to_all(pipe, 1024))


def test_a_branch_with_too_many_bodies_is_refused(plans: list[Plan]) -> None:
    plan = plans[4]
    at = next(b for b in every(plan, Branch) if b.instruction.kind == "cond")
    assert code_of(changed(plan, at, bodies=at.instruction.bodies * 5000)) == "PWC0613"


def test_devices_are_grouped_by_the_meshes_that_contain_them() -> None:
    def mesh(name: str, island: str, devices: range) -> PlanMesh:
        return PlanMesh(name, name, island, (("x", len(devices)),), tuple(devices))

    meshes = [mesh("a", "i", range(100_000)), mesh("b", "i", range(50_000, 100_000)), mesh("c", "j", range(10))]
    classes = classes_of(meshes)
    assert [len(c) for c in classes] == [2, 1, 1]
    assert sorted(d for c in classes[0] for d in c) == list(range(100_000))


def test_a_long_cell_is_cut_and_does_not_widen_other_rows() -> None:
    rows = [["x" * 10_000, "b"], *(["a", "b"] for _ in range(100))]
    lines = table(rows).splitlines()
    assert max(map(len, lines[1:])) == WIDEST + 3 and len(lines[0]) < LONGEST + 20 and "..." in lines[0]


def test_long_malformed_call_labels_are_refused() -> None:
    """A pattern that backtracks would need quadratic or exponential time for these labels."""
    for text in ("- a " + ":1" * 100_000 + " x y", "- a :" + "1" * 100_000 + " x y", "x" * 100_000):
        with pytest.raises(ValueError):
            read_part(text)


def test_run_makes_no_random_data_for_an_unused_argument(tmp_path: Path) -> None:
    plan = pw.program(lambda x, y: x * 2).lower(np.ones(3, np.float32), np.ones(3, np.float32)).compile().plan
    unused = next(i for i, p in enumerate(plan.inputs) if p.slot < 0)
    huge = replace(plan.inputs[unused], type=ArrayType((10**13,), "float32"))
    path = tmp_path / "plan.bin"
    path.write_bytes(write_plan(replace(plan, inputs=(*plan.inputs[:unused], huge, *plan.inputs[unused + 1 :]))))
    assert pwc_here("run", str(path))[0] == 0
