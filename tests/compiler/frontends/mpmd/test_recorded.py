"""Tests that recorded programs of Shardy's MPMD compiler run from either phase and give what plain JAX gives."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from support.shardy_programs import PHASES, module_of, recorded

import pathways as pw
from pathways.compiler.driver import Compilation, parse_program
from pathways.compiler.frontends.mpmd.actions import Actions
from pathways.compiler.frontends.mpmd.fragments import closed_dims
from pathways.compiler.frontends.mpmd.types import read_mesh_tensor
from pathways.compiler.pass_manager import Options
from pathways.compiler.passes.base import Session
from pathways.dialect.ir.functions import functions_of
from pathways.dialect.phases import Phase
from pathways.dialect.plan.instructions import Run
from pathways.dialect.plan.nouns import Plan, Stream
from pathways.dialect.sharding import Dims

WITH_CALLBACKS = {"t_debug_print", "t_pure_callback"}
LONG = {"s2_1f1b", "s2_circular", "s2_constrained", "s4_1f1b", "s4_gpipe"}
"""Left out unless PATHWAYS_ALL_SHARDY is set: XLA takes seconds to compile each."""
ALL = bool(os.environ.get("PATHWAYS_ALL_SHARDY"))
NAMES = sorted(n for n in recorded() if n not in WITH_CALLBACKS and (ALL or n not in LONG))
PARTITIONED = sorted(n for n in recorded() if n.startswith("s") and (ALL or n not in LONG))


def check_results(name: str, compiled: pw.Compiled) -> None:
    program = recorded()[name]
    found = compiled(*program.taken)
    assert len(found) == len(program.results)
    for one, other in zip(found, program.results, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(np.asarray(one, np.float64), other.astype(np.float64), rtol=1e-5, atol=1e-5)


@pytest.mark.long("larger recorded programs", keep=("t_*-import", "t_[a-h]*", "s2_gpipe-import"))
@pytest.mark.filterwarnings("ignore:.*pinned_host:UserWarning")
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_program_gives_what_plain_jax_gives(name: str, phase: str) -> None:
    check_results(name, pw.from_mpmd(recorded()[name].modules[phase], name=name).compile())


@pytest.mark.long("larger recorded programs", keep=("s2_gpipe-zero-bubble",))
@pytest.mark.parametrize(
    ("name", "schedule"),
    [("s4_zb", "1f1b"), ("s2_gpipe", "zero-bubble"), *([("s2_circular", "interleaved"), ("s4_1f1b", "gpipe")] * ALL)],
)
def test_imported_programs_run_under_schedules_of_this_compiler(name: str, schedule: str) -> None:
    compiled = pw.from_mpmd(recorded()[name].modules["import"], name=name).compile(schedule=schedule)
    assert compiled.plan.schedule.name == schedule and compiled.plan.schedule.microbatches > 1
    check_results(name, compiled)


@pytest.mark.parametrize("name", sorted(WITH_CALLBACKS))
@pytest.mark.parametrize("phase", PHASES)
def test_text_with_host_callbacks_is_refused(name: str, phase: str) -> None:
    with pytest.raises(pw.PathwaysError, match=r"PWC0122.*the host callback in"):
        pw.from_mpmd(recorded()[name].modules[phase])


@dataclass(frozen=True)
class Call:
    """A call that Shardy partitioned: its function and the shardings of its operands and results."""

    callee: str
    ins: list[Dims]
    outs: list[Dims]


def shardy_calls(text: str) -> tuple[dict[str, list[Call]], dict[str, int]]:
    """Returns the calls of each mesh in order, and the bytes of a device that Shardy reserves for each function."""
    module = module_of(text)
    functions = functions_of(module.operation)
    (main,) = (f for f in functions.values() if "topology" in f.attributes)
    calls: dict[str, list[Call]] = {}
    with module.context:
        for op in main.regions[0].blocks[0].operations:
            if op.operation.name == "mpmd.fragment_call":
                callee, mesh = (op.operation.attributes[k].value for k in ("callee", "mesh_name"))
                sides = ([closed_dims(read_mesh_tensor(v.type)) for v in s] for s in (op.operands, op.results))
                calls.setdefault(mesh, []).append(Call(callee, *sides))
    held = {n: f.attributes["reserved_hbm_bytes"].value for n, f in functions.items() if f is not main}
    return calls, held


def compiled_to(text: str, phase: Phase) -> Compilation:
    compilation = Compilation(parse_program(text, "recorded"), {}, Session())
    compilation.advance(phase, options=Options(merge=False))
    return compilation


@pytest.mark.parametrize("name", PARTITIONED)
def test_order_and_shardings_equal_those_of_shardy(name: str) -> None:
    text = recorded()[name].modules["partition"]
    theirs, _ = shardy_calls(text)
    program = compiled_to(text, Phase.SCHEDULE).program
    ours: dict[str, list[Any]] = {}
    for node in sorted(program.flow.calls(), key=lambda n: n.op.step):
        ours.setdefault(node.mesh, []).append(node.op)
    assert sorted(ours) == sorted(theirs)
    for mesh, calls in theirs.items():
        actions = Actions()
        assert [op.action for op in ours[mesh]] == [actions.of_callee(c.callee)[1] for c in calls]
        for op, call in zip(ours[mesh], calls, strict=True):
            assert [p.dims for p in op.in_shardings] == call.ins
            assert [p.dims for p in op.out_shardings] == call.outs


def live_bytes_beside_runs(plan: Plan, stream: Stream) -> list[int]:
    """Returns for each run of a stream the live bytes of a device that are no inputs of the run."""
    kept = {p.slot for p in plan.inputs if p.island == stream.island and not p.donated}
    alive = {slot for slot, buffer in enumerate(stream.buffers) if buffer.birth < 0}
    found: list[int] = []
    for instruction in stream.instructions:
        effects = instruction.effects
        if isinstance(instruction, Run):
            found.append(sum(stream.buffers[s].bytes for s in alive - set(instruction.inputs)))
        alive -= set(effects.drops) - kept
        alive |= set(effects.writes)
    return found


@pytest.mark.parametrize("name", PARTITIONED)
def test_live_bytes_equal_those_that_shardy_reserves(name: str) -> None:
    text = recorded()[name].modules["partition"]
    theirs, held = shardy_calls(text)
    plan = compiled_to(text, Phase.PLAN).plan()
    for stream, calls in zip(plan.streams, theirs.values(), strict=True):
        most: dict[str, int] = {}
        for call, found in zip(calls, live_bytes_beside_runs(plan, stream), strict=True):
            most[call.callee] = max(most.get(call.callee, 0), found)
        for callee, found in most.items():
            assert found == held[callee], callee
