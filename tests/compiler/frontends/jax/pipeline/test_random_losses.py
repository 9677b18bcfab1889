"""Tests random losses in random numbers of stages: values and gradients equal those of the uncut loss."""

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pathways as pw
from pathways.dialect.diagnostics import PathwaysError
from tests.support.random_losses import random_loss
from tests.support.unplaced import unplaced

SEEDS = range(int(os.environ.get("PATHWAYS_RANDOM_LOSSES", "8")))
PLACED = range(1000, 1006)


def _assert_close(one: Any, other: Any) -> None:
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        scale = max(1.0, float(np.max(np.abs(np.asarray(b)))))
        np.testing.assert_allclose(np.asarray(a) / scale, np.asarray(b) / scale, atol=2e-5)


def _draw_stages_and_microbatches(seed: int) -> tuple[int, int]:
    rng = np.random.default_rng(seed + 12345)
    return int(rng.integers(1, 6)), int(rng.choice([1, 2, 4]))


@pytest.mark.long("more random examples of the same kind", keep=("6", "4", "5"))
@pytest.mark.parametrize("seed", SEEDS)
def test_a_cut_loss_equals_the_uncut_loss(seed: int) -> None:
    drawn = random_loss(seed)
    stages, microbatches = _draw_stages_and_microbatches(seed)
    cut = unplaced(drawn.loss, stages, microbatches=microbatches)
    try:
        found = jax.jit(jax.value_and_grad(cut))(drawn.params, drawn.x)
    except PathwaysError as error:
        assert error.diagnostics[0].code == "PWC0111", error  # one operation is most of the work
        return
    _assert_close(found, jax.jit(jax.value_and_grad(drawn.loss))(drawn.params, drawn.x))


@pytest.mark.long("more random examples of the same kind", keep=("1000",))
@pytest.mark.parametrize("seed", PLACED)
def test_a_program_of_a_cut_loss_equals_the_uncut_loss(seed: int) -> None:
    drawn = random_loss(seed)
    _, microbatches = _draw_stages_and_microbatches(seed)
    devices = pw.make_virtual_device_set()
    loss = pw.pipeline(drawn.loss, [devices.add_slice(devices=1) for _ in range(2)], microbatches=microbatches)
    found = pw.program(jax.value_and_grad(loss))(drawn.params, drawn.x)
    _assert_close(found, jax.jit(jax.value_and_grad(drawn.loss))(drawn.params, drawn.x))


def _data_loop(params: Any, x: Any) -> Any:
    noise, _ = lax.scan(lambda c, _: (jnp.sin(c) * 1.1, None), x, None, length=16)
    for w in params:
        x = jnp.tanh(x @ w)
    return ((x - noise) ** 2).mean()


def _parameter_loop(params: Any, x: Any) -> Any:
    """Adds the norm of a weight by power iteration, as spectral normalization does."""
    start = jnp.ones(params[0].shape[0])
    vector, _ = lax.scan(lambda v, _: (params[0] @ v / jnp.linalg.norm(params[0] @ v), None), start, None, length=16)
    for w in params:
        x = jnp.tanh(x @ w)
    return (x**2).mean() + 0.1 * (params[0] @ vector).sum()


@pytest.mark.long("more random examples of the same kind", keep=("4-*",))
@pytest.mark.parametrize("loss", [_data_loop, _parameter_loop])
@pytest.mark.parametrize("stages", [2, 4])
def test_cut_losses_may_loop_over_data_or_parameters_alone(loss: Any, stages: int) -> None:
    params = [np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8) / (i + 2) for i in range(6)]
    x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    _assert_close(
        jax.value_and_grad(unplaced(loss, stages, microbatches=2))(params, x), jax.value_and_grad(loss)(params, x)
    )
