"""Tests IR of phase trace that our front end never writes: legal IR compiles, and illegal IR is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from pathways.compiler.driver import Compilation, parse_program
from pathways.compiler.passes.base import Session
from pathways.compiler.passes.find_pipeline import FindPipeline
from pathways.compiler.passes.propagate_shardings import PropagateShardings
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ir.functions import main_of
from pathways.dialect.ir.verify import verify
from pathways.dialect.mlir import ir

COMPUTATION = """
    func.func public @main(%x: tensor<8xf32> {in}) -> (tensor<8xf32> {out}) {
      %y = {op} : tensor<8xf32>
      return %y : tensor<8xf32>
    }"""
PROGRAM = """
module attributes {{
  pw.in_tree = "{{\\22kind\\22:\\22tuple\\22,\\22children\\22:[\\22leaf\\22]}}",
  pw.out_tree = "\\22leaf\\22", pw.phase = "trace", pw.platform = "cpu"
}} {{
  "pw.slice"() {{devices = 2 : i64, sym_name = "s0"}} : () -> ()
  "pw.mesh"() {{axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s0, sym_name = "m0"}} : () -> ()
  module @double attributes {{mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32}} {{
    sdy.mesh @mesh = <["x"=2]>{body}
  }}
  func.func @p(%x: tensor<8xf32> {{pw.mesh = @m0, pw.name = "x"}})
      -> (tensor<8xf32> {{pw.name = "out"}}) attributes {{pw.program}} {{
{calls}
    return %z : tensor<8xf32>
  }}
}}
"""
SPLIT = '{sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}'
CALL = '"pw.call"({0}) {{callee = @double, mesh = @m0{1}}} : (tensor<8xf32>) -> tensor<8xf32>'
MOVE = '"pw.transfer"({0}) {{mesh = @m0}} : (tensor<8xf32>) -> tensor<8xf32>'


def program(*calls: str, given: str = "{}", made: str = "{}", op: str = "stablehlo.add %x, %x") -> str:
    body = COMPUTATION.replace("{in}", given).replace("{out}", made).replace("{op}", op)
    return PROGRAM.format(body=body, calls="\n".join(f"    {call}" for call in calls))


def propagated_dims(text: str) -> list[tuple[tuple[str, ...], ...]]:
    """Returns the dims of the results of all calls and transfers, after propagation."""
    read = parse_program(text, "a dump")
    PropagateShardings().apply(read, Session())
    read.changed()
    return [read.flow.place(v).dims for node in read.flow.nodes for v in node.results]


def test_a_computation_that_nothing_calls_is_left_out_of_the_plan() -> None:
    text = program(f"%z = {CALL.format('%x', '')}")
    unused = text[text.index("  module @double") : text.index("  func.func @p")].replace("@double", "@never")
    read = parse_program(text.replace("  func.func @p", f"{unused}  func.func @p"), "a dump")
    compilation = Compilation(read, {}, Session())
    compilation.advance()
    assert [c.name for c in compilation.plan().computations] == ["double"]


def test_a_transfer_within_a_mesh_needs_no_sharding() -> None:
    calls = f"%y = {CALL.format('%x', '')}", f"%z = {MOVE.format('%y')}"
    assert propagated_dims(program(*calls)) == [((),), ((),)]
    assert propagated_dims(program(*calls, made=SPLIT)) == [(("x",),), (("x",),)]
    moved = f"%y = {MOVE.format('%x')}", f"%w = {MOVE.format('%y')}", f"%z = {CALL.format('%w', '')}"
    assert propagated_dims(program(*moved, given=SPLIT)) == [(("x",),)] * 3
    assert propagated_dims(program(f"%z = {MOVE.format('%x')}")) == [((),)]


def test_find_pipeline_keeps_existing_actions() -> None:
    calls = [f"%{n} = {CALL.format(f'%{m}', extra)}" for m, n, extra in zip("xyw", "ywz", _ACTIONS, strict=True)]
    read = parse_program(program(*calls), "a dump")
    FindPipeline().apply(read, Session())
    assert [c.action for c in read.calls()] == ["0F0", None, "1F0"]
    again = parse_program(program(*calls[:1], f"%z = {MOVE.format('%y')}").replace(_ACTIONS[0], ""), "a dump")
    FindPipeline().apply(again, Session())
    assert [c.action for c in again.calls()] == [None]


_ACTIONS = (', action = "0F0"', "", ', action = "1F0"')


def test_the_error_of_mlir_is_shown_without_its_notes() -> None:
    read = parse_program(program(f"%z = {CALL.format('%x', '')}", op=f"{ADD} //"), "a dump")
    (computation,) = read.computations.values()
    (add, _) = main_of(computation).regions[0].blocks[0].operations
    add.operation.result.set_type(ir.Type.parse("tensor<4xf32>", read.context))
    assert str(refused(lambda: verify(read)).where) == "model.py:7"
    assert "stablehlo.add" in str(refused(lambda: verify(read))) and "note" not in str(refused(lambda: verify(read)))


ADD = 'stablehlo.add %x, %x : tensor<8xf32> loc("model.py":7:1)'


def refused(call: Callable[[], object]) -> Any:
    with pytest.raises(PathwaysError) as caught:
        call()
    (found,) = caught.value.diagnostics
    assert found.code == "PWC0701" and "see current operation" not in found.text(found.title)
    return found


def test_an_operation_of_no_known_dialect_is_refused() -> None:
    op = '"foo.bar"(%x) : (tensor<8xf32>) -> tensor<8xf32> loc("model.py":7:1) //'
    found = refused(lambda: propagated_dims(program(f"%z = {CALL.format('%x', '')}", given=SPLIT, op=op)))
    assert "'foo.bar' op created with unregistered dialect" in found.problem and str(found.where) == "model.py:7"
