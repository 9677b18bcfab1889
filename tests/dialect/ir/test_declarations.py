"""Declarations of ops give views, verification, the reference page and the schema of plan.bin.

Trees and device ranges are read back from their text.
"""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.compiler.driver import Compilation
from pathways.compiler.passes.base import Session
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.ir import reference
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.pw import CallOp, IslandOp, SliceOp
from pathways.dialect.ir.verify import verify
from pathways.dialect.mlir import ir, location, make_context, name_of, parse, text, where_of
from pathways.dialect.phases import Phase
from pathways.dialect.plan import codec
from pathways.dialect.ranges import LARGEST_RANGE, read_ranges, write_ranges
from pathways.dialect.sdy import Placed
from pathways.dialect.topology import parse_topology
from pathways.dialect.trees import build_tree, describe_tree, read_tree, write_tree


def test_reference_page_is_current(root: Path) -> None:
    assert (root / "docs" / "dialect.md").read_text() == reference.page(), "make reference"


def test_schema_is_current(root: Path, tmp_path: Path) -> None:
    from grpc_tools import protoc  # pyright: ignore

    out = tmp_path / "plan.binpb"
    folder = str(root / "dialect" / "plan")
    assert protoc.main(["protoc", f"-I{folder}", f"--descriptor_set_out={out}", "plan.proto"]) == 0  # pyright: ignore
    assert out.read_bytes() == (root / "dialect" / "plan" / "plan.binpb").read_bytes(), "make proto"


def test_schema_has_the_fields_of_the_dataclasses() -> None:
    schema: Any = codec.schema()
    for name, message in schema.items():
        if name in codec.CLASSES:
            declared = {f.name for f in fields(codec.CLASSES[name])} - codec.OUTSIDE - codec.NOT_STORED
            assert declared == {f.name for f in message.fields}, name


def test_views_read_the_attributes_that_builders_wrote() -> None:
    context = make_context()
    with context, ir.Location.unknown(context):
        module = ir.Module.create()
        loc = location(Where('a "b"/ü.py', 7, "f"), "h[0]", context)
        ip = ir.InsertionPoint(module.body)
        SliceOp.create(ip=ip, loc=loc, sym_name="s0", devices=4, shape=(2, 2))
        kind = ir.RankedTensorType.get([4], ir.F32Type.get())
        shardings = (Placed("m0", (("x", "y"),)),)
        CallOp.create(ip=ip, loc=loc, results=[kind], callee="f", mesh="m0", gathered=True, out_shardings=shardings)
    again = parse(text(module), make_context())
    assert text(again) == text(module)
    first, second = again.body.operations
    assert isinstance(first, SliceOp) and isinstance(second, CallOp)
    assert (first.sym_name, first.devices, first.shape, first.kind) == ("s0", 4, (2, 2), None)
    assert (second.callee, second.gathered, second.out_shardings, second.step) == ("f", True, shardings, None)
    assert where_of(second.operation) == Where('a "b"/ü.py', 7, "f") and name_of(second.operation) == "h[0]"
    second.step = 1
    second.step = None
    assert second.problems() == [] and "step" not in str(second)


def test_declarations_report_missing_mistyped_and_unknown_attributes() -> None:
    source = '"pw.island"() {name = "a", hosts = "two", color = 1 : i64} : () -> ()'
    (op,) = parse(source, make_context()).body.operations
    assert isinstance(op, IslandOp)
    problems = " ".join(op.problems())
    assert "lacks the attribute devices" in problems and "hosts" in problems and "unknown attribute color" in problems


@pytest.mark.parametrize("source", ["nonsense", "module {", '"pw.call"() : () -> ()\n"x"'])
def test_text_that_is_not_ir_is_refused(source: str) -> None:
    with pytest.raises(PathwaysError) as caught:
        parse(source, make_context())
    assert caught.value.code == "PWC0702"


def test_trees_are_read_back_from_text() -> None:
    value = {"a": [1, (2, None)], "b": {}, "c": ()}
    tree = describe_tree(jax.tree.structure(value))
    assert read_tree(write_tree(tree)) == tree
    assert build_tree(tree, [1, 2]) == value


def test_mesh_refuses_a_shape_that_does_not_match_the_slice() -> None:
    slice_ = pw.make_virtual_device_set().add_slice(devices=4, topology=(2, 2))
    assert slice_.mesh(("x", "y")).shape == {"x": 2, "y": 2}
    with pytest.raises(PathwaysError) as caught:
        slice_.mesh(("x", "y"), (3, 2))
    assert caught.value.code == "PWC0201" and "(3 x 2) = 6" in str(caught.value)


@given(st.lists(st.integers(0, 40)))
def test_devices_are_written_as_ranges(devices: list[int]) -> None:
    assert read_ranges(write_ranges(devices)) == tuple(devices)
    assert write_ranges(range(5, 2048)) == "5:2048" and write_ranges(()) == "" and write_ranges((3, 1, 2)) == "3,1:3"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "'a' is not a range of devices"),
        ("1:", "'1:' is not a range of devices"),
        (":2", "':2' is not a range of devices"),
        ("1,,2", "'' is not a range of devices"),
        ("1 2x", "'1 2x' is not a range of devices"),
        ("-1", "'-1' is not a range of devices"),
        (f"0:{LARGEST_RANGE + 1}", f"more than {LARGEST_RANGE} devices"),
        (f"0:{LARGEST_RANGE},0", f"more than {LARGEST_RANGE} devices"),
    ],
)
def test_damaged_ranges_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read_ranges(text)


def test_the_longest_range_is_read() -> None:
    assert len(read_ranges(f"0:{LARGEST_RANGE - 1},7")) == LARGEST_RANGE


def test_two_slices_on_one_device_are_refused() -> None:
    pair = pw.make_virtual_device_set()
    first, second = (NamedSharding(pair.add_slice(devices=2).mesh("x"), P("x")) for _ in range(2))
    jit: Any = jax.jit
    double, less = jit(lambda x: 2 * x, in_shardings=first), jit(lambda x: x - 1, in_shardings=second)
    lowered = pw.program(lambda x: less(double(x))).lower(jnp.ones(4))
    plan = lowered.compile("islands=1,devices=4")
    assert {s.devices for s in plan.plan.slices} == {(0, 1), (2, 3)}
    dump = parse(lowered.as_text("trace", debug_info=True), make_context())
    compilation = Compilation(ProgramIR(dump), lowered.constants, Session(parse_topology("islands=1,devices=4")))
    compilation.advance(Phase.PLACE)
    verify(compilation.program)
    for op in compilation.program.slices.values():
        op.device_ids = (0, 1)
    with pytest.raises(PathwaysError, match=r"PWC0701[\s\S]*shares device 0 of island0 with"):
        verify(compilation.program)
