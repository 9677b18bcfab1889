"""Tests stacked layers in a pipeline: weights stay on their stages, whatever the model does to the whole stack."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax
from support.training import training_step

import pathways as pw
from pathways.dialect.plan.instructions import Recv

LAYERS, WIDTH, ROWS = 6, 16, 8
PARAMS = {"w": np.linspace(-1, 1, LAYERS * WIDTH * WIDTH, dtype=np.float32).reshape(LAYERS, WIDTH, WIDTH) / 4}
X = np.linspace(-1, 1, ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)
OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2))


def layer(x: Any, w: Any) -> Any:
    return x + jnp.tanh(x @ w), None


def plain(params: Any, x: Any) -> Any:
    return lax.scan(layer, x, params["w"])[0].mean()


def cast(params: Any, x: Any) -> Any:
    """Casts all parameters at the top, as mixed-precision models do."""
    narrow = jax.tree.map(lambda w: w.astype(jnp.bfloat16), params)
    return lax.scan(layer, x.astype(jnp.bfloat16), narrow["w"])[0].astype(jnp.float32).mean()


def scaled(params: Any, x: Any) -> Any:
    return lax.scan(jax.checkpoint(layer), x, params["w"] * 0.5 + 0.01)[0].mean()


def bounded(params: Any, x: Any) -> Any:
    """Adds a term whose gradient compares the whole stack with one number."""
    return lax.scan(layer, x, params["w"])[0].mean() + 0.1 * jnp.abs(params["w"]).max()


def test_a_reduction_of_the_whole_stack_has_the_right_gradient() -> None:
    made = pw.make_virtual_device_set()
    cut = pw.pipeline(bounded, [made.add_slice(devices=1) for _ in range(2)], microbatches=2)
    found, expected = pw.program(jax.grad(cut))(PARAMS, X), jax.grad(bounded)(PARAMS, X)
    np.testing.assert_allclose(np.asarray(found["w"]), expected["w"], atol=1e-6)


def backward(params: Any, x: Any) -> Any:
    return lax.scan(layer, x, params["w"], reverse=True)[0].mean()


@pytest.mark.long("more losses of the same kind", keep=("plain-*",))
@pytest.mark.parametrize(("loss", "tolerance"), [(plain, 1e-5), (cast, 1e-2), (scaled, 1e-5), (backward, 1e-5)])
def test_no_weight_is_transferred_between_stages(loss: Any, tolerance: float) -> None:
    made = pw.make_virtual_device_set()
    cut = pw.pipeline(loss, [made.add_slice(devices=1) for _ in range(3)], microbatches=2)
    state = OPTIMIZER.init(PARAMS)
    compiled = pw.program(training_step(cut, OPTIMIZER)).lower(PARAMS, state, X).compile(schedule="1f1b")
    names = [port.name for port in compiled.plan.inputs]
    assert [n for n in names if n.startswith("params")] == [f"params['w'][{i}:{i + 2}]" for i in (0, 2, 4)]
    moved = {s.buffers[i.slot].type.shape for s in compiled.plan.streams for i in s.instructions if isinstance(i, Recv)}
    assert moved <= {(ROWS // 2, WIDTH), ()}
    mine, theirs = (PARAMS, state), (PARAMS, state)
    reference = jax.jit(training_step(loss, OPTIMIZER))
    for _ in range(2):
        *mine, found = compiled(*mine, X)
        *theirs, expected = reference(*theirs, X)
        np.testing.assert_allclose(found, expected, rtol=tolerance)
    np.testing.assert_allclose(np.asarray(mine[0]["w"]), np.asarray(theirs[0]["w"]), atol=10 * tolerance)
