"""What the pass manager says of passes that break rules: whose mistake it was."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.compiler.pass_manager import PASSES
from pathways.compiler.pass_text import read_passes
from pathways.compiler.passes.base import Session
from pathways.compiler.passes.order_calls import OrderCalls
from pathways.compiler.passes.place import Place
from pathways.compiler.passes.plan_islands import PlanIslands
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.pw import RunOp
from pathways.dialect.jax_api import jit

X = np.ones(4, np.float32)


@pytest.fixture
def program() -> Any:
    sharding = NamedSharding(pw.make_virtual_device_set().add_slice(devices=2).mesh("x"), P("x"))
    call = jit(lambda x: x + 1, in_shardings=sharding)
    return pw.program(lambda x: call(x))


def test_a_mistake_of_a_pass_of_ours_is_called_ours(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert "reads slot 1, which holds nothing" in str(caught.value)
    assert caught.value.diagnostic.where is not None and caught.value.diagnostic.where.file == Path(__file__).name


def _spoils(monkeypatch: pytest.MonkeyPatch, step: Any, name: str, value: Any) -> None:
    """Lets a pass of ours write something wrong to every call, beside what it is there for."""
    right = step.apply

    def wrong(self: Any, program: ProgramIR, session: Session) -> None:
        right(self, program, session)
        for call in program.calls():
            setattr(call, name, value)

    monkeypatch.setattr(step, "apply", wrong)


@pytest.mark.parametrize(
    ("step", "name", "value", "said"),
    [
        (PASSES["find-pipeline"], "action", "7G1", "has the action 7G1"),
        (Place, "island", "elsewhere", "is on @elsewhere"),
        (OrderCalls, "step", -1, "has step -1 behind step -1"),
    ],
)
def test_what_a_pass_states_that_it_writes_is_verified_behind_it(
    program: Any, monkeypatch: pytest.MonkeyPatch, step: Any, name: str, value: Any, said: str
) -> None:
    assert name in step.writes
    _spoils(monkeypatch, step, name, value)
    with pytest.raises(pw.PathwaysError) as caught:
        program.lower(X).compile()
    assert caught.value.code == "PWC0710" and f"the pass {step.name}" in str(caught.value)
    assert said in str(caught.value)


def test_what_a_pass_does_not_state_is_found_where_the_plan_is_made(
    program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _spoils(monkeypatch, OrderCalls, "action", "7G1")
    with pytest.raises(pw.PathwaysError) as caught:
        program.lower(X).compile()
    assert caught.value.code == "PWC0710" and "has the action 7G1" in str(caught.value)


@pytest.mark.parametrize("passes", ["rematerialize{when=nonsense}", "merge-calls{limit=abc}"])
def test_an_option_that_is_none_is_refused_before_anything_runs(passes: str) -> None:
    with pytest.raises(pw.PathwaysError) as caught:
        read_passes(passes)
    assert caught.value.code == "PWC0705"
