"""A plan that is made from the planned streams equals the one that is read from their ops in the module."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.random_programs import INPUTS, SHAPE, draw, draw_irregular

import pathways as pw
from pathways.api.stages import Lowered
from pathways.compiler.driver import Compilation
from pathways.compiler.instruments import Reproducer, Statistics
from pathways.compiler.pass_manager import Options, Timing, run_pass
from pathways.compiler.passes.base import Pass, Session
from pathways.compiler.stream_ops import PlannedStreams, peaks_of, planned_streams
from pathways.compiler.verifier import verify_program
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ir import pw as pw_ops
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import ir, make_context, parse, text
from pathways.dialect.phases import Phase
from pathways.dialect.topology import parse_topology

StringAttr: Any = ir.StringAttr
jit: Any = jax.jit


def compiled(draw_one: Callable[[int], tuple[Any, Any]], seed: int, **options: Any) -> Compilation:
    values = [np.zeros(SHAPE, np.float32)] * INPUTS
    return planned(pw.program(draw_one(seed)[0]).lower(*values), **options)


def planned(lowered: Lowered, **options: Any) -> Compilation:
    return lowered.compiled(None, Options(**options))


def pipeline() -> Lowered:
    made = pw.make_virtual_device_set()
    slices = [made.add_slice(devices=1) for _ in range(2)]

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = jax.nn.relu(x @ w)
        return (x**2).mean()

    staged: Any = pw.pipeline(loss, slices, batch_argnums=(1,), microbatches=4)
    rows = jax.ShapeDtypeStruct((8, 8), "float32")
    return pw.program(lambda ws, x: jax.value_and_grad(staged)(ws, x)).lower([rows] * 4, rows)


def assert_read_back(compilation: Compilation) -> None:
    program = compilation.program
    assert planned_streams(program) is not None and not any(isinstance(op, pw_ops.PlanOp) for op in program.base.body)
    plan, peaks = compilation.plan(), dict(peaks_of(program))
    assert program.read_module() is program.base and planned_streams(program) is not None
    assert compilation.plan() == plan, "reading the module changes nothing"
    assert text(program.read_module()) == text(program.read_module()), "the streams are written once"
    assert program.module is program.base and planned_streams(program) is None, "now its ops are what counts"
    assert compilation.plan() == plan and dict(peaks_of(program)) == peaks


@pytest.mark.parametrize("draw_one", [draw, draw_irregular])
def test_streams_of_random_programs_are_read_back_equal(draw_one: Any, thorough: bool) -> None:
    for seed in range(40 if thorough else 4):
        assert_read_back(compiled(draw_one, seed))


@pytest.mark.parametrize("options", [{"schedule": "gpipe"}, {"schedule": "zero-bubble", "merge": False}])
def test_streams_of_pipelines_are_read_back_equal(options: dict[str, Any]) -> None:
    assert_read_back(planned(pipeline(), **options))


@dataclass(frozen=True)
class OtherName(Pass):
    """Gives a computation another name, also in calls, but not in the streams."""

    name: ClassVar[str] = "other-name"
    requires: ClassVar[Phase] = Phase.PLAN
    ensures: ClassVar[Phase] = Phase.PLAN

    def apply(self, program: ProgramIR, session: Session) -> None:
        old = next(iter(program.computations))
        for call in program.calls():
            if call.callee == old:
                call.callee = "another"
        found = program.computations.pop(old)
        found.attributes["sym_name"] = StringAttr.get("another", program.context)
        program.computations["another"] = found


@dataclass(frozen=True)
class CountPlans(Pass):
    """Walks the module from the program's function, without `ProgramIR.module`."""

    name: ClassVar[str] = "count-plans"
    requires: ClassVar[Phase] = Phase.PLAN
    ensures: ClassVar[Phase] = Phase.PLAN
    found: ClassVar[list[int]] = []

    def apply(self, program: ProgramIR, session: Session) -> None:
        body = program.func.operation.parent.regions[0].blocks[0]
        self.found.append(sum(isinstance(op, pw_ops.PlanOp) for op in body.operations))


def test_a_pass_of_a_user_finds_ops_and_no_records() -> None:
    """Records name computations by their numbers, which such a pass may change."""
    compilation = planned(pipeline(), schedule="1f1b")
    session, timing = Session(), Timing()
    run_pass(compilation.program, CountPlans(), session, timing)
    assert CountPlans.found == [2]
    with pytest.raises(pw.PathwaysError, match=r"runs @.*, which does not exist"):
        run_pass(compilation.program, OtherName(), session, timing)


def test_a_stream_that_lacks_a_buffer_is_refused() -> None:
    program = planned(pipeline(), schedule="1f1b").program
    (streams,) = [*(planned_streams(program) or ())]
    first = replace(streams[0], groups=streams[0].groups[:-1])
    program.unwritten = PlannedStreams([[first, *streams[1:]]])
    with pytest.raises(pw.PathwaysError, match=r"declares [0-9]+ buffers on @island") as caught:
        verify_program(program)
    assert caught.value.code == "PWC0701"


def test_saved_failures_leave_the_records(tmp_path: Path) -> None:
    """`pwc compile` saves the IR before each pass, in case that it fails."""
    lowered = pipeline()
    compilation = Compilation(ProgramIR(lowered.module), lowered.constants, Session(parse_topology("devices=2")))
    compilation.advance(instruments=[Reproducer(lambda _: tmp_path), Statistics()])
    assert planned_streams(compilation.program) is not None


def test_a_change_of_an_instruction_is_in_the_plan() -> None:
    """A user's pass may change the ops of plans, which are made when it asks for them."""
    compilation = planned(pipeline(), schedule="1f1b")
    before = compilation.plan()
    for plan in compilation.program.plans.values():
        plan.peak_bytes = plan.peak_bytes + 64
    assert compilation.program.phase is Phase.PLAN
    now = {stream.island: stream.peak_bytes for stream in compilation.plan().streams}
    assert now == {stream.island: stream.peak_bytes + 64 for stream in before.streams}


@pytest.mark.parametrize("broken", range(4))
def test_a_wrong_instruction_of_any_body_is_refused(broken: int) -> None:
    made = pw.make_virtual_device_set()
    here, there = (NamedSharding(made.add_slice(devices=1).mesh("x"), P()) for _ in range(2))
    f, g = jit(lambda x: x + 1, in_shardings=here), jit(lambda x: x * 2, in_shardings=there)
    branch = pw.program(lambda x: lax.cond(x[0] > 0, lambda v: g(f(v)), lambda v: f(g(v)), x))
    dump = branch.lower(np.ones(4, np.float32)).as_text("plan")
    runs = list(re.finditer(r'"pw.run".*inputs = array<i64: (\d)>', dump))
    assert len(runs) == 5  # two in each body, and the condition
    start, end = runs[broken].span(1)
    with pytest.raises(PathwaysError, match=r"PWC0701[\s\S]*reads slot 9, which is empty"):
        verify_program(ProgramIR(parse(dump[:start] + "9" + dump[end:], make_context())))
