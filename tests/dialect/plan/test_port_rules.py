"""Ports, places and types of a plan break one rule at a time."""

from dataclasses import replace
from typing import Any

import pytest
from support.plans_by_hand import TOPOLOGY, group, kind, plan, port, stream

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.pieces import LeafPiece
from pathways.dialect.plan.check_places import place_problems
from pathways.dialect.plan.check_signature import port_problems, tree_problems
from pathways.dialect.plan.check_types import axes_problem, computation_problems, layout_problem, type_problem
from pathways.dialect.plan.nouns import Computation, ConstantData, Plan, PlanMesh, PlanSlice, Port
from pathways.dialect.topology import Island, Topology
from pathways.dialect.trees import LEAF, Tree

F8 = ArrayType((8,), "float32")
FLAGS = replace(kind(0, 2), type=ArrayType((2,), "bool"))
STREAM = stream("left", (kind(0, 32), FLAGS), (group("x", 0, 0), group("flags", 1)))
SLICES = (PlanSlice("s0", "left", (0, 1, 2), "r"), PlanSlice("s2", "right", (3, 2, 1, 0), "r"))
MESHES = (
    PlanMesh("m0", "s0", "left", (("x", 2),), (0, 1)),
    PlanMesh("m1", "s0", "left", (("y", 1), ("x", 2)), (2, 1)),
    PlanMesh("m2", "s2", "right", (), (3,)),
)
KNOWN = "a known element type and sizes from 0"
BASE = plan(STREAM, meshes=MESHES, slices=SLICES)


def ports(inputs: tuple[Port, ...] = (), **fields: Any) -> list[tuple[str, str]]:
    return list(port_problems(replace(BASE, inputs=inputs, **fields)))


def test_a_port_has_an_own_slot_of_its_type() -> None:
    assert ports((port("left", 0), port("left", 1), port("left", -1), port("left", -1))) == []
    assert ports((port("left", 0),), results=(port("left", 0), port("left", 0))) == []
    shared = [("several inputs or constants in [('left', 1)]", "a different slot for each")]
    assert ports((port("left", 1), port("left", 1))) == shared
    for wrong, problem in (
        (port("left", -2), ("p in slot -2", "a slot, or -1")),
        (port("left", 3), ("p in slot 3 of left", "a slot that exists")),
        (port("right", 0), ("p in slot 0 of right", "a slot that exists")),
        (port("left", 2), ("p is float32[8], its buffer bool[2]", "equal types")),
        (replace(port("left", 3), name=""), ("an array without a name in slot 3 of left", "a slot that exists")),
        (replace(port("left", -1), type=ArrayType((-1,), "float32")), ("p of type float32[-1]", KNOWN)),
    ):
        assert ports((wrong,)) == [problem]
    assert ports(results=(port("left", -1),)) == [("result p without a slot", "a slot for every result")]
    unnamed = replace(port("left", -1), name="")
    assert ports(results=(port("left", 0), unnamed)) == [("result 1 without a slot", "a slot for every result")]


def stored(dtype: str, type_: ArrayType) -> bool:
    return ports((replace(port("left", -1), dtype=dtype, type=type_),)) == []


@pytest.mark.parametrize(
    ("dtype", "type_", "fits"),
    [
        ("float32", F8, True),
        ("int32", F8, False),
        ("float0", ArrayType((3,), "bool"), True),
        ("float0", ArrayType((3,), "int8"), False),
        ("key<fry>", ArrayType((5, 2), "uint32"), True),
        ("key<fry>", ArrayType((2, 4), "uint32"), False),
        ("key<rbg>", ArrayType((4,), "uint32"), True),
        ("key<urbg>", ArrayType((3, 4), "uint32"), True),
        ("key<unsafe_rbg>", ArrayType((4,), "uint32"), True),
        ("key<threefry2x32>", ArrayType((2,), "uint32"), True),
        ("key<threefry2x32>", ArrayType((4,), "uint32"), False),
        ("key<nothing>", ArrayType((2,), "uint32"), False),
        ("key<fry>", ArrayType((2,), "int32"), False),
        ("key<fry>", ArrayType((), "uint32"), False),
        ("key<fry", ArrayType((2,), "uint32"), False),
        ("kex<fry>", ArrayType((2,), "uint32"), False),
    ],
)
def test_keys_are_stored_as_their_words(dtype: str, type_: ArrayType, fits: bool) -> None:
    assert stored(dtype, type_) is fits


def test_a_constant_has_the_bytes_of_its_buffer() -> None:
    def held(slot: int, raw: bytes | None, island: str = "left") -> list[tuple[str, str]]:
        constants = {} if raw is None else {"c": raw}
        return ports(constant_buffers=(ConstantData(island, slot, "c"),), constants=constants)

    assert held(0, bytes(32)) == [] == held(2, b"\0\1")
    assert held(0, bytes(31)) == [("constant c of the wrong size", "32 bytes")] == held(0, None)
    assert held(2, b"\0\2") == [("constant c with bytes that are not booleans", "bytes 0 and 1")]
    assert held(3, b"") == [("a constant in slot 3 of left", "a slot that exists")]
    assert held(-1, b"") == [("a constant in slot -1 of left", "a slot that exists")]
    assert held(0, bytes(32), "right") == [("a constant in slot 0 of right", "a slot that exists")]
    shared = ports((port("left", 0),), constant_buffers=(ConstantData("left", 0, "c"),), constants={"c": bytes(32)})
    assert [rule for _, rule in shared] == ["a different slot for each"]


def test_trees_have_a_leaf_for_each_array() -> None:
    def trees(**fields: Any) -> list[tuple[str, str]]:
        return list(tree_problems(replace(BASE, **({"in_tree": Tree("tuple"), "out_tree": Tree("none")} | fields))))

    assert trees() == []
    assert trees(inputs=(port("left", 0),)) == [("1 arguments in a tree of 0 leaves", "one leaf per array")]
    assert trees(out_tree=LEAF) == [("0 results in a tree of 1 leaves", "one leaf per array")]
    assert trees(in_tree=Tree("set")) == [("arguments in a tree with a set", "a pytree structure of JAX")]
    pieces = [replace(port("left", n), piece=LeafPiece("w", 0, 8 * n, 16)) for n in (0, 1)]
    assert trees(inputs=tuple(pieces), in_tree=LEAF) == []
    assert trees(inputs=tuple(pieces[:1]), in_tree=LEAF)[0][0] == "arguments with pieces of w that make up 8 of 16"
    for fields in ({"weak": True}, {"donated": True}, {"dtype": "int32"}):
        ((what, _),) = trees(inputs=(pieces[0], replace(pieces[1], **fields)), in_tree=LEAF)
        assert what == "arguments with pieces of w of different types"


COUNT, INSIDE = "a positive number of devices", "devices of slice s0, on left"


def with_island(devices: int, hosts: int = 1, **fields: Any) -> Topology:
    return Topology((*TOPOLOGY.islands, Island("z", devices, hosts, **fields)))


PLACES: list[tuple[dict[str, Any], str, str]] = [
    (
        {"topology": Topology((Island("left", 4), *TOPOLOGY.islands))},
        "islands ['left', 'left', 'right']",
        "a different name for each",
    ),
    ({"topology": with_island(0)}, "z of 1 hosts with 0 devices", COUNT),
    ({"topology": with_island(1, 0)}, "z of 0 hosts with 1 devices", COUNT),
    ({"topology": with_island(1, memory=-1)}, "z with -1 bytes a device", "bytes from 0"),
    (
        {"topology": with_island(1, flops=-1.0)},
        "z with rates (100.0, 12.5, -1.0)",
        "positive numbers",
    ),
    ({"slices": (*SLICES, PlanSlice("s", "moon", (), "r"))}, "slice s on moon", "slices on islands of the topology"),
    ({"slices": (*SLICES, PlanSlice("s", "left", (3, 3), "r"))}, "slice s on devices [3, 3]", "devices 0 to 3, once"),
    ({"slices": (*SLICES, PlanSlice("s", "left", (4,), "r"))}, "slice s on devices [4]", "devices 0 to 3, once"),
    ({"slices": (*SLICES, PlanSlice("s", "left", (-1,), "r"))}, "slice s on devices [-1]", "devices 0 to 3, once"),
    ({"meshes": (replace(MESHES[0], slice="s1"),)}, "mesh m0 of slice s1", "a slice of the plan"),
    (
        {"meshes": (replace(MESHES[0], axes=(("x", 2), ("x", 1))),)},
        "mesh m0 with an axis twice",
        "at most 64 different axes of sizes from 1",
    ),
    (
        {"meshes": (replace(MESHES[0], axes=(("x", 3),)),)},
        "mesh m0 of (('x', 3),) over devices [0, 1]",
        "one different device for each position of its axes",
    ),
    (
        {"meshes": (replace(MESHES[0], devices=(1, 1)),)},
        "mesh m0 of (('x', 2),) over devices [1, 1]",
        "one different device for each position of its axes",
    ),
    (
        {"meshes": (replace(MESHES[0], devices=(2, 3)),)},
        "mesh m0 on devices [2, 3] of left",
        "devices of slice s0, on left",
    ),
    (
        {"meshes": (replace(MESHES[0], island="right"),)},
        "mesh m0 on devices [0, 1] of right",
        "devices of slice s0, on left",
    ),
    ({"streams": (STREAM, STREAM)}, "streams for ['left', 'left']", "one stream per island of the program"),
    (
        {"streams": (replace(STREAM, island="moon"),)},
        "streams for ['moon']",
        "islands of the topology: ['left', 'right']",
    ),
]


@pytest.mark.parametrize(("fields", "what", "rule"), PLACES)
def test_a_place_that_breaks_a_rule_is_described(fields: dict[str, Any], what: str, rule: str) -> None:
    assert list(place_problems(BASE)) == []
    assert list(place_problems(replace(BASE, **fields))) == [(what, rule)]


def test_slices_have_own_names_and_devices() -> None:
    twice = list(place_problems(replace(BASE, slices=(*SLICES, replace(SLICES[0], devices=())))))
    assert twice[0] == ("two slices of one name", "a different name for each")
    ((what, rule),) = place_problems(replace(BASE, slices=(*SLICES, PlanSlice("s", "left", (3, 2, 1), "r"))))
    assert (
        what.startswith("slice s shares") and what.endswith("[1, 2] of left") and rule == "slices that share no devices"
    )


def test_many_devices_are_shown_in_part() -> None:
    wide = Topology((Island("left", 40), Island("right", 4)))
    twice = PlanSlice("s", "left", (*range(5, 21), 5), "r")
    ((what, _),) = place_problems(replace(BASE, topology=wide, slices=(*SLICES, twice)))
    assert what == f"slice s on devices {list(range(5, 21))} and 1 more"
    ((what, _),) = place_problems(replace(BASE, topology=wide, slices=(*SLICES, replace(twice, devices=(9,) * 16))))
    assert what == f"slice s on devices {[9] * 16}"


def test_types_axes_and_layouts_are_described() -> None:
    assert type_problem(F8) is None and type_problem(ArrayType((0,), "int4")) is None
    assert type_problem(ArrayType((2,), "key<fry>")) == ("of type key<fry>[2]", KNOWN)
    assert type_problem(ArrayType((2, -1), "int8")) == ("of type int8[2,-1]", KNOWN)
    assert type_problem(ArrayType((1,) * 65, "int8")) == ("with 65 dimensions", "at most 64")
    hidden = ArrayType((0, 1 << 40, 1 << 40), "int8")
    assert type_problem(hidden) == (f"of type {hidden}", f"at most {1 << 60} bytes")
    assert axes_problem(()) is None and axes_problem((("x", 2), ("x", 2))) == "with an axis twice"
    assert axes_problem((("x", 2), ("y", 0))) == "with axes (('x', 2), ('y', 0))"
    axes = (("x", 2), ("y", 3))
    for dims in (((),), (("x", "y"),), (("y",),)):
        assert layout_problem(ArrayType((6,), "int8"), dims, axes) is None
    for dims in ((), ((), ()), (("x", "x"),), (("z",),)):
        assert layout_problem(F8, dims, axes) == (f"split as {dims}", f"one entry per dimension, axes of {axes}")
    twice = (("x",), ("x",))
    assert layout_problem(ArrayType((4, 4), "int8"), twice, axes) == (
        f"split as {twice}", f"one entry per dimension, axes of {axes}",
    )  # fmt: skip
    assert layout_problem(F8, (("y",),), axes) == ("of float32[8] split as (y)", "shards of equal size")
    assert layout_problem(ArrayType((-1,), "int8"), ((),), axes) == ("of type int8[-1]", KNOWN)


def test_computations_state_their_signature_in_full() -> None:
    whole, split = ((),), (("x",),)
    good = Computation("f", b"", (0,), (F8,), (whole,), (F8,), (split,), (("x", 2),))

    def problems(*computations: Computation) -> list[tuple[str, str]]:
        made: Plan = replace(BASE, computations=computations)
        return list(computation_problems(made))

    assert problems(good, replace(good, name="g", donated=())) == []
    assert problems(good, good) == [("2 computations f", "a different name for each")] * 2
    sizes = "at most 64 different axes of sizes from 1"
    other = replace(good, axes=(("x", 0),), out_layouts=(whole,))
    assert problems(other) == [("computation f is for a mesh with axes (('x', 0),)", sizes)]
    entries = "one entry per dimension, axes of (('x', 2),)"
    rows: list[tuple[dict[str, Any], str, str]] = [
        ({"in_layouts": ()}, "computation f has 0 layouts for 1 inputs", "one layout per array"),
        ({"out_layouts": ()}, "computation f has 0 layouts for 1 outputs", "one layout per array"),
        ({"out_layouts": ((("y",),),)}, "computation f has output 0 split as (('y',),)", entries),
        ({"donated": (1,)}, "computation f donates (1,)", "inputs 0 to 0"),
        ({"donated": (-1,)}, "computation f donates (-1,)", "inputs 0 to 0"),
        ({"donated": (0, 0)}, "computation f donates (0, 0)", "each input at most once"),
    ]
    for fields, what, rule in rows:
        assert problems(replace(good, **fields)) == [(what, rule)]
