"""What is computed again, and what is not: the stage that keeps most goes first, and nothing that need not."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.pipelines import block, pipe

import pathways as pw
from pathways.dialect.diagnostics import PathwaysError

jit: Any = jax.jit
WIDTH = 8


def deep(params: Any, x: Any) -> Any:
    """A stage that keeps as many activations as it has layers."""
    for w in params:
        x = jnp.tanh(x @ w)
    return x


def deep_loss(params: Any, x: Any) -> Any:
    return (deep(params, x) ** 2).mean()


def uneven(layers: tuple[int, ...], *, with_loss: bool = False) -> tuple[Any, Any]:
    """A training step whose stages have so many layers each, and its arguments. The last may hold the loss, too."""
    made = pw.make_virtual_device_set()
    functions = [*[deep] * (len(layers) - 1), deep_loss if with_loss else deep]
    stages = [jit(f, in_shardings=NamedSharding(made.add_slice(devices=1).mesh("x"), P())) for f in functions]

    def loss(params: Any, x: Any) -> Any:
        for stage, own in zip(stages, params, strict=True):
            x = stage(own, x)
        return x if with_loss else (x**2).mean()

    def step(params: Any, xs: Any) -> Any:
        def body(total: Any, x: Any) -> Any:
            return jax.tree.map(jnp.add, total, jax.grad(loss)(params, x)), None

        return lax.scan(body, jax.tree.map(jnp.zeros_like, params), xs)[0]

    params = [[np.eye(WIDTH, dtype=np.float32)] * n for n in layers]
    return pw.program(step), (params, np.ones((4, 32, WIDTH), np.float32))


def highest(plan: Any) -> int:
    return max(s.peak_bytes for s in plan.streams)


@pytest.mark.parametrize("layers", [(1, 4), (4, 1), (1, 1, 6), (1, 6, 1)])
def test_the_stage_that_keeps_most_is_computed_again_and_no_other(layers: tuple[int, ...]) -> None:
    """All stages on one island, which is one byte short: to drop the small stages' activations would not help."""
    step, arguments = uneven(layers)
    lowered = step.lower(*arguments)
    free = highest(lowered.compile(f"islands=1,devices={len(layers)}", schedule="gpipe").plan)
    tight = f"islands=1,devices={len(layers)},memory={free - 1}"
    plan = lowered.compile(tight, schedule="gpipe", remat="auto").plan
    assert plan.schedule.note.startswith(f"activations of stage {layers.index(max(layers))} are computed again")
    assert highest(plan) < free


def test_a_plan_that_just_fits_is_left_alone() -> None:
    """Memory for the peak is enough; a byte less is not. For the refusal and for what rematerialization does."""
    lowered = pipe(slices=2, microbatches=8, stage=block).lowered()
    free = lowered.compile("islands=2,devices=1", schedule="gpipe").plan
    need = highest(free)
    fits = lowered.compile(f"islands=2,devices=1,memory={need}", schedule="gpipe", remat="auto").plan
    assert fits.streams == free.streams and fits.schedule.note == free.schedule.note == ""
    with pytest.raises(PathwaysError, match="PWC0302"):
        lowered.compile(f"islands=2,devices=1,memory={need - 1}", schedule="gpipe")
    again = lowered.compile(f"islands=2,devices=1,memory={need - 1}", schedule="gpipe", remat="auto").plan
    assert "computed again" in again.schedule.note


def narrow(params: Any, x: Any) -> Any:
    """A stage that keeps a hundredth of what it takes."""
    return deep(params, jnp.broadcast_to(x.mean(0), (1, WIDTH)))


def narrowing(first: Any) -> Any:
    """A training step whose second stage needs nothing of what it takes, once it has run."""
    made = pw.make_virtual_device_set()
    functions = (first, narrow)
    stages = [jit(f, in_shardings=NamedSharding(made.add_slice(devices=1).mesh("x"), P())) for f in functions]

    def loss(params: Any, x: Any) -> Any:
        for stage, own in zip(stages, params, strict=True):
            x = stage(own, x)
        return (x**2).mean()

    def step(params: Any, xs: Any) -> Any:
        def body(total: Any, x: Any) -> Any:
            return jax.tree.map(jnp.add, total, jax.grad(loss)(params, x)), None

        return lax.scan(body, jax.tree.map(jnp.zeros_like, params), xs)[0]

    weights = np.eye(WIDTH, dtype=np.float32)
    return pw.program(step).lower([[weights] * 4, [weights]], np.ones((4, 100, WIDTH), np.float32))


def test_what_would_need_more_memory_is_left_as_it_was() -> None:
    """To run the second stage again would keep what it takes, which is a hundred times what it makes."""
    lowered = narrowing(deep)
    free = lowered.compile("islands=2,devices=1", schedule="gpipe").plan
    plan = lowered.compile("islands=2,devices=1", schedule="gpipe", remat="always").plan
    assert plan.schedule.note.startswith("activations of stage 0 are computed again")
    assert plan.streams[0].peak_bytes < free.streams[0].peak_bytes
    assert plan.streams[1].peak_bytes == free.streams[1].peak_bytes
    assert len(plan.streams[1].instructions) == len(free.streams[1].instructions)


def test_what_backward_follows_at_once_is_not_computed_again() -> None:
    """The last stage, which makes the loss, keeps nothing in between under 1F1B."""
    step, arguments = uneven((1, 1), with_loss=True)
    plan = step.lower(*arguments).compile("islands=2,devices=1", schedule="1f1b", remat="always").plan
    assert "activations of stage 0 are computed again" in plan.schedule.note
