"""Tests programs made with the builder alone, without a JAX function, as a front end for another IR makes them."""

from typing import Any

import numpy as np
import pytest

from pathways.api.stages import Compiled
from pathways.compiler.driver import Compilation
from pathways.compiler.frontends.builder import Built, CalledComputation, FunctionBuilder, ProgramBuilder, SliceSpec
from pathways.compiler.passes.base import Session
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.ir.arguments import Argument
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import make_context, parse, text
from pathways.dialect.phases import Phase
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.signature import Parameter
from pathways.dialect.sdy import Placed
from pathways.dialect.sharding import MeshSpec
from pathways.dialect.topology import parse_topology
from pathways.dialect.trees import LEAF, Tree

VECTOR, NUMBER, TRUTH = ArrayType((8,), "float32"), ArrayType((), "int32"), ArrayType((), "bool")
X = MeshSpec((("x", 2),), (0, 1))
FIRST = SliceSpec(0, 2, where=Where("model.ir", 1))
SECOND = SliceSpec(1, 2, where=Where("model.ir", 2))
SPLIT = (("x",),)
IN, OUT = Tree("tuple", (LEAF, LEAF)), LEAF


def elementwise(op: str, name: str = "") -> CalledComputation:
    """Returns a computation that combines two vectors element by element."""
    text = f"""
      func.func public @main(%a: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<8xf32> {{
        %c = stablehlo.{op} %a, %b : tensor<8xf32>
        return %c : tensor<8xf32>
      }}"""
    return CalledComputation(name or op, text)


LESS = CalledComputation(
    "less",
    """
    func.func public @main(%n: tensor<i32>) -> tensor<i1> {
      %limit = stablehlo.constant dense<3> : tensor<i32>
      %r = stablehlo.compare LT, %n, %limit : (tensor<i32>, tensor<i32>) -> tensor<i1>
      return %r : tensor<i1>
    }""",
)
NEXT = CalledComputation(
    "next",
    """
    func.func public @main(%n: tensor<i32>) -> tensor<i32> {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %r = stablehlo.add %n, %one : tensor<i32>
      return %r : tensor<i32>
    }""",
)


def at(line: int) -> Where:
    return Where("model.ir", line, "model")


def begin() -> tuple[ProgramBuilder, str, str]:
    """Returns a builder and a mesh on each of two slices."""
    builder = ProgramBuilder("model", "cpu", where=at(1))
    return builder, builder.mesh(FIRST, X), builder.mesh(SECOND, X)


def plan_of(built: Built) -> Plan:
    topology = parse_topology("islands=2,devices=2")
    compilation = Compilation(ProgramIR(built.module), built.constants, Session(topology))
    compilation.advance()
    return compilation.plan()


def program_with_branch() -> Built:
    """Builds y = x + w, moved to the other slice, where n selects y + y or y * y."""
    builder, here, there = begin()
    raw = np.arange(8, dtype=np.float32).tobytes()
    taken = [(builder.constant("w", raw, mesh=here), VECTOR)]
    taken += [(Argument("x", mesh=here), VECTOR), (Argument("n", mesh=there), NUMBER)]
    main = builder.main(taken)
    w, x, n = main.arguments
    (y,) = main.call(elementwise("add"), [x, w], here, where=at(5))
    moved = main.transfer(y, there, SPLIT, where=at(6))
    bodies: list[FunctionBuilder] = []
    for op in ("add", "multiply"):
        body = main.body(f"model_{op}", [(Argument("operand 0", mesh=there), VECTOR)], where=at(7))
        (value,) = body.arguments
        body.returns(body.call(elementwise(op), [value, value], there, where=at(8)), [Argument("result 0")])
        bodies.append(body)
    results = main.branch("cond", [n, moved], bodies, [there], where=at(9))
    main.returns(results, [Argument("out")])
    return builder.finish(IN, OUT, (Parameter("x", "either"), Parameter("n", "either")))


def test_a_program_of_two_slices_and_a_branch_compiles_and_runs() -> None:
    built = program_with_branch()
    assert built.slices == {"s0": FIRST, "s1": SECOND}
    plan = plan_of(built)
    assert [s.island for s in plan.slices] == ["island0", "island1"]
    compiled = Compiled(plan)
    x = np.linspace(-1, 1, 8, dtype=np.float32)
    y = x + np.arange(8, dtype=np.float32)
    np.testing.assert_allclose(compiled(x, np.int32(0)), y + y, rtol=1e-6)
    np.testing.assert_allclose(compiled(x, n=np.int32(1)), y * y, rtol=1e-6)


def test_a_loop_runs_while_its_condition_holds() -> None:
    builder, here, there = begin()
    carried = [(Argument("n", mesh=here, donate=True), NUMBER), (Argument("v", mesh=there, donate=True), VECTOR)]
    main = builder.main([(Argument("n", mesh=here), NUMBER), (Argument("v", mesh=there), VECTOR)])
    condition = main.body("model_while_cond", [(Argument("n", mesh=here), NUMBER), (Argument("v"), VECTOR)])
    condition.returns(condition.call(LESS, condition.arguments[:1], here), [Argument("result 0")])
    body = main.body("model_while_body", carried)
    n, v = body.arguments
    made = [*body.call(NEXT, [n], here), *body.call(elementwise("add"), [v, v], there)]
    body.returns(made, [Argument("result 0"), Argument("result 1")])
    results = main.branch("while", main.arguments, [condition, body], [here, there])
    main.returns(results[1:], [Argument("out")])
    compiled = Compiled(plan_of(builder.finish(IN, OUT)))
    np.testing.assert_array_equal(compiled(np.int32(0), np.ones(8, np.float32)), np.full(8, 8))


def test_equal_computations_are_stored_once_and_large_constants_outside_ir() -> None:
    builder, here, _ = begin()
    raw = np.arange(1024, dtype=np.float32).tobytes()
    constant = builder.constant("big", raw)
    main = builder.main([(Argument("x"), VECTOR)])
    (value,) = main.arguments
    commented = CalledComputation("sum", f"// the same\n{elementwise('add').source}")
    for computation in (elementwise("add"), elementwise("add", "plus"), commented, elementwise("multiply", "add")):
        (value,) = main.call(computation, [value, value], here)
    main.returns([value], [Argument("out")], [here])
    built = builder.finish(Tree("tuple", (LEAF,)), OUT)
    program = ProgramIR(built.module)
    assert [c.callee for c in program.calls()] == ["add", "add", "add", "add_1"]
    assert list(program.computations) == ["add", "add_1"]
    assert constant.constant is not None and built.constants == {constant.constant: raw}
    assert program.arguments[0].mesh == here


def test_a_printed_call_has_its_stated_name_or_that_of_its_computation() -> None:
    builder, here, _ = begin()
    main = builder.main([(Argument("x", mesh=here), VECTOR)])
    (value,) = main.arguments
    for name in ("", "square root"):
        (value,) = main.call(elementwise("add"), [value, value], here, name=name)
    main.returns([value], [Argument("out")])
    printed = text(builder.finish(Tree("tuple", (LEAF,)), OUT).module)
    assert '%add = "pw.call"(%x, %x)' in printed and '%square_root = "pw.call"(%add, %add)' in printed


def test_slices_are_named_in_order_of_their_numbers() -> None:
    builder = ProgramBuilder("model", "cpu")
    near = SliceSpec(7, 1, near=SECOND)
    mesh = builder.mesh(near, MeshSpec((("d", 1),), (0,)))
    main = builder.main([(Argument("x", mesh=mesh), VECTOR)])
    main.returns([main.transfer(main.arguments[0], builder.mesh(FIRST, X), where=at(3))], [Argument("out")])
    built = builder.finish(Tree("tuple", (LEAF,)), OUT)
    assert built.slices == {"s0": FIRST, "s1": SECOND, "s2": near}
    program = ProgramIR(built.module)
    assert {symbol: op.near for symbol, op in program.slices.items()} == {"s0": None, "s1": None, "s2": "s1"}
    assert {symbol: op.slice for symbol, op in program.meshes.items()} == {"m0": "s2", "m1": "s0"}


def refused(main: FunctionBuilder, builder: ProgramBuilder, results: list[int]) -> tuple[str, str, int]:
    """Returns the code, the problem and the line of the verifier's error."""
    main.returns(results, [Argument("out")])
    with pytest.raises(PathwaysError) as caught:
        builder.finish(Tree("tuple", (LEAF,)), OUT)
    (found,) = caught.value.diagnostics
    assert found.where is not None and found.where.file == "model.ir"
    return found.code, found.text(found.title), found.where.line


def test_misuse_is_reported_at_its_line() -> None:
    builder, here, _ = begin()
    main = builder.main([(Argument("x", mesh=here), VECTOR)])
    moved = main.transfer(main.arguments[0], "m9", where=at(11))
    code, problem, line = refused(main, builder, [moved])
    assert (code, line) == ("PWC0701", 11) and "names the mesh @m9" in problem

    builder, here, _ = begin()
    main = builder.main([(Argument("x", mesh=here), VECTOR)])
    code, problem, line = refused(main, builder, main.call(elementwise("add"), main.arguments, here, where=at(12)))
    assert (code, line) == ("PWC0701", 12) and "has types ['float32[8]'] ->" in problem

    builder, here, _ = begin()
    main = builder.main([(Argument("x", mesh=here), VECTOR)])
    body = main.body("alone", [(Argument("operand 0", mesh=here), VECTOR)])
    body.returns(body.arguments, [Argument("result 0")])
    code, problem, line = refused(main, builder, main.branch("while", main.arguments, [body], [here], where=at(13)))
    assert (code, line) == ("PWC0701", 13) and "has the bodies ('alone',)" in problem


def program_with_stated_sharding(
    dims: tuple[tuple[str, ...], ...], mesh: str = "m0"
) -> tuple[ProgramBuilder, FunctionBuilder]:
    """Builds a program whose first argument is on @m0 and states a sharding."""
    builder, here, there = begin()
    main = builder.main([(Argument("x", mesh=here, sharding=Placed(mesh, dims)), VECTOR)])
    (value,) = main.arguments
    (value,) = main.call(elementwise("add"), [value, value], here, where=at(5))
    main.returns(main.call(elementwise("multiply"), [value, value], there, where=at(6)), [Argument("out")])
    return builder, main


def test_the_stated_sharding_of_an_argument_is_kept_and_propagated() -> None:
    builder, _ = program_with_stated_sharding(SPLIT)
    built = builder.finish(Tree("tuple", (LEAF,)), OUT)
    read = ProgramIR(parse(text(built.program.module), make_context()))
    assert read.arguments == built.program.arguments and read.arguments[0].sharding == Placed("m0", SPLIT)
    compilation = Compilation(read, {}, Session(parse_topology("islands=2,devices=2")))
    compilation.advance(Phase.SHARD)
    assert [c.in_shardings for c in read.calls()] == [(Placed(m, SPLIT),) * 2 for m in ("m0", "m1")]
    assert read.arguments[0].sharding == Placed("m0", SPLIT)
    compilation.advance()
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(Compiled(compilation.plan())(x), (x + x) ** 2)


@pytest.mark.parametrize(
    ("dims", "mesh", "message"),
    [
        (((), ()), "m0", "splits x of shape [8] as ((), ())"),
        ((), "m0", "splits x of shape [8] as ()"),
        ((("y",),), "m0", "splits x of shape [8] as (('y',),)"),
        ((("x", "x"),), "m0", "splits x of shape [8] as (('x', 'x'),)"),
        (SPLIT, "m1", "splits x over @m1"),
        (SPLIT, "m7", "splits x over @m7"),
    ],
)
def test_a_sharding_that_does_not_match_its_argument_is_refused(dims: Any, mesh: str, message: str) -> None:
    builder, _ = program_with_stated_sharding(dims, mesh)
    with pytest.raises(PathwaysError) as caught:
        builder.finish(Tree("tuple", (LEAF,)), OUT)
    assert caught.value.code == "PWC0701" and message in str(caught.value)
    assert caught.value.diagnostics[0].where == at(1)


def test_an_argument_that_does_not_divide_evenly_is_refused() -> None:
    builder, here, _ = begin()
    main = builder.main([(Argument("x", mesh=here, sharding=Placed(here, SPLIT)), ArrayType((7,), "float32"))])
    main.returns(main.arguments, [Argument("out")])
    with pytest.raises(PathwaysError, match=r"splits dimension 0 of x \(7\) in 2") as caught:
        builder.finish(Tree("tuple", (LEAF,)), OUT)
    assert caught.value.code == "PWC0701"


def test_shardings_of_results_and_body_arguments_are_refused() -> None:
    builder, here, _ = begin()
    main = builder.main([(Argument("x", mesh=here), VECTOR)])
    main.returns(main.arguments, [Argument("out", sharding=Placed(here, SPLIT))])
    with pytest.raises(PathwaysError, match="states a sharding of out"):
        builder.finish(Tree("tuple", (LEAF,)), OUT)

    builder, here, _ = begin()
    main = builder.main([(Argument("x", mesh=here), VECTOR), (Argument("n", mesh=here), NUMBER)])
    body = main.body("alone", [(Argument("x", mesh=here, sharding=Placed(here, SPLIT)), VECTOR)])
    body.returns(body.arguments, [Argument("result 0")])
    main.returns(main.branch("cond", main.arguments[::-1], [body], [here]), [Argument("out")])
    with pytest.raises(PathwaysError, match="states a sharding of x"):
        builder.finish(IN, OUT)


def check_pipeline_of(*actions: str) -> None:
    """Plans calls with these pipeline actions, on two slices in turn, and checks the plan's schedule."""
    builder, here, there = begin()
    main = builder.main([(Argument("x", mesh=here), VECTOR)])
    values: list[Any] = []
    for number, action in enumerate(actions):
        before = values[-1] if number % 2 else main.arguments[0]
        mesh = (here, there)[number % 2]
        values += main.call(elementwise("add"), [before, before], mesh, action=action, where=at(20 + number))
    main.returns(values[-1:], [Argument("out")])
    built = builder.finish(Tree("tuple", (LEAF,)), OUT)
    assert [c.action for c in built.program.calls()] == list(actions)
    schedule = plan_of(built).schedule
    assert (schedule.stages, schedule.microbatches) == (2, 2)


def test_calls_state_valid_actions_of_a_pipeline() -> None:
    check_pipeline_of("0F0", "1F0", "0F1", "1F1")
    with pytest.raises(PathwaysError) as caught:
        check_pipeline_of("0F0", "1G0", "0F1", "1F1")
    assert caught.value.code == "PWC0701" and "has the action 1G0" in str(caught.value)
    assert caught.value.diagnostics[0].where == at(21)


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("func.func public @main(", "PWC0702"),
        ("func.func public @other() { return }", "PWC0701"),
        ("func.func public @main(%x: tensor<?xf32>) { return }", "PWC0701"),
    ],
)
def test_invalid_computation_text_is_reported_at_the_line_of_its_call(source: str, code: str) -> None:
    builder, here, _ = begin()
    main = builder.main([(Argument("x", mesh=here), VECTOR)])
    with pytest.raises(PathwaysError) as caught:
        main.call(CalledComputation("broken", source), main.arguments, here, where=at(14))
    assert caught.value.code == code and caught.value.diagnostics[0].where == at(14)
