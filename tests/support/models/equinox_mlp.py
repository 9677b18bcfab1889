"""equinox: the library's own MLP, its layers cut into two stages, AdamW."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from support.models.staged import Model, Stage, model

BATCH, WIDTH = 8, 16


def build(pins: Sequence[str] | None = None) -> Model:
    whole: Any = eqx.nn.MLP(WIDTH, 4, 32, depth=3, activation=jax.nn.gelu, key=jax.random.key(0))
    stages: list[Stage] = []
    params: list[Any] = []
    last = len(whole.layers) - 1
    for layers in ((0, 1), (2, last)):
        arrays, static = eqx.partition([whole.layers[i] for i in layers], eqx.is_array)
        params.append(arrays)
        stages.append(_stage(static, whole.activation, final=last in layers))
    x = jax.random.normal(jax.random.key(1), (BATCH, WIDTH))
    y = jnp.sin(x[:, :4])
    return model(stages, params, x, y, lambda out, y: ((out - y) ** 2).mean(), optax.adamw(1e-2), pins)


def _stage(static: Any, activation: Any, *, final: bool) -> Stage:
    def stage(params: Any, x: Any) -> Any:
        layers: Any = eqx.combine(params, static)
        for i, layer in enumerate(layers):
            x = jax.vmap(layer)(x)
            if not (final and i == len(layers) - 1):
                x = jax.vmap(jax.vmap(activation))(x)
        return x

    return stage


built = build()
step = built.program
