"""Tests which activations are recomputed: those of the stage that keeps most, and only if that saves needed memory."""

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
    """A stage that keeps one activation per layer."""
    for w in params:
        x = jnp.tanh(x @ w)
    return x


def deep_loss(params: Any, x: Any) -> Any:
    return (deep(params, x) ** 2).mean()


def uneven(layers: tuple[int, ...], *, with_loss: bool = False) -> tuple[Any, Any]:
    """Returns a training step with these numbers of layers per stage, and its arguments.

    `with_loss`: the last stage computes the loss, too.
    """
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


def highest_peak(plan: Any) -> int:
    return max(s.peak_bytes for s in plan.streams)


@pytest.mark.long("more examples of the same kind", keep=("layers0", "layers3"))
@pytest.mark.parametrize("layers", [(1, 4), (4, 1), (1, 1, 6), (1, 6, 1)])
def test_only_the_stage_that_keeps_most_activations_is_recomputed(layers: tuple[int, ...]) -> None:
    """All stages share one island that lacks one byte; dropping activations of small stages would not help."""
    step, arguments = uneven(layers)
    lowered = step.lower(*arguments)
    free = highest_peak(lowered.compile(f"islands=1,devices={len(layers)}", schedule="gpipe").plan)
    tight = f"islands=1,devices={len(layers)},memory={free - 1}"
    plan = lowered.compile(tight, schedule="gpipe", remat="auto").plan
    assert plan.schedule.note.startswith(f"activations of stage {layers.index(max(layers))} are computed again")
    assert highest_peak(plan) < free


def test_a_plan_that_just_fits_recomputes_nothing() -> None:
    """Memory of the peak suffices and one byte less does not, for the refusal as for rematerialization."""
    lowered = pipe(slices=2, microbatches=8, stage=block).lowered()
    free = lowered.compile("islands=2,devices=1", schedule="gpipe").plan
    need = highest_peak(free)
    fits = lowered.compile(f"islands=2,devices=1,memory={need}", schedule="gpipe", remat="auto").plan
    assert fits.streams == free.streams and fits.schedule.note == free.schedule.note == ""
    with pytest.raises(PathwaysError, match="PWC0302"):
        lowered.compile(f"islands=2,devices=1,memory={need - 1}", schedule="gpipe")
    again = lowered.compile(f"islands=2,devices=1,memory={need - 1}", schedule="gpipe", remat="auto").plan
    assert "computed again" in again.schedule.note


def narrow(params: Any, x: Any) -> Any:
    """A stage that keeps a hundredth of the size of its input."""
    return deep(params, jnp.broadcast_to(x.mean(0), (1, WIDTH)))


def narrowing(first: Any) -> Any:
    """Lowers a training step whose second stage does not need its input after it has run."""
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


def test_a_stage_whose_recomputation_needs_more_memory_is_unchanged() -> None:
    """Recomputing the second stage would keep its input, which is a hundred times as large as its result."""
    lowered = narrowing(deep)
    free = lowered.compile("islands=2,devices=1", schedule="gpipe").plan
    plan = lowered.compile("islands=2,devices=1", schedule="gpipe", remat="always").plan
    assert plan.schedule.note.startswith("activations of stage 0 are computed again")
    assert plan.streams[0].peak_bytes < free.streams[0].peak_bytes
    assert plan.streams[1].peak_bytes == free.streams[1].peak_bytes
    assert len(plan.streams[1].instructions) == len(free.streams[1].instructions)


def test_a_stage_followed_at_once_by_its_backward_is_not_recomputed() -> None:
    """Under 1F1B the last stage, which makes the loss, keeps nothing between forward and backward."""
    step, arguments = uneven((1, 1), with_loss=True)
    plan = step.lower(*arguments).compile("islands=2,devices=1", schedule="1f1b", remat="always").plan
    assert "activations of stage 0 are computed again" in plan.schedule.note
