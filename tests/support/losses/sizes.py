"""Losses in which a number depends on how many examples there are, or on their places, where that is easily missed."""

from collections.abc import Callable
from typing import Any

import jax

from support.losses.table import WIDTH, any_jax, any_jnp, any_lax, errors, model

Loss = Callable[[Any, Any], Any]
_random: Any = jax.random


def _rows(b: Any) -> int:
    return int(b["x"].shape[0])


def _pairs(p: Any, b: Any) -> Any:
    """Sums over pairs of the batch's halves: each holds other examples in a microbatch."""
    return model(p, b).reshape(-1, 2, WIDTH).sum(0)


def _places(b: Any) -> Any:
    return any_jnp.broadcast_to(any_jnp.arange(_rows(b), dtype=any_jnp.float32)[:, None], (_rows(b), WIDTH))


def _growing(b: Any) -> Any:
    return any_jnp.broadcast_to(any_jnp.arange(1.0, WIDTH + 1) * _rows(b), b["x"].shape)


def _with_counter(p: Any, b: Any) -> Any:
    def turn(state: tuple[Any, Any], x: Any) -> tuple[tuple[Any, Any], Any]:
        key, i = state
        return (_random.fold_in(key, i), i + 1), x * _random.normal(_random.fold_in(key, i), x.shape)

    return any_lax.scan(turn, (_random.key(0), 0), model(p, b))[1].mean()


def _sum_and_rows(p: Any, b: Any) -> Any:
    total, rows = any_lax.scan(lambda c, x: (c + x.sum(), x * 2), 0.0, b["x"])
    return (any_jnp.tanh(rows @ p["w"]) * any_jnp.tanh(total / 7)).mean()


@any_jax.custom_jvp
def _two_results(x: Any) -> Any:
    return x * 2, x.mean(0)


_two_results.defjvp(lambda x, t: (_two_results(x[0]), _two_results(t[0])))


@any_jax.custom_jvp
def _centered_tangent(x: Any) -> Any:
    return x


_centered_tangent.defjvp(lambda x, t: (x[0], t[0] - t[0].mean(0)))


@any_jax.custom_vjp
def _clipped(w: Any) -> Any:
    return w


_clipped.defvjp(lambda w: (w, None), lambda _, g: (g / (0.1 + abs(g)),))


@any_jax.custom_vjp
def _square(x: Any) -> Any:
    return x * x


_square.defvjp(lambda x: (x * x, x), lambda x, g: (2 * x * g,))


def _dropped(p: Any, b: Any) -> Any:
    return model(p, b) * _random.bernoulli(_random.key(0), 0.5, b["x"].shape)


def _in_branch(p: Any, b: Any) -> Any:
    return any_lax.cond(p["scale"] > -9, lambda: _dropped(p, b), lambda: model(p, b))


SIZES: dict[str, Loss] = {
    "power": lambda p, b: (model(p, b) ** _rows(b)).mean(),
    "power of a parameter": lambda p, b: errors(p, b).mean() + p["scale"] ** _rows(b),
    "column": lambda p, b: model(p, b)[:, _rows(b) // 4].mean(),
    "entry of a mean": lambda p, b: model(p, b).mean(0)[_rows(b) // 4],
    "entry of a parameter": lambda p, b: errors(p, b).mean() + p["b"][_rows(b) // 4],
    "largest": lambda p, b: any_lax.top_k(model(p, b), max(1, _rows(b) // 4))[0].mean(),
    "padding": lambda p, b: any_jnp.pad(model(p, b), ((0, 0), (0, _rows(b)))).mean(),
    "length of a sequence": lambda p, b: b["seq"][:, : _rows(b) // 2].sum() * p["scale"],
    "picked column": lambda p, b: model(p, b)[:, any_jnp.array([_rows(b) // 4, 0])].mean(),
    "sliced column": lambda p, b: any_lax.dynamic_slice_in_dim(model(p, b), _rows(b) // 4, 1, 1).mean(),
    "written column": lambda p, b: model(p, b).at[:, _rows(b) // 4].set(0.0).mean(),
    "written rows": lambda p, b: model(p, b).at[0:2].set(0.0).mean(),
    "learned places": lambda p, b: (model(p, b) + any_jnp.tile(p["w"], (4, 1))[: _rows(b)]).mean(),
    "reshaped parameter": lambda p, b: (
        model(p, b).T * any_jnp.broadcast_to(p["b"], (_rows(b), WIDTH)).reshape(-1).reshape(WIDTH, -1)
    ).mean(),
    "uneven product": lambda p, b: (model(p, b) @ (any_jnp.ones((WIDTH, 1)) * any_jnp.arange(_rows(b))[None])).sum(),
    "uneven total": lambda p, b: (model(p, b).sum(0) * any_jnp.arange(_rows(b))[:, None]).mean(0).sum(),
    "wider rows": lambda p, b: any_jnp.concatenate([model(p, b), any_jnp.ones((_rows(b), _rows(b)))], 1).mean(),
    "repeated total": lambda p, b: any_jnp.cumsum(any_jnp.broadcast_to(model(p, b).sum(), (_rows(b),)))[-1],
    "sum of places": lambda p, b: errors(p, b).mean() * (any_jnp.arange(_rows(b)) * p["scale"]).sum(),
    "product of parameters": lambda p, b: errors(p, b).mean() * any_jnp.prod(any_jnp.full(_rows(b), p["scale"])),
    "counted loop": lambda p, b: errors(p, b).mean() * any_lax.fori_loop(0, _rows(b), lambda _, x: x * 0.9, p["scale"]),
    "loop over the model": lambda p, b: any_lax.fori_loop(
        0, _rows(b), lambda _, x: any_jnp.tanh(x @ p["w"]), model(p, b)
    ).mean(),
    "uneven turns": lambda p, b: any_lax.scan(
        lambda c, w: (c + (model(p, b) * w[:, None]).mean(), None),
        0.0,
        any_jnp.ones((3, 1)) * any_jnp.arange(_rows(b)),
    )[0],
    "product of parts": lambda p, b: (_pairs(p, b) ** 2).sum(),
    "inverse of parts": lambda p, b: (1 / (3 + _pairs(p, b))).sum(),
    "largest of parts": lambda p, b: _pairs(p, b).max(-1).sum(),
    "sorted parts": lambda p, b: (any_jnp.sort(_pairs(p, b), -1) * p["b"]).sum(),
    "shifted parts": lambda p, b: (_pairs(p, b) + 1).sum(),
    "weighted parts": lambda p, b: any_jnp.einsum(
        "g,gmw->mw", any_jnp.arange(_rows(b) // 2), model(p, b).reshape(-1, 2, WIDTH)
    ).sum(),
    "weights of the halves": lambda p, b: (model(p, b).reshape(2, -1, WIDTH) * p["b"][:2, None, None]).mean(),
    "alternating sum": lambda p, b: any_lax.scan(lambda c, a: (-c + a * p["scale"], None), 0.0, errors(p, b))[0],
    "branch of a statistic": lambda p, b: any_lax.map(
        lambda a: any_lax.cond(a[1], any_jnp.tanh, any_jnp.square, a[0]),
        (model(p, b), errors(p, b) > errors(p, b).mean()),
    ).mean(),
    "keys in a loop": _with_counter,
    "key of the size": lambda p, b: (model(p, b) * _random.normal(_random.key(_rows(b)), (WIDTH,))).mean(),
    "noise in a branch": lambda p, b: any_jnp.sqrt((_in_branch(p, b) ** 2).mean()),
    "noise and a quotient": lambda p, b: (_in_branch(p, b).mean(-1) * b["keep"]).sum() / b["keep"].sum(),
    "clipped gradient": lambda p, b: ((any_jnp.tanh(b["x"] @ _clipped(p["w"])) - b["y"]) ** 2).mean(),
    "centered tangent": lambda p, b: (_centered_tangent(b["x"] @ p["w"]) * b["y"]).mean(),
    "own derivative and noise": lambda p, b: (_square(_dropped(p, b)) * b["y"]).mean(),
    "own derivative and mask": lambda p, b: (_square(model(p, b)).mean(-1) * b["keep"]).sum() / b["keep"].sum(),
    "two results": lambda p, b: (any_jnp.tanh(_two_results(b["x"])[0] @ p["w"]) * _two_results(b["x"])[1]).mean(),
    "a sum beside rows": _sum_and_rows,
    "a cast to bool": lambda p, b: errors(p, b).sum().astype(bool).astype(any_jnp.float32) * p["scale"],
    "a cast to whole numbers": lambda p, b: (
        ((errors(p, b) * _rows(b)).astype(any_jnp.int32)).sum() / _rows(b) * p["scale"]
    ),
    "whole division": lambda p, b: errors(p, b).sum() + any_lax.div(b["label"].sum(), 3) * p["scale"],
    "negative scale": lambda p, b: abs(model(p, b) * (6 - _rows(b))).sum(),
    "sorted with places": lambda p, b: (
        any_lax.sort((model(p, b), _places(b)), dimension=1, num_keys=1)[1].mean() * p["scale"]
    ),
    "scaled products": lambda p, b: (model(p, b) * _rows(b)).at[:, 0].mul(_rows(b)).sum() / _rows(b),
    "picked outside": lambda p, b: (
        errors(p, b) * any_jnp.ones(_rows(b)).at[b["number"]].get(mode="fill", fill_value=0)
    ).mean(),
    "function of growing numbers": lambda p, b: (model(p, b) * any_jnp.tanh(0.1 * _growing(b))).mean(),
    "product of growing numbers": lambda p, b: (model(p, b) * (_growing(b) @ any_jnp.ones((WIDTH, 1)))).mean(),
    "one less": lambda p, b: errors(p, b).sum() / (_rows(b) - 1),
}
"""By what depends on the number, or the places, of examples."""
