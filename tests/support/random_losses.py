"""Generates random losses: blocks of all kinds in random order, with skips, shared weights, loops and side terms.

Side terms are scan outputs and weight decay: they reach the loss without passing through the later blocks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

WIDTH, ROWS = 6, 8


@jax.custom_vjp
def _soft(x: Any) -> Any:
    return x / (1 + jnp.abs(x))


def _soft_forward(x: Any) -> Any:
    return _soft(x), x


def _soft_backward(x: Any, cotangent: Any) -> Any:
    return (cotangent / (1 + jnp.abs(x)) ** 2,)


_soft.defvjp(_soft_forward, _soft_backward)


@jax.custom_jvp
def _bent(x: Any) -> Any:
    return jnp.sin(x)


@_bent.defjvp
def _bent_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return _bent(x), jnp.cos(x) * t


@dataclass(frozen=True)
class RandomLoss:
    """A loss of `(params, x)` whose mean over microbatches equals its value for the whole batch."""

    loss: Callable[..., Any]
    params: dict[str, Any]
    x: Any
    blocks: tuple[str, ...]


def _dense(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w)


def _norm(w: Any, x: Any) -> Any:
    centered = x - x.mean(-1, keepdims=True)
    return centered * lax.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-3) * w.sum(0)


def _gate(w: Any, x: Any) -> Any:
    return x * jax.nn.sigmoid(x @ w)


def _masked(w: Any, x: Any) -> Any:
    keep = jax.random.bernoulli(jax.random.fold_in(jax.random.key(3), 1), 0.8, (WIDTH,))
    return jnp.where(keep, x @ w, 0.0)


def _branches(w: Any, x: Any) -> Any:
    return lax.cond(w[0, 0] > 0, lambda: x @ w, lambda: jnp.sin(x))


def _normed_weight(w: Any, x: Any) -> Any:
    return x @ (w / (1 + jnp.linalg.norm(w)))


KINDS: dict[str, Callable[[Any, Any], Any]] = {
    "dense": _dense,
    "norm": _norm,
    "gate": _gate,
    "mask": _masked,
    "cond": _branches,
    "custom_vjp": lambda w, x: _soft(x @ w),
    "custom_jvp": lambda w, x: _bent(x @ w),
    "weight norm": _normed_weight,
    "remat": jax.checkpoint(_dense),
    "jit": jax.jit(lambda w, x: _dense(w, _gate(w, x))),
    "vmap": lambda w, x: jax.vmap(lambda row: jnp.tanh(row @ w))(x),
}
LOOPS = ("scan", "scan back", "scan ys", "scan remat", "scan cast")


def _loop(kind: str, w: Any, x: Any) -> tuple[Any, Any]:
    def body(x: Any, w: Any) -> Any:
        y = x + jnp.tanh(x @ w)
        return y, y.mean() if kind == "scan ys" else None

    stack = w * 0.5 if kind == "scan cast" else w
    turn = jax.checkpoint(body) if kind == "scan remat" else body
    x, ys = lax.scan(turn, x, stack, reverse=kind == "scan back")
    return x, ys


def random_loss(seed: int) -> RandomLoss:
    """Generates the random loss of a seed."""
    rng = np.random.default_rng(seed)
    names = [*KINDS, *LOOPS, "skip", "share"]
    blocks = tuple(str(rng.choice(names)) for _ in range(rng.integers(5, 11)))
    params: dict[str, Any] = {"first": rng.normal(size=(WIDTH, WIDTH)).astype(np.float32)}
    for i, block in enumerate(blocks):
        shape = (int(rng.integers(3, 7)), WIDTH, WIDTH) if block in LOOPS else (WIDTH, WIDTH)
        if block not in ("skip", "share"):
            params[f"w{i}"] = (rng.normal(size=shape) / WIDTH**0.5).astype(np.float32)
    decay, jitted = bool(rng.integers(2)), bool(rng.integers(2))
    far = [int(rng.integers(0, i + 1)) for i in range(len(blocks))]

    def loss(params: dict[str, Any], x: Any) -> Any:
        x, extra = jnp.tanh(x @ params["first"]), jnp.float32(0)
        made = [x]
        for i, block in enumerate(blocks):
            if block == "skip":
                x = x + made[far[i]]
            elif block == "share":
                x = _dense(params["first"], x)
            elif block in LOOPS:
                x, ys = _loop(block, params[f"w{i}"], x)
                extra = extra if ys is None else extra + ys.sum()
            else:
                x = x + KINDS[block](params[f"w{i}"], x)
            made.append(x)
        value = (x**2).mean() + 0.1 * extra
        return value + 1e-2 * (params["first"] ** 2).sum() if decay else value

    return RandomLoss(
        jax.jit(loss) if jitted else loss, params, rng.normal(size=(ROWS, WIDTH)).astype(np.float32), blocks
    )
