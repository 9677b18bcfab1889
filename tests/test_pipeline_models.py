"""Unmodified models of flax, equinox and haiku train in pipelines as in plain JAX, over three optimizer steps."""

import itertools
import os
from typing import Any

import jax
import numpy as np
import optax
import pytest
from support.training import training_step

import pathways as pw
from tests.support.library_models import MODELS, Model

SCHEDULES = ("gpipe", "1f1b", "zero-bubble")
ALL = [*itertools.product(MODELS, (2, 4, 8), SCHEDULES)]
"""Every combination. Runs only if PATHWAYS_ALL_MODELS is set."""
SOME = [(m, k, SCHEDULES[(n + i) % 3]) for n, m in enumerate(MODELS) for i, k in enumerate((2, 4, 8)) if i == n % 3]
"""Each model with one number of slices. Together the models use all schedules."""
STEPS = 3


def largest_difference(model: Model, one: Any, other: Any) -> float:
    """Returns the largest difference of two trees, relative to the largest number of each array or to 1."""
    worst = 0.0
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(other), strict=True):
        if not any(part in jax.tree_util.keystr(path) for part in model.zero):
            a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
            worst = max(worst, float(np.max(np.abs(a - b), initial=0) / max(1.0, float(np.max(np.abs(b), initial=0)))))
    return worst


def run(name: str, slices: int, schedule: str) -> float:
    """Trains a model in a pipeline and in plain JAX, and returns the largest difference of all results."""
    model = MODELS[name]()
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1, momentum=0.9))
    devices = pw.make_virtual_device_set()
    made = [devices.add_slice(devices=1) for _ in range(slices)]
    batch = tuple(range(1, 1 + len(model.batch)))
    many = 1 if model.aux else 4
    loss = pw.pipeline(model.loss, made, microbatches=many, batch_argnums=batch, has_aux=model.aux)
    arguments = model.params, optimizer.init(model.params), *model.batch
    ours = pw.program(training_step(loss, optimizer, has_aux=model.aux)).lower(*arguments)
    compiled = ours.compile(schedule=schedule if many > 1 else "program")
    plain = jax.jit(training_step(model.loss, optimizer, has_aux=model.aux))
    one, other = arguments[:2], arguments[:2]
    worst = 0.0
    for _ in range(STEPS):
        *one, found = compiled(*one, *model.batch)
        *other, expected = plain(*other, *model.batch)
        worst = max(worst, largest_difference(model, found, expected))
    return max(worst, largest_difference(model, one, other))


@pytest.mark.long(
    "a model of another library is compiled: 1 to 60 s each",
    keep=("flax nnx, tied-2-gpipe",),
)
@pytest.mark.parametrize(("name", "slices", "schedule"), ALL if os.environ.get("PATHWAYS_ALL_MODELS") else SOME)
def test_a_model_trains_in_a_pipeline_as_in_plain_jax(name: str, slices: int, schedule: str) -> None:
    assert run(name, slices, schedule) < 1e-5
