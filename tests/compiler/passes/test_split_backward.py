"""Tests which backward calls are split into input gradients and weight gradients, and which are not."""

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.dialect.plan.instructions import Run

jit: Any = jax.jit
MICROBATCHES = 3


def reporting_stage(seen: list[float]) -> Any:
    """Returns a stage that multiplies by weights; its backward reports every inbound gradient to the host."""

    @jax.custom_vjp
    def stage(w: Any, x: Any) -> Any:
        return jnp.tanh(x @ w)

    def forward(w: Any, x: Any) -> Any:
        return stage(w, x), (w, x)

    def backward(kept: Any, g: Any) -> Any:
        jax.debug.callback(lambda v: seen.append(float(v)), g.sum())
        return jax.vjp(lambda w, x: jnp.tanh(x @ w), *kept)[1](g)

    stage.defvjp(forward, backward)  # pyright: ignore[reportUnknownMemberType]
    return stage


def compiled(stages: list[Any]) -> tuple[Any, tuple[Any, Any]]:
    made = pw.make_virtual_device_set()
    placed = [jit(s, in_shardings=NamedSharding(made.add_slice(devices=1).mesh("x"), P())) for s in stages]

    def loss(params: Any, x: Any) -> Any:
        for stage, w in zip(placed, params, strict=True):
            x = stage(w, x)
        return (x**2).mean()

    def step(params: Any, xs: Any) -> Any:
        def body(total: Any, x: Any) -> Any:
            return jax.tree.map(jnp.add, total, jax.grad(loss)(params, x)), None

        return lax.scan(body, jax.tree.map(jnp.zeros_like, params), xs)[0]

    arguments = [np.eye(4, dtype=np.float32)] * len(stages), np.ones((MICROBATCHES, 2, 4), np.float32)
    lowered = pw.program(step).lower(*arguments)
    return lowered.compile(f"islands={len(stages)},devices=1", schedule="zero-bubble", merge=False), arguments


def kinds(plan: Any) -> dict[int, Counter[str]]:
    """Counts the placed calls of each kind for each stage."""
    found: dict[int, Counter[str]] = {}
    for run in plan.runs():
        if isinstance(run, Run) and run.action and run.name in ("stage", "plain"):
            stage, kind = int(run.action[0]), run.action[1]
            found.setdefault(stage, Counter())[kind] += 1
    return found


def plain(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w)


def test_backward_calls_are_split_into_input_and_weight_gradients() -> None:
    program, _ = compiled([plain, plain, plain])
    assert kinds(program.plan) == {
        0: Counter(F=MICROBATCHES, W=MICROBATCHES),  # no stage waits for the gradient of its input
        1: Counter(F=MICROBATCHES, I=MICROBATCHES, W=MICROBATCHES),
        2: Counter(F=MICROBATCHES, I=MICROBATCHES, W=MICROBATCHES),
    }


@pytest.mark.parametrize("at", [1, 2])
def test_a_backward_call_with_effects_is_not_split(at: int) -> None:
    """Both parts would need the operations around the callback, so it would run twice or in the wrong part."""
    seen: list[float] = []
    stages = [plain, plain, plain]
    stages[at] = reporting_stage(seen)
    program, arguments = compiled(stages)
    cut = kinds(program.plan)
    assert cut[at] == Counter(F=MICROBATCHES, I=MICROBATCHES) and cut[3 - at]["W"] == MICROBATCHES
    grads = program(*arguments)
    jax.block_until_ready([np.asarray(g) for g in grads])
    jax.effects_barrier()
    assert len(seen) == MICROBATCHES
