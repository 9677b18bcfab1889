"""Tests the two forms of a function, records and ops: each sees the changes of the other. Wrong records are refused."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.small_modules import STRAIGHT

from pathways.compiler.frontends.builder import FunctionBuilder, ProgramBuilder, SliceSpec
from pathways.compiler.passes.order_calls import number_nodes
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.ir import pw
from pathways.dialect.ir.arguments import Argument
from pathways.dialect.ir.flow import Flow
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.records import CallRecord, TransferRecord
from pathways.dialect.ir.verify import verify
from pathways.dialect.mlir import ir, parse_text, text
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
    assert program.flow.returned == [program.flow.nodes[1].results[0]]
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
        with pytest.raises(ValueError, match="each of them once"):
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
        (_set("made_by", [1]), "has made_by = [1], which is not of kind integers"),
        (_set("callee", None), "lacks the attribute callee"),
        (_set("acton", "0F0"), "has an unknown attribute acton"),
        (_take_later, "takes a value that is not made before it"),
        (_drop_argument, "states 2 arguments"),
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
