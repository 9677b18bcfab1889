"""Tests that the pass manager verifies what built-in passes write and names the pass at fault."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.compiler.driver import Compilation
from pathways.compiler.pass_manager import PASSES, Options
from pathways.compiler.pass_text import read_passes
from pathways.compiler.passes.base import Session
from pathways.compiler.passes.order_calls import OrderCalls
from pathways.compiler.passes.place import Place
from pathways.compiler.passes.plan_islands import PlanIslands
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.pw import RunOp
from pathways.dialect.jax_api import jit
from pathways.dialect.phases import Phase
from pathways.dialect.topology import parse_topology

X = np.ones(4, np.float32)


@pytest.fixture
def program() -> Any:
    sharding = NamedSharding(pw.make_virtual_device_set().add_slice(devices=2).mesh("x"), P("x"))
    call = jit(lambda x: x + 1, in_shardings=sharding)
    return pw.program(lambda x: call(x))


def test_a_built_in_pass_that_breaks_a_plan_is_reported_as_a_compiler_bug(
    program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = PlanIslands.apply

    def wrong(self: PlanIslands, program: ProgramIR, session: Session) -> None:
        right(self, program, session)
        for plan in program.plans.values():
            for op in plan.operation.regions[0].blocks[0].operations:
                if isinstance(op, RunOp):
                    op.inputs = tuple(slot + 1 for slot in op.inputs)

    monkeypatch.setattr(PlanIslands, "apply", wrong)
    with pytest.raises(pw.PathwaysError) as caught:
        program.lower(X).compile()
    assert caught.value.code == "PWC0710" and "the pass plan-islands" in str(caught.value)
    assert "reads slot 1, which is empty" in str(caught.value)
    assert caught.value.diagnostic.where is not None and caught.value.diagnostic.where.file == Path(__file__).name


def _patch_to_write(monkeypatch: pytest.MonkeyPatch, step: Any, name: str, value: Any) -> None:
    """Patches a built-in pass to also write a wrong value to an attribute of every call."""
    right = step.apply

    def wrong(self: Any, program: ProgramIR, session: Session) -> None:
        right(self, program, session)
        for call in program.calls():
            setattr(call, name, value)

    monkeypatch.setattr(step, "apply", wrong)


@pytest.mark.parametrize(
    ("step", "name", "value", "message"),
    [
        (PASSES["find-pipeline"], "action", "7G1", "has the action 7G1"),
        (Place, "island", "elsewhere", "is on @elsewhere"),
        (OrderCalls, "step", -1, "has step -1 after step -1"),
    ],
)
def test_attributes_that_a_pass_declares_as_written_are_verified_after_it(
    program: Any, monkeypatch: pytest.MonkeyPatch, step: Any, name: str, value: Any, message: str
) -> None:
    assert name in step.writes
    _patch_to_write(monkeypatch, step, name, value)
    with pytest.raises(pw.PathwaysError) as caught:
        program.lower(X).compile()
    assert caught.value.code == "PWC0710" and f"the pass {step.name}" in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "message", "merge"),
    [
        ("action", "7G1", "has the action 7G1", True),
        ("parts", ("unreadable",), "has a part that cannot be read", True),
        ("parts", ("unreadable",), "has a part that cannot be read", False),
    ],
)
def test_undeclared_writes_are_verified_when_the_plan_is_made(
    program: Any, monkeypatch: pytest.MonkeyPatch, name: str, value: Any, message: str, merge: bool
) -> None:
    _patch_to_write(monkeypatch, OrderCalls, name, value)
    with pytest.raises(pw.PathwaysError) as caught:
        program.lower(X).compile(merge=merge)
    assert caught.value.code == "PWC0710" and message in str(caught.value)


@pytest.mark.parametrize("merge", [True, False])
def test_ops_that_are_changed_between_passes_are_verified_when_the_plan_is_made(program: Any, merge: bool) -> None:
    lowered = program.lower(X)
    session = Session(parse_topology("islands=1,devices=2"))
    compilation = Compilation(ProgramIR(lowered.module), lowered.constants, session)
    compilation.advance(Phase.SCHEDULE, options=Options(merge=merge))
    assert "pw.call" in str(compilation.program.module)
    for call in compilation.program.calls():
        call.parts = ("unreadable",)
    with pytest.raises(pw.PathwaysError) as caught:
        compilation.advance(passes=[PlanIslands()])
    assert caught.value.code == "PWC0710" and "has a part that cannot be read" in str(caught.value)


@pytest.mark.parametrize("passes", ["rematerialize{when=nonsense}", "merge-calls{limit=abc}"])
def test_invalid_pass_options_are_refused_before_any_pass_runs(passes: str) -> None:
    with pytest.raises(pw.PathwaysError) as caught:
        read_passes(passes)
    assert caught.value.code == "PWC0705"
