"""Random losses that compute example by example in some parts, and in others over the batch or by its size."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from support.losses.table import CLASSES, TIME, WIDTH, Case, any_jax, any_jnp, any_lax, errors

_random: Any = jax.random
Layer = Callable[[Any, Any, Any, int], Any]
"""Makes the next [examples, WIDTH] of parameters, batch, the last one and a number that chooses details."""


def _normalized(h: Any) -> Any:
    return (h - h.mean(0)) / any_jnp.sqrt(h.var(0) + 1e-2)


def _in_heads(h: Any) -> Any:
    parts = h.reshape(-1, 2, WIDTH // 2)
    return (jax.nn.softmax(any_jnp.einsum("bhd,bgd->bhg", parts, parts)) @ parts).reshape(-1, WIDTH)


def _count(h: Any) -> int:
    return int(h.shape[0])


def _sums_of_halves(h: Any) -> Any:
    return h.reshape(2, -1, WIDTH).sum(0).repeat(2, 0).reshape(h.shape) if _count(h) > 2 else h


def _with_keys(h: Any, keys: Any) -> Any:
    return any_jax.vmap(lambda x, key: x * _random.normal(key, x.shape))(h, keys)


def _in_pairs(h: Any) -> Any:
    pairs = h.reshape(-1, 2, WIDTH)
    return any_jnp.tanh(pairs - pairs.mean(1, keepdims=True)).reshape(h.shape)


def _dropped(h: Any, k: int) -> Any:
    return h * _random.bernoulli(_random.key(k), 0.7, h.shape)


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
    lambda p, b, h, k: h * (_count(h) / 8),
    lambda p, b, h, k: h * any_jnp.log(1.0 * _count(h)),
    lambda p, b, h, k: h + p["b"][_count(h) // 4 % WIDTH],
    lambda p, b, h, k: h * any_jnp.tile(p["w"], (4, 1))[: _count(h)],
    lambda p, b, h, k: _sums_of_halves(h),
    lambda p, b, h, k: (h.reshape(2, -1, WIDTH) * p["b"][:2, None, None]).reshape(h.shape),
    lambda p, b, h, k: any_lax.scan(lambda c, x: (c * 0.5 + x, c * 0.5 + x), any_jnp.zeros(WIDTH), h)[1],
    lambda p, b, h, k: any_lax.scan(lambda c, x: (c + 1, x * any_jnp.cos(c * 0.1)), any_jnp.float32(0), h)[1],
    lambda p, b, h, k: h * _random.normal(_random.key(_count(h)), (WIDTH,)),
    lambda p, b, h, k: _with_keys(h, _random.split(_random.key(k), _count(h))),
    lambda p, b, h, k: h - any_jax.nn.logsumexp(h, axis=0),
    lambda p, b, h, k: any_jnp.where(h.mean() > 0, h, h * 2),
    lambda p, b, h, k: h.at[0].set(0.0),
    lambda p, b, h, k: h.at[b["number"] % _count(h)].add(1.0),
    lambda p, b, h, k: h[b["number"] % _count(h)],
    lambda p, b, h, k: any_jnp.pad(h, ((1, 0), (0, 0)))[:-1],
    lambda p, b, h, k: any_lax.fori_loop(0, _count(h), lambda i, x: x * 0.99, h),
    lambda p, b, h, k: h * (b["keep"].sum() / _count(h)),
    lambda p, b, h, k: h * any_jnp.ones(_count(h)).cumsum()[:, None] * 0.1,
    lambda p, b, h, k: any_jnp.eye(_count(h)) @ h,
    lambda p, b, h, k: (any_jnp.ones((_count(h), _count(h))) / _count(h)) @ h,
    lambda p, b, h, k: any_jnp.einsum("bi,bj,bj->bi", h, h, b["y"]),
    lambda p, b, h, k: any_lax.map(lambda x: any_jnp.tanh(x @ p["w"]), h),
    lambda p, b, h, k: h - h.reshape(-1, 2, WIDTH).mean(1).repeat(2, 0),
    lambda p, b, h, k: h * any_jnp.sign(h.sum(0)),
    lambda p, b, h, k: h / (1e-3 + any_jnp.linalg.norm(h, axis=0)),
    lambda p, b, h, k: any_jnp.concatenate([h[_count(h) // 2 :], h[: _count(h) // 2]]),
    lambda p, b, h, k: (h * _count(h)).astype(any_jnp.int32).astype(any_jnp.float32) / _count(h) + h,
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
    lambda p, b, h: (h**2).mean(0).max(),
    lambda p, b, h: abs(h).sum() / any_jnp.maximum(b["keep"].sum(), 1) * p["scale"],
    lambda p, b, h: any_jax.nn.logsumexp(h.mean(-1)),
    lambda p, b, h: (h.mean(0) @ p["b"]) ** 2 + errors(p, b).mean(),
    lambda p, b, h: (h * b["y"]).sum() / _count(h) ** 0.5,
    lambda p, b, h: any_lax.scan(lambda c, x: (c + (x**2).sum(), None), 0.0, h)[0] / _count(h),
    lambda p, b, h: any_jnp.vdot(h, b["y"]) / h.size,
    lambda p, b, h: any_jax.ops.segment_sum(h.sum(-1), b["label"], CLASSES).max() * p["scale"],
    lambda p, b, h: any_jnp.var(h),
    lambda p, b, h: any_jnp.prod(1 + 0.01 * h.mean(-1)),
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

    return Case(f"random_{seed}", loss, "", (2, 4), 1e-4)
