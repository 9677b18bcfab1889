"""Tests the two forms of a function, records and ops: each sees the changes of the other. Wrong records are refused."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.small_modules import STRAIGHT

from pathways.compiler.frontends.builder import FunctionBuilder, ProgramBuilder, SliceSpec
from pathways.compiler.passes.order_calls import number_nodes
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.ir import pw
from pathways.dialect.ir.arguments import Argument
from pathways.dialect.ir.flow import Flow, renumbered
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.records import CallRecord, TransferRecord, are_sound
from pathways.dialect.ir.verify import verify
from pathways.dialect.mlir import ir, make_context, parse_text, text
from pathways.dialect.sharding import MeshSpec

VECTOR = ArrayType((8,), "float32")


def read() -> ProgramIR:
    """Reads a program of three nodes, a call, a transfer and a call, as records."""
    program = ProgramIR(parse_text(STRAIGHT, "small"))
    assert len(program.flow) == 3 and not program.has_ops
    return program


def test_records_are_of_the_classes_of_their_ops() -> None:
    first, second, _ = (node.op for node in read().flow)
    assert isinstance(first, pw.CallOp) and isinstance(first, CallRecord) and type(first) is CallRecord
    assert (
        isinstance(second, pw.TransferOp) and isinstance(second, TransferRecord) and not isinstance(second, pw.CallOp)
    )
    assert first.values()["callee"] == "double" and first.gathered is None


def test_an_op_and_its_record_see_the_changes_of_each_other() -> None:
    program = read()
    record = program.flow.nodes[0].op
    record.action = "1F0"
    operation = record.operation
    assert program.has_ops and operation.attributes["action"].value == "1F0" and type(record) is not CallRecord
    assert isinstance(record, CallRecord) and isinstance(record, pw.CallOp)
    record.action = "2F0"
    assert operation.attributes["action"].value == "2F0"
    with program.context:
        operation.attributes["action"] = ir.StringAttr.get("3F0")
    assert record.action == "3F0" and 'action = "3F0"' in text(program.module)


def test_changes_of_the_module_are_read_after_it_is_taken_back() -> None:
    program = read()
    calls = [op for op in program.module.body.operations if op.operation.name == "func.func"]
    first = calls[0].regions[0].blocks[0].operations[0]
    first.step = 7
    assert program.flow.nodes[0].op.step == 7  # linked
    program.take_back()
    assert program.flow.nodes[0].op.step == 7 and not program.has_ops
    program.flow.nodes[0].op.step = 9
    assert first.step == 7 and "step = 9" in text(program.read_module())


def test_a_pass_that_edits_the_module_sees_its_edits_after_it_says_so() -> None:
    program = read()
    (function,) = [op for op in program.module.body.operations if op.operation.name == "func.func"]
    operations = function.regions[0].blocks[0].operations
    call, moved = operations[2].operation, operations[1].operation
    call.results[0].replace_all_uses_with(moved.results[0])
    call.erase()
    program.changed()
    assert [node.op.OPERATION_NAME for node in program.flow] == ["pw.call", "pw.transfer"]
    assert program.flow.returned == (program.flow.nodes[1].results[0],)
    program.flow.nodes[1].op.reason = "of a test"  # still linked: the pass has the module
    assert moved.attributes["reason"].value == "of a test"


def test_a_new_order_of_linked_records_moves_their_ops() -> None:
    program = read()
    flow = program.flow
    moved = CallRecord(flow.nodes[0].op.location, callee="double", mesh="m0")
    types = [*flow.types, VECTOR]
    nodes = [*flow.nodes, replace_node(flow, moved)]
    program.flow = Flow(program, types, nodes, flow.returned)
    program.link()
    number_nodes(program, [3, 0, 1, 2])
    (function,) = [op for op in program.module.body.operations if op.operation.name == "func.func"]
    *operations, _ = function.regions[0].blocks[0].operations
    assert [op.step for op in operations] == [0, 1, 2, 3] and program.flow.nodes[0].op.operation == operations[
        0
    ].operation


def replace_node(flow: Flow, op: CallRecord) -> Any:
    """Returns the node of a call that takes the first argument, behind all others."""
    last = flow.nodes[-1]
    return replace(last, number=3, op=op, callee="double", mesh="m0", operands=(0,), results=range(6, 7))


def test_an_order_without_a_node_is_refused() -> None:
    for order in ([0, 1], [0, 1, 1], [0, 1, 3]):
        with pytest.raises(ValueError, match="exactly once"):
            number_nodes(read(), order)


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_copy_shares_nothing(is_linked: bool) -> None:
    program = read()
    before = text(program.read_module())
    if is_linked:
        program.link()
    other = program.copy()
    other.flow.nodes[0].op.action = "7F0"
    other.arguments = [replace(a, name=f"{a.name}2") for a in other.arguments]
    assert text(program.read_module()) == before != text(other.read_module())


def _set(name: str, value: Any) -> Callable[[ProgramIR], None]:
    return lambda program: setattr(program.flow.nodes[0].op, name, value)


def _take_later(program: ProgramIR) -> None:
    program.flow.nodes[0].operands = (program.flow.nodes[2].results[0],)


def _take_two(program: ProgramIR) -> None:
    program.flow.nodes[1].operands = (0, program.flow.nodes[0].results[0])


def _with(returned: tuple[int, ...] | None = None, nodes: slice = slice(None)) -> Callable[[ProgramIR], None]:
    """Returns a change of the program's flow: other returned values, or other nodes."""

    def change(program: ProgramIR) -> None:
        flow = program.flow
        program.flow = Flow(program, flow.types, flow.nodes[nodes], flow.returned if returned is None else returned)

    return change


def _drop_argument(program: ProgramIR) -> None:
    program.arguments = program.arguments[:-1]


@pytest.mark.parametrize(
    ("breaks", "problem"),
    [
        (_set("action", 3), "has action = 3, which is not of kind string"),
        (_set("step", "3"), "has step = '3', which is not of kind integer"),
        (_set("step", True), "has step = True, which is not of kind integer"),
        (_set("gathered", "yes"), "has gathered = 'yes', which is not of kind unit"),
        (_set("in_shardings", ("x",)), "which is not of kind shardings"),
        (_set("made_by", ["1"]), "has made_by = ('1',), which is not of kind integers"),
        (_set("step", 1 << 63), "which is not of kind integer"),
        (_set("callee", None), "lacks the attribute callee"),
        (_take_later, "takes a value that is not made before it"),
        (_take_two, "has 2 operands in place of 1"),
        (_drop_argument, "states 2 arguments"),
        (_with(returned=(99,)), "returns a value that it lacks"),
        (_with(returned=(-1,)), "returns a value that it lacks"),
        (_with(returned=()), "returns 0 values"),
        (_with(nodes=slice(None, None, -1)), "has nodes with wrong numbers"),
        (_with(nodes=slice(1)), "has results with wrong numbers"),
    ],
)
def test_a_wrong_record_is_refused(breaks: Callable[[ProgramIR], None], problem: str) -> None:
    program = read()
    breaks(program)
    with pytest.raises(PathwaysError) as caught:
        verify(program)
    assert caught.value.code == "PWC0701" and problem in str(caught.value)


def test_a_value_of_another_function_is_refused_at_the_line_that_takes_it() -> None:
    builder = ProgramBuilder("model", "cpu", where=Where("model.ir", 1))
    mesh = builder.mesh(SliceSpec(0, 1), MeshSpec((("x", 1),), (0,)))
    main = builder.main([(Argument("x", mesh=mesh), VECTOR)])
    body = main.body("inner", [(Argument("y", mesh=mesh), VECTOR)])

    def refused(function: FunctionBuilder, value: int) -> None:
        with pytest.raises(PathwaysError, match="takes a value of another function") as caught:
            function.transfer(value, mesh, where=Where("model.ir", 5))
        assert caught.value.code == "PWC0701" and caught.value.diagnostics[0].where == Where("model.ir", 5)

    refused(body, main.arguments[0])
    refused(main, body.arguments[0])


def test_a_misspelled_field_is_an_error_in_both_forms() -> None:
    program = read()
    for _ in range(2):
        op = program.flow.nodes[0].op
        with pytest.raises(AttributeError, match="has no field acton"):
            op.acton = "0F0"
        with pytest.raises(AttributeError, match="has no field acton"):
            _ = op.acton
        program.link()


def test_a_record_has_the_operands_and_results_of_its_op() -> None:
    call, moved, _ = (node.op for node in read().flow)
    assert list(call.results) == list(moved.operands) and "callee" in call.attributes


def test_lists_and_integers_of_numpy_are_converted() -> None:
    program = read()
    op = program.flow.nodes[0].op
    op.step, op.in_shardings = np.int64(0), list(op.in_shardings)
    verify(program)
    assert type(op.step) is int and type(op.in_shardings) is tuple


def test_an_op_that_a_pass_holds_stays_the_op_of_its_node() -> None:
    program = read()
    held = [node.op.operation for node in program.flow]
    added = CallRecord(program.flow.nodes[0].op.location, callee="double", mesh="m0")
    flow = program.flow
    program.flow = Flow(program, [*flow.types, VECTOR], [*flow.nodes, replace_node(flow, added)], flow.returned)
    number_nodes(program, [3, 0, 1, 2])
    assert [node.op.operation for node in program.flow.nodes[1:]] == held
    held[0].attributes["again"] = ir.UnitAttr.get(program.context)
    assert [node.number for node in program.flow.calls() if node.op.again] == [1]


@pytest.mark.parametrize("is_read_before", [False, True])
def test_an_op_that_was_handed_out_stays_alive_when_the_function_is_written_again(is_read_before: bool) -> None:
    program = read() if is_read_before else ProgramIR(parse_text(STRAIGHT, "small"))
    (function,) = [op for op in program.module.body.operations if op.operation.name == "func.func"]
    *held, _ = [op.operation for op in function.regions[0].blocks[0].operations]
    program.take_back()
    program.flow.nodes[0].op.action = "5F0"
    assert 'action = "5F0"' in text(program.read_module())
    assert [str(op.attributes["step"]) for op in held] == ["0 : i64", "1 : i64", "2 : i64"]
    assert held[0].attributes["action"].value == "0F0"


def test_changes_of_the_op_of_a_function_are_seen() -> None:
    program = read()
    function = program.func
    function.operation.regions[0].blocks[0].operations[0].action = "4F0"
    function.arg_attrs = ir.ArrayAttr.get(
        [ir.DictAttr.get({"pw.name": ir.StringAttr.get(n, program.context)}, program.context) for n in "uvw"],
        program.context,
    )
    assert [a.name for a in program.arguments] == ["u", "v", "w"] and program.flow.nodes[0].op.action == "4F0"
    program.take_back()
    assert [a.name for a in program.arguments] == ["u", "v", "w"] and program.flow.nodes[0].op.action == "4F0"


def test_a_flow_that_is_set_before_it_is_read_is_kept() -> None:
    program = read()
    flow = program.flow
    _ = program.module
    program.changed()
    program.flow = flow
    assert len(program.arguments) == 3 and program.flow is flow and flow.nodes[0].op.is_linked


def test_a_copy_of_a_linked_record_has_no_op() -> None:
    program = read()
    op = program.flow.nodes[0].op
    _ = op.operation
    copied = op.copy()
    copied.action = "6F0"
    assert op.action == "0F0" and not copied.is_linked


def test_a_flow_drops_what_it_has_found_when_nodes_change() -> None:
    program = read()
    flow = program.flow
    assert flow.users[0] == [0] and flow.waits == [(), (0,), (1,)]
    flow.nodes[2].operands = (0,)
    program.changed()
    assert flow.users[0] == [0, 2] and flow.waits == [(), (0,), ()]


def test_a_flow_of_values_that_no_node_makes_is_refused() -> None:
    flow = read().flow
    with pytest.raises(ValueError, match="a value that no node makes"):
        renumbered(ProgramIR(parse_text(STRAIGHT, "small")), flow.types, flow.arguments, flow.nodes[:1], flow.returned)


@pytest.mark.parametrize(
    ("fields", "is_sound"),
    [
        ({}, True),
        ({"step": 3, "gathered": True, "action": "0F1", "parts": ("- f",), "made_by": (0, 1)}, True),
        ({"mesh": None}, False),
        ({"callee": 3}, False),
        ({"step": True}, False),
        ({"step": 1 << 63}, False),
        ({"gathered": 1}, False),
        ({"parts": ("f", 1)}, False),
        ({"out_shardings": ("m0",)}, False),
    ],
)
def test_records_are_sound_together_if_none_has_a_problem(fields: dict[str, Any], is_sound: bool) -> None:
    location = ir.Location.unknown(make_context())
    records = [CallRecord(location, **{"callee": "f", "mesh": "m0"} | given) for given in ({}, fields)]
    assert are_sound(records, None) is is_sound
    assert any(any(record.problems(None)) for record in records) is not is_sound


@pytest.mark.parametrize("fields", [{"step": np.int64(3)}, {"parts": ["- f"]}, {"isand": "m0"}])
def test_records_with_other_values_or_fields_are_checked_one_by_one(fields: dict[str, Any]) -> None:
    location = ir.Location.unknown(make_context())
    assert not are_sound([CallRecord(location, callee="f", mesh="m0", **fields)], None)
