"""Training steps of one loss and one optimizer."""

from typing import Any

import jax
import optax


def training_step(loss: Any, optimizer: Any, *, has_aux: bool = False) -> Any:
    """A step of `(params, state, *batch)`: the new parameters and state, and the loss, with its aux if it has any."""

    def step(params: Any, state: Any, *batch: Any) -> Any:
        value, gradients = jax.value_and_grad(loss, has_aux=has_aux)(params, *batch)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    return step
