"""Plans from anywhere: whatever their structure says, they are refused with a code before anything uses them."""

import json
import re
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from branching import X, looping
from fuzz_plans import base_plans
from plan_mutations import archive, members_of, resealed
from support import pwc_here

import pathways as pw
from pathways.cli.summary import LONGEST, WIDEST, table
from pathways.dialect.codec import plan_message
from pathways.dialect.diagnostics import LARGEST_SOURCE, PathwaysError, Where
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.errors import DamagedPlan
from pathways.dialect.memory import classes_of
from pathways.dialect.parts import read_part
from pathways.dialect.plan import (
    Branch,
    BufferKind,
    Buffers,
    ConstantData,
    Copy,
    Free,
    Layout,
    Plan,
    PlanMesh,
    Recv,
    Run,
    Send,
    Stream,
)
from pathways.dialect.planfile import read_plan, write_plan
from pathways.dialect.ranges import LARGEST, MOST, RangeReader, read_ranges
from pathways.dialect.terminal import lines_of, printable
from pathways.dialect.trees import DEEPEST, LEAF, Tree, build_tree, describe_tree, read_tree, write_tree
from pathways.runtime.linearize import Joined, linearize
from pathways.runtime.open_plan import open_plan
from pathways.runtime.validate import validate


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    """A pipeline on three islands, and on one; moves and constants; devices alone; loops and branches."""
    return base_plans()


@pytest.fixture(scope="module")
def pipe(plans: list[Plan]) -> Plan:
    return plans[0]


def code_of(plan: Plan) -> str:
    """The code with which a plan is refused when it comes from a file."""
    with pytest.raises(PathwaysError) as caught:
        validate(read_plan(write_plan(plan)))
    return caught.value.code


def on(plan: Plan, at: int, **changes: Any) -> Plan:
    """The plan with fields of one stream replaced."""
    return replace(plan, streams=(*plan.streams[:at], replace(plan.streams[at], **changes), *plan.streams[at + 1 :]))


class At(NamedTuple):
    """Where an instruction is."""

    stream: int
    position: int
    instruction: Any


def every(plan: Plan, kind: type) -> list[At]:
    return [
        At(n, i, x) for n, s in enumerate(plan.streams) for i, x in enumerate(s.instructions) if isinstance(x, kind)
    ]


def changed(plan: Plan, at: At, **changes: Any) -> Plan:
    """The plan with fields of one instruction replaced."""
    before = plan.streams[at.stream].instructions
    new = replace(at.instruction, **changes)
    return on(plan, at.stream, instructions=(*before[: at.position], new, *before[at.position + 1 :]))


def ported(plan: Plan, which: str, **changes: Any) -> Plan:
    ports = getattr(plan, which)
    return replace(plan, **{which: (replace(ports[0], **changes), *ports[1:])})


def meshed(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, meshes=(replace(plan.meshes[0], **changes), *plan.meshes[1:]))


def sliced(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, slices=(replace(plan.slices[0], **changes), *plan.slices[1:]))


def island(plan: Plan, **changes: Any) -> Plan:
    islands = plan.topology.islands
    return replace(plan, topology=replace(plan.topology, islands=(replace(islands[0], **changes), *islands[1:])))


def computed(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, computations=(replace(plan.computations[0], **changes), *plan.computations[1:]))


def kinded(plan: Plan, **changes: Any) -> Plan:
    kinds = plan.streams[0].kinds
    return on(plan, 0, kinds=(replace(kinds[0], **changes), *kinds[1:]))


def two_slices_on_one_device(plan: Plan) -> Plan:
    """Of a plan on one island: the second slice, and its mesh, where the first is."""
    first, second = plan.slices[:2]
    count = len(second.devices)
    meshes = tuple(replace(m, devices=first.devices[:count]) if m.slice == second.name else m for m in plan.meshes)
    slices = (first, replace(second, devices=first.devices[:count]), *plan.slices[2:])
    return replace(plan, slices=slices, meshes=meshes)


STRUCTURES: dict[str, Callable[[Plan], Plan]] = {
    "a mesh of no slice": lambda p: meshed(p, slice="nowhere"),
    "no slices": lambda p: replace(p, slices=()),
    "a mesh beside its slice": lambda p: sliced(p, devices=tuple(d + 100 for d in p.slices[0].devices)),
    "a slice on another island": lambda p: sliced(p, island=p.slices[-1].island),
    "a slice twice": lambda p: replace(p, slices=(*p.slices, p.slices[0])),
    "a slice with a device twice": lambda p: sliced(p, devices=(*p.slices[0].devices, p.slices[0].devices[0])),
    "axes of negative sizes": lambda p: meshed(p, axes=(("a", -2), ("b", -len(p.meshes[0].devices) // 2))),
    "an axis twice": lambda p: meshed(p, axes=(*p.meshes[0].axes, (p.meshes[0].axes[0][0], 1))),
    "a hundred axes": lambda p: meshed(p, axes=(*p.meshes[0].axes, *((f"a{i}", 1) for i in range(100)))),
    "no hosts": lambda p: island(p, hosts=0),
    "memory below zero": lambda p: island(p, memory=-1),
    "a rate that is no number": lambda p: island(p, flops=float("nan")),
    "an island twice": lambda p: replace(
        p, topology=replace(p.topology, islands=(*p.topology.islands, p.topology.islands[0]))
    ),
    "a peak below zero": lambda p: on(p, 0, peak_bytes=-(10**15)),
    "a bubble that is no number": lambda p: replace(p, schedule=replace(p.schedule, bubble=float("inf"))),
    "an argument in slot -5": lambda p: ported(p, "inputs", slot=-5),
    "an argument of another type": lambda p: ported(p, "inputs", dtype="int32"),
    "an argument of no type": lambda p: ported(p, "inputs", dtype="zzz"),
    "a key that is none": lambda p: ported(p, "inputs", dtype="key<fry>"),
    "an argument that is too large": lambda p: replace(
        p,
        in_tree=Tree("tuple", (*p.in_tree.children, LEAF)),
        inputs=(*p.inputs, replace(p.inputs[0], slot=-1, type=ArrayType((1 << 40, 0, 1 << 40), "int8"), dtype="int8")),
    ),
    "a result without a slot": lambda p: ported(p, "results", slot=-1),
    "a computation twice": lambda p: replace(p, computations=(*p.computations, p.computations[0])),
    "a computation without layouts": lambda p: computed(p, in_layouts=()),
    "a computation split over no axis": lambda p: computed(
        p, in_layouts=((("nowhere",),), *p.computations[0].in_layouts[1:])
    ),
    "a computation that gives what it has not": lambda p: computed(p, donated=(99,)),
    "a run that donates otherwise": lambda p: changed(p, (at := every(p, Run)[0]), donated=other(at.instruction)),
    "temporaries below zero": lambda p: changed(p, every(p, Run)[0], temporaries=-1),
    "parts that are none": lambda p: changed(p, every(p, Run)[0], parts=("what",)),
    "a slot freed twice": lambda p: changed(p, (at := every(p, Free)[0]), slots=at.instruction.slots * 2),
    "a slot that another value had": lambda p: slot_again(p),
    "a buffer of a hundred dimensions": lambda p: kinded(p, type=ArrayType((1,) * 100, "float32")),
    "a buffer of 2**80 bytes": lambda p: kinded(p, type=ArrayType((1 << 40, 1 << 40), "int8")),
    "a buffer of no mesh": lambda p: kinded(p, layout=replace(p.streams[0].kinds[0].layout, mesh=-1)),
    "a birth before all": lambda p: on(p, 0, groups=tuple(replace(g, birth=-7) for g in p.streams[0].groups)),
    "a body elsewhere": lambda p: replace(
        p, bodies=(*p.bodies, replace(body_of(p), streams=(Stream("nowhere", 0, (), (), ()),)))
    ),
}


def other(run: Run) -> tuple[int, ...]:
    return () if run.donated else (0,)


def body_of(plan: Plan) -> Any:
    from pathways.dialect.plan import Body

    return plan.bodies[0] if plan.bodies else Body("b", (), (), (), ())


def slot_again(plan: Plan) -> Plan:
    """A slot that was freed is written again."""
    at = every(plan, Free)[0]
    slot = at.instruction.slots[0]
    before = plan.streams[at.stream].instructions
    same = next(
        i for i, b in enumerate(plan.streams[at.stream].buffers) if b.type == plan.streams[at.stream].buffers[slot].type
    )
    where = next((s for s in range(len(plan.streams[at.stream].buffers)) if s not in at.instruction.slots), same)
    copy = Copy(at.instruction.step, where, slot, None)
    return on(plan, at.stream, instructions=(*before[: at.position + 1], copy, *before[at.position + 1 :]))


@pytest.mark.parametrize("what", list(STRUCTURES))
def test_a_structure_that_does_not_hold_is_refused(pipe: Plan, what: str) -> None:
    assert code_of(STRUCTURES[what](pipe)) == "PWC0604"


def test_the_plans_themselves_are_not_refused(plans: list[Plan]) -> None:
    for plan in plans:
        validate(read_plan(write_plan(plan)))


def test_donation_that_no_module_states_is_refused(pipe: Plan, tmp_path: Path) -> None:
    """Run and computation agree; the module was compiled to keep what they give away, or the other way round."""
    number, computation = next((n, c) for n, c in enumerate(pipe.computations) if c.inputs)
    others = tuple(i for i in range(len(computation.inputs)) if i not in computation.donated)
    for donated in {(), others, (0,)} - {computation.donated}:
        computations = tuple(replace(c, donated=donated) if i == number else c for i, c in enumerate(pipe.computations))
        bad = replace(pipe, computations=computations)
        for at in every(bad, Run):
            bad = changed(bad, at, donated=donated) if at.instruction.computation == number else bad
        path = tmp_path / "plan.bin"
        path.write_bytes(write_plan(bad))
        with pytest.raises(PathwaysError, match="PWC0604"):
            open_plan(path)


def test_two_slices_on_one_device_are_refused(plans: list[Plan]) -> None:
    assert code_of(two_slices_on_one_device(plans[1])) == "PWC0604"


def test_a_channel_has_one_sender_and_one_receiver(plans: list[Plan]) -> None:
    """Two transfers that share a number: whatever their types and islands, one would get what the other sends."""
    for plan in plans[:1] + plans[2:4]:
        first, *others = sorted({s.instruction.channel for s in every(plan, Send)})
        for second in others:
            ends = [at for kind in (Send, Recv) for at in every(plan, kind) if at.instruction.channel == second]
            merged = plan
            for at in ends:
                merged = changed(merged, at, channel=first)
            assert code_of(merged) == "PWC0604"


def test_the_ends_of_a_channel_name_each_other(pipe: Plan) -> None:
    send, recv = every(pipe, Send)[0], every(pipe, Recv)[0]
    here = pipe.streams[send.stream].island
    assert code_of(changed(pipe, send, to=here)) == "PWC0604"
    assert code_of(changed(pipe, recv, source=pipe.streams[recv.stream].island)) == "PWC0604"
    assert code_of(changed(pipe, recv, channel=-7)) == "PWC0604"


def _counted(plan: Plan) -> int:
    return sum(len(i.parts) if isinstance(i, Joined) else 1 for _, i in linearize(plan))


def test_all_instructions_are_put_in_order(plans: list[Plan]) -> None:
    """What `linearize` leaves out would never run."""
    for plan in plans:
        for function in (plan, *(plan.of_body(n) for n in range(len(plan.bodies)))):
            assert _counted(function) == sum(len(s.instructions) for s in function.streams)


def test_what_shares_a_number_is_not_left_out(plans: list[Plan]) -> None:
    """Two islands that wait for one channel, and a branch that comes twice."""
    plan = plans[0]
    waiting = tuple(replace(s, instructions=(Recv(0, 5, 0, "there", None),)) for s in plan.streams[:2])
    sending = replace(plan.streams[0], island="there", instructions=(Send(0, 5, 0, "here", None),))
    for streams in ((*waiting, sending), (sending, *waiting), waiting):
        with pytest.raises(PathwaysError, match="PWC0604"):
            linearize(replace(plan, streams=streams))
    looped = plans[4]
    at = every(looped, Branch)[0]
    before = looped.streams[at.stream].instructions
    with pytest.raises(PathwaysError, match="PWC0604"):
        linearize(on(looped, at.stream, instructions=(*before, at.instruction)))


TREES: dict[str, Any] = {
    "of no kind": {"kind": "zzz", "children": []},
    "a key twice": {"kind": "dict", "children": ["leaf", "leaf"], "keys": ["a", "a"]},
    "a key too few": {"kind": "dict", "children": ["leaf", "leaf"], "keys": ["a"]},
    "keys that are lists": {"kind": "dict", "children": ["leaf"], "keys": [["a"]]},
    "a leaf with children": {"kind": "leaf", "children": ["leaf"]},
    "nothing with children": {"kind": "none", "children": ["leaf"]},
    "a list with keys": {"kind": "list", "children": ["leaf"], "keys": ["a"]},
    "not a tree": 7,
    "no children": {"kind": "list"},
    "a class that is none": {"kind": "namedtuple", "children": ["leaf"], "keys": ["a"], "class": 7},
}


@pytest.mark.parametrize("what", list(TREES))
def test_a_tree_that_no_structure_has_is_refused(pipe: Plan, what: str) -> None:
    text = json.dumps(TREES[what])
    with pytest.raises(ValueError):
        read_tree(text)
    members = members_of(write_plan(pipe))
    message = plan_message(members["plan.pb"])
    message.out_tree = text
    members["plan.pb"] = message.SerializeToString()
    with pytest.raises(PathwaysError, match="PWC0602"):
        read_plan(archive(members))


def test_trees_are_as_deep_as_can_be_walked(tmp_path: Path) -> None:
    def deep(levels: int) -> Any:
        tree: Any = 0.0
        for _ in range(levels):
            tree = (tree,)
        return tree

    assert read_tree(write_tree(describe_tree(jax.tree.structure(deep(DEEPEST))))).children
    for levels in (DEEPEST + 1, 400):
        text = '{"kind":"tuple","children":[' * levels + '"leaf"' + "]}" * levels
        with pytest.raises(ValueError, match="levels"):
            read_tree(text)
        with pytest.raises(ValueError, match="levels"):
            describe_tree(jax.tree.structure(deep(levels)))
    with pytest.raises(ValueError, match="levels"):
        read_tree("[" * 100_000)
    with pytest.raises(PathwaysError, match="PWC0104"):
        pw.program(lambda x: deep(DEEPEST + 1)).lower(np.float32(1))
    deepest = pw.program(lambda x: (x, deep(DEEPEST - 1))).lower(np.float32(1)).compile()
    deepest.save(tmp_path / "deep.bin")
    loaded = pw.load(tmp_path / "deep.bin")
    assert len(jax.tree.leaves(loaded(np.float32(1)))) == 2
    for command in (("inspect", "--json"), ("inspect",), ("check",), ("run",)):
        code, _, err = pwc_here(command[0], str(tmp_path / "deep.bin"), *command[1:])
        assert code == 0, err


class Pair(NamedTuple):
    a: Any
    b: Any


class Watched(Pair):
    """A tuple whose making does something."""

    made = 0

    def __new__(cls, a: Any, b: Any) -> "Watched":
        cls.made += 1
        return super().__new__(cls, a, b)


def test_a_tree_runs_no_code_of_the_classes_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Tree("namedtuple", (LEAF, LEAF), ("a", "b"), f"{__name__}:Watched")
    built = build_tree(watched, [1, 2])
    assert type(built) is Watched and built == (1, 2) and Watched.made == 0
    lazy = type(sys)("lazily")
    loaded: list[str] = []
    lazy.__getattr__ = loaded.append  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "lazily", lazy)
    assert build_tree(replace(watched, cls="lazily:Thing"), [1, 2]) == {"a": 1, "b": 2} and not loaded
    for cls in ("os:system", "subprocess:Popen", "", ":", "sys:path.append", "builtins:tuple"):
        assert build_tree(replace(watched, cls=cls), [1, 2]) == {"a": 1, "b": 2}


def _overlapping(count: int) -> bytes:
    """An archive in which the data of each member are all members behind it."""
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


def test_members_lie_beside_each_other() -> None:
    with pytest.raises(PathwaysError, match=r"PWC0602[\s\S]*lies over another member"):
        read_plan(_overlapping(300))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_members_have_names_of_their_own(pipe: Plan) -> None:
    members = members_of(write_plan(pipe))
    assert read_plan(archive(members)) == read_plan(write_plan(pipe))
    for name in ("plan.pb", f"computations/{pipe.computations[0].name}.vhlo"):
        with pytest.raises(PathwaysError, match=r"PWC0602[\s\S]*two members have one name"):
            read_plan(archive(members, twice=(name,)))


def test_a_member_that_was_changed_and_sealed_again_is_refused(pipe: Plan) -> None:
    """Its digest is in the manifest; the checksum of zip is made right, too."""
    raw = write_plan(pipe)
    name = f"computations/{pipe.computations[0].name}.vhlo"
    data = members_of(raw)[name]
    forged = bytes([*data[:-1], data[-1] ^ 1])
    old, new = (struct.pack("<I", zlib.crc32(d)) for d in (data, forged))
    assert raw.count(data) == 1
    with pytest.raises(PathwaysError, match=r"PWC0602[\s\S]*does not match its digest"):
        read_plan(resealed(raw.replace(data, forged).replace(old, new)))


def test_devices_are_bounded_over_the_whole_plan(plans: list[Plan]) -> None:
    whole = f"0:{LARGEST}"
    assert len(read_ranges(whole)) == LARGEST
    for bad in (f"0:{LARGEST + 1}", "0:5,-3", "1_0", " 5", "a", "5:", "99999999", "0:1:2", "٣"):
        with pytest.raises(ValueError):
            read_ranges(bad)
    reader = RangeReader()
    half = [reader.read(text) for text in (f"0:{MOST // 2}", f"0:7,7:{MOST // 2}")]
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
    """The plan with two more islands, all of whose devices are in one mesh each."""
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


def _everyone_to_everyone(plan: Plan, devices: int) -> Plan:
    """A constant that is split over all devices of one island, and sent to each of another as a whole."""
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
    "pieces": lambda p: _everyone_to_everyone(p, 4096),
    "owners": _many_owners,
    "names": _many_names,
    "bodies": _many_bodies,
}


@pytest.mark.parametrize("what", list(PRODUCTS))
def test_what_small_files_multiply_is_bounded(pipe: Plan, what: str) -> None:
    assert code_of(PRODUCTS[what](pipe)) == "PWC0613"


def test_a_large_transfer_is_no_sin(pipe: Plan) -> None:
    """The bound is for products, not for large machines: a thousand devices to a thousand."""
    validate(_everyone_to_everyone(pipe, 1024))


def test_bodies_of_one_branch_are_bounded(plans: list[Plan]) -> None:
    plan = plans[4]
    at = next(b for b in every(plan, Branch) if b.instruction.kind == "cond")
    assert code_of(changed(plan, at, bodies=at.instruction.bodies * 5000)) == "PWC0613"


def test_devices_of_the_same_meshes_are_counted_once() -> None:
    def mesh(name: str, island: str, devices: range) -> PlanMesh:
        return PlanMesh(name, name, island, (("x", len(devices)),), tuple(devices))

    meshes = [mesh("a", "i", range(100_000)), mesh("b", "i", range(50_000, 100_000)), mesh("c", "j", range(10))]
    classes = classes_of(meshes)
    assert [len(c) for c in classes] == [2, 1, 1]
    assert sorted(d for c in classes[0] for d in c) == list(range(100_000))


EVIL = "\x1b[31mred\x9b\u202e\u2028\x07\x00"


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _strings(item)
    elif hasattr(value, "__dataclass_fields__") and not isinstance(value, Tree):
        for name in value.__dataclass_fields__:
            yield from _strings(getattr(value, name))


def _poisoned(message: Any) -> None:
    """Puts what a terminal obeys behind every text of a message, but for trees."""
    for field, content in message.ListFields():
        if field.message_type is not None:
            for item in content if field.is_repeated else (content,):
                _poisoned(item)
        elif field.type == field.TYPE_STRING and field.name not in ("in_tree", "out_tree", "member"):
            if field.name == "devices" or (message.DESCRIPTOR.name == "Computation" and field.name == "name"):
                continue  # no text, and the name of a member
            if field.is_repeated:
                content[:] = [item + EVIL for item in content]
            else:
                setattr(message, field.name, content + EVIL)


@pytest.mark.parametrize("number", range(5))
def test_no_text_of_a_plan_reaches_a_terminal_as_it_is(plans: list[Plan], tmp_path: Path, number: int) -> None:
    """Every text of a plan at once: names, files, islands, reasons."""
    members = members_of(write_plan(plans[number]))
    message = plan_message(members["plan.pb"])
    _poisoned(message)
    for stream in (*message.streams, *(s for b in message.bodies for s in b.streams)):
        for kind in stream.kinds:
            kind.type.dtype = kind.type.dtype.removesuffix(EVIL)
        for i in stream.instructions:
            i.branch.kind = i.branch.kind.removesuffix(EVIL) if i.HasField("branch") else ""
            if not i.branch.kind:
                i.ClearField("branch") if not i.HasField("branch") else None
    members["plan.pb"] = message.SerializeToString()
    path = tmp_path / "evil.bin"
    path.write_bytes(archive(members))
    plan = read_plan(path.read_bytes())
    assert any("\\x1b[31mred\\x9b\\u202e\\u2028\\x07\\x00" in text for text in _strings(plan))
    assert all(text.isprintable() for text in _strings(plan))
    for command in (
        ("inspect",),
        ("inspect", "--memory"),
        ("inspect", "--json"),
        ("why",),
        ("diff",),
        ("check",),
        ("run",),
    ):
        given = (str(path),) * (2 if command[0] == "diff" else 1)
        _, out, err = pwc_here(command[0], *given, *command[1:])
        assert all(c.isprintable() or c == "\n" for c in out + err), command


def test_dumps_and_errors_are_shown_as_they_can_be(pipe: Plan, tmp_path: Path) -> None:
    path = tmp_path / "plan.bin"
    path.write_bytes(
        write_plan(replace(pipe, phases={"06.plan.mlir": f"// {EVIL}\tx\n\xff".encode("latin-1", "replace")}))
    )
    code, out, _ = pwc_here("inspect", str(path), "--ir", "plan")
    assert code == 0 and "\\x1b[31m" in out and "\x1b" not in out and "\t" in out
    error = PathwaysError(DamagedPlan(path=f"a{EVIL}\nb", problem=f"c{EVIL}\nd", where=Where(f"e{EVIL}\n.py", 3)))
    title, place, *rest = str(error).splitlines()
    assert title.endswith(f"{printable(EVIL)}\\nb is damaged") and place.endswith("\\n.py:3")
    assert rest[1].strip() == "d" and all(line.isprintable() for line in str(error).splitlines())
    manifest = {"format": 99, "kind": "pathways plan", "writer": {EVIL: EVIL}}
    with pytest.raises(PathwaysError, match="PWC0603") as caught:
        read_plan(archive(members_of(write_plan(pipe)) | {"manifest.json": json.dumps(manifest).encode()}))
    assert "\x1b" not in str(caught.value)


def test_what_a_terminal_obeys_is_escaped() -> None:
    assert printable("Größe ≤ 3 → ✓") == "Größe ≤ 3 → ✓"
    assert printable("a\tb\nc\x7f\x85") == "a\\tb\\nc\\x7f\\x85" and lines_of("a\tb\nc\r") == "a\tb\nc\\r"


def test_only_files_are_read_for_a_line(tmp_path: Path) -> None:
    """A plan names the file of each line: a pipe or a device would never end."""
    import os

    pipe, large, source = tmp_path / "pipe.py", tmp_path / "large.py", tmp_path / "source.py"
    os.mkfifo(pipe)
    source.write_text("first\nsecond\n")
    with large.open("wb") as made:
        made.truncate(LARGEST_SOURCE + 1)
    for file in (pipe, large, tmp_path, Path("/dev/zero"), "a\0b"):
        assert Where(str(file), 1).source() == ""
    assert Where(str(source), 2).source() == "second"


def test_tables_are_not_wider_than_what_they_hold() -> None:
    rows = [["x" * 10_000, "b"], *(["a", "b"] for _ in range(100))]
    lines = table(rows).splitlines()
    assert max(map(len, lines[1:])) == WIDEST + 3 and len(lines[0]) < LONGEST + 20 and "..." in lines[0]


def test_parts_are_read_in_one_go() -> None:
    for text in ("- a " + ":1" * 100_000 + " x y", "- a :" + "1" * 100_000 + " x y", "x" * 100_000):
        with pytest.raises(ValueError):
            read_part(text)


def test_a_constant_of_booleans_has_no_others(plans: list[Plan]) -> None:
    program = pw.program(lambda x: x & np.array([True, False, True]))
    plan = program.lower(np.ones(3, bool)).compile().plan
    (held,) = plan.constant_buffers
    assert code_of(replace(plan, constants={held.member: b"\0\1\2"})) == "PWC0604"


def test_shown_is_what_would_run(pipe: Plan, tmp_path: Path) -> None:
    """Whoever opens a plan opens it through one door: run, inspect, diff, why and check refuse it alike."""
    path, good = tmp_path / "bad.bin", tmp_path / "good.bin"
    path.write_bytes(write_plan(meshed(pipe, slice="nowhere")))
    good.write_bytes(write_plan(pipe))
    for command in (("run",), ("inspect",), ("why",), ("check",), ("check", "--topology", "islands=9,devices=9")):
        code, _, err = pwc_here(command[0], str(path), *command[1:])
        assert code == 3 and "PWC0604" in err, command
    assert "PWC0604" in pwc_here("diff", str(good), str(path))[2]
    for opened in (open_plan, pw.load):
        with pytest.raises(PathwaysError, match="PWC0604"):
            opened(path)


def test_what_xla_refuses_names_its_computation(tmp_path: Path) -> None:
    """A module that is right by all rules of its dialects, and none that XLA takes."""
    from pathways.dialect.mlir import bytecode, from_portable, make_context, parse, portable, pretty

    plan = pw.program(jax.jit(lambda x: x * 2)).lower(np.ones((4, 4), np.float32)).compile().plan
    text = pretty(from_portable(plan.computations[0].module))
    call = "stablehlo.custom_call @no_such_target(%arg0) : (tensor<4x4xf32>) -> tensor<4x4xf32>"
    argument = re.search(r"@main\((%\w+):", text)
    assert argument is not None
    body = re.sub(r"stablehlo\.multiply .*", call.replace("%arg0", argument[1]), text)
    assert body != text
    module = portable(bytecode(parse(body, make_context()).operation))
    path = tmp_path / "plan.bin"
    path.write_bytes(write_plan(computed(plan, module=module, local=b"")))
    code, _, err = pwc_here("run", str(path))
    assert code == 3 and "Traceback" not in err and next(plan.runs()).name in err


def test_random_data_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    plan = pw.program(lambda x, y: x * 2).lower(np.ones(3, np.float32), np.ones(3, np.float32)).compile().plan
    unused = next(i for i, p in enumerate(plan.inputs) if p.slot < 0)
    huge = replace(plan.inputs[unused], type=ArrayType((10**13,), "float32"))
    path = tmp_path / "plan.bin"
    path.write_bytes(write_plan(replace(plan, inputs=(*plan.inputs[:unused], huge, *plan.inputs[unused + 1 :]))))
    assert pwc_here("run", str(path))[0] == 0


def test_looping_plans_pass() -> None:
    validate(looping().lower(X, np.int32(1)).compile().plan)
