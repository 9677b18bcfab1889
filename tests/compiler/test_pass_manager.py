"""What the pass manager says of passes that break rules: whose mistake it was."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.compiler.passes.base import Session
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
