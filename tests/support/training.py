"""Builds a training step of one loss and one optimizer."""

from typing import Any

import jax
import optax


def training_step(loss: Any, optimizer: Any, *, has_aux: bool = False) -> Any:
    """Returns `step(params, state, *batch) -> params, state, loss`; with `has_aux`, the last is `(loss, aux)`."""

    def step(params: Any, state: Any, *batch: Any) -> Any:
        value, gradients = jax.value_and_grad(loss, has_aux=has_aux)(params, *batch)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    return step
