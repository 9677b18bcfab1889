"""Tests that microbatches are numbered in the order in which the program completes them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.compiler.schedule.recognize import recognize
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import name_of

jit: Any = jax.jit


def placed() -> tuple[Any, Any]:
    made = pw.make_virtual_device_set()
    homes = [NamedSharding(made.add_slice(devices=1).mesh("x"), P()) for _ in range(2)]

    def first(x: Any) -> Any:
        return jnp.sin(x)

    def second(x: Any) -> Any:
        return jnp.cos(x)

    return jit(first, in_shardings=homes[0]), jit(second, in_shardings=homes[1])


def actions(program: Any, *arguments: Any) -> list[str]:
    """Returns the function and action of each placed call, in program order."""
    made = ProgramIR(pw.program(program).lower(*arguments).module)
    found = recognize(made)
    assert found is not None
    calls = [n for n in made.flow.calls() if not n.op.gathered]
    return [f"{name_of(n.op)} {found.actions[n.number]}" for n in calls]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_the_microbatch_that_completes_first_is_microbatch_0(order: tuple[int, ...]) -> None:
    """All microbatches start in one order; the last stage runs them in another."""
    f, g = placed()

    def program(x: Any) -> Any:
        begun = [f(x[m]) for m in range(3)]
        done = {m: g(begun[m]) for m in order}
        return [done[m] for m in range(3)]

    found = actions(program, np.ones((3, 4), np.float32))
    begun = [f"first 0F{order.index(m)}" for m in range(3)]
    assert found == [*begun, *(f"second 1F{n}" for n in range(3))]


def test_a_stage_whose_backward_needs_no_activations_is_recognized() -> None:
    """Adding a constant passes its gradient on unchanged, so backward reads no value of forward."""
    made = pw.make_virtual_device_set()
    homes = [NamedSharding(made.add_slice(devices=1).mesh("x"), P()) for _ in range(3)]
    first = jit(lambda w, x: jnp.tanh(x @ w), in_shardings=homes[0])
    middle = jit(lambda x: x + 1.0, in_shardings=homes[1])
    last = jit(lambda x: (x**2).mean(), in_shardings=homes[2])

    def loss(w: Any, x: Any) -> Any:
        return sum(last(middle(first(w, x[m]))) for m in range(2))

    found = actions(jax.grad(loss), np.ones((4, 4), np.float32), np.ones((2, 3, 4), np.float32))
    kinds = {stage: [a.split()[-1][1] for a in found if a.split()[-1][0] == stage] for stage in "012"}
    assert set(found) and {a.split()[-1][0] for a in found} == {"0", "1", "2"}
    assert kinds["1"] == ["F", "F", "B", "B"]
