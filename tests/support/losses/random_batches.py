"""Random losses that compute example by example in some parts, and over the batch in others."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from support.losses.table import CLASSES, TIME, WIDTH, Case, any_jax, any_jnp, any_lax

Layer = Callable[[Any, Any, Any, int], Any]
"""Makes the next [examples, WIDTH] of parameters, batch, the last one and a number that chooses details."""


def _normalized(h: Any) -> Any:
    return (h - h.mean(0)) / any_jnp.sqrt(h.var(0) + 1e-2)


def _in_heads(h: Any) -> Any:
    parts = h.reshape(-1, 2, WIDTH // 2)
    return (jax.nn.softmax(any_jnp.einsum("bhd,bgd->bhg", parts, parts)) @ parts).reshape(-1, WIDTH)


def _in_pairs(h: Any) -> Any:
    pairs = h.reshape(-1, 2, WIDTH)
    return any_jnp.tanh(pairs - pairs.mean(1, keepdims=True)).reshape(h.shape)


def _dropped(h: Any, k: int) -> Any:
    return h * any_jax.random.bernoulli(any_jax.random.key(k), 0.7, h.shape)


EACH: list[Layer] = [
    lambda p, b, h, k: any_jnp.tanh(h @ p["w"]),
    lambda p, b, h, k: jax.nn.relu(h @ p["w2"]) + h,
    lambda p, b, h, k: (h - h.mean(-1, keepdims=True)) / (h.std(-1, keepdims=True) + 0.1),
    lambda p, b, h, k: _in_heads(h),
    lambda p, b, h, k: h + p["table"][b["label"]],
    lambda p, b, h, k: h * b["weight"][:, None],
    lambda p, b, h, k: any_jnp.roll(h, 1 + k % 3, 1),
    lambda p, b, h, k: any_jnp.sort(h, -1),
    lambda p, b, h, k: any_jnp.cumsum(h, 1) * 0.5,
    lambda p, b, h, k: any_jax.vmap(lambda x: any_jnp.tanh(x @ p["w"]))(h),
    lambda p, b, h, k: any_lax.scan(lambda c, w: (any_jnp.tanh(c @ w), None), h, p["layers"])[0],
    lambda p, b, h, k: any_jax.checkpoint(lambda x, w: any_jnp.tanh(x @ w))(h, p["w"]),
    lambda p, b, h, k: any_jnp.where(b["keep"][:, None] > 0, h, h @ p["w"]),
    lambda p, b, h, k: h + any_jnp.tanh(b["seq"] @ p["w"])[:, k % TIME],
    lambda p, b, h, k: any_jnp.concatenate([h[:, : WIDTH // 2], h[:, WIDTH // 2 :] ** 2], 1),
    lambda p, b, h, k: any_jnp.swapaxes(any_jnp.swapaxes(h, 0, 1) * p["b"][:, None], 0, 1),
    lambda p, b, h, k: h.reshape(-1).reshape(h.shape) * p["scale"],
    lambda p, b, h, k: any_jnp.take_along_axis(h, (b["label"] % WIDTH)[:, None], 1) + h,
]
OVER_BATCH: list[Layer] = [
    lambda p, b, h, k: _normalized(h),
    lambda p, b, h, k: h - h.mean(0),
    lambda p, b, h, k: any_jnp.roll(h, 1, 0),
    lambda p, b, h, k: h[::-1],
    lambda p, b, h, k: any_jnp.cumsum(h, 0) * 0.3,
    lambda p, b, h, k: any_jnp.sort(h, 0),
    lambda p, b, h, k: jax.nn.softmax(h @ h.T) @ h,
    lambda p, b, h, k: h / (1 + abs(h).max()),
    lambda p, b, h, k: h * any_jnp.arange(1.0, h.shape[0] + 1)[:, None] * 0.2,
    lambda p, b, h, k: any_jnp.tanh(h * h.shape[0] * 0.1),
    lambda p, b, h, k: h + (b["y"] - b["y"].mean(0)),
    lambda p, b, h, k: h * (b["reward"] / (1 + b["reward"].std()))[:, None],
    lambda p, b, h, k: _dropped(h, k),
    lambda p, b, h, k: h[any_jnp.argsort(b["reward"])],
    lambda p, b, h, k: _in_pairs(h),
]
ENDS: list[Callable[[Any, Any, Any], Any]] = [
    lambda p, b, h: ((h - b["y"]) ** 2).mean(),
    lambda p, b, h: ((h - b["y"]) ** 2).mean(-1).mean() + 0.1 * (p["w"] ** 2).sum(),
    lambda p, b, h: -any_jnp.take_along_axis(jax.nn.log_softmax(h @ p["out"]), b["label"][:, None], 1).mean(),
    lambda p, b, h: ((h - b["y"]) ** 2).sum(),
    lambda p, b, h: (((h - b["y"]) ** 2).mean(-1) * b["keep"]).sum() / b["keep"].sum(),
    lambda p, b, h: any_jnp.sqrt(((h - b["y"]) ** 2).mean() + 1e-3),
    lambda p, b, h: ((h - b["y"]) ** 2).mean() + any_jnp.square(h.mean(0)).sum(),
    lambda p, b, h: (jax.nn.one_hot(b["label"], CLASSES).T @ h).sum() / h.shape[0],
    lambda p, b, h: any_jnp.zeros(CLASSES).at[b["label"]].add((h * b["y"]).sum(-1)).sum(),
]


def random_batch_loss(seed: int) -> Case:
    """A loss of three to six parts, of which in most losses one is over the batch."""
    r = np.random.default_rng(seed)
    layers: list[tuple[Layer, int]] = []
    for _ in range(int(r.integers(3, 7))):
        group = OVER_BATCH if r.random() < 0.2 else EACH
        layers.append((group[int(r.integers(len(group)))], int(r.integers(8))))
    end = ENDS[int(r.integers(len(ENDS)))]

    def loss(p: Any, b: Any) -> Any:
        h = b["x"]
        for layer, number in layers:
            h = layer(p, b, h, number)
        return end(p, b, h)

    return Case(f"random_{seed}", loss, "", (2, 4), 2e-5)
