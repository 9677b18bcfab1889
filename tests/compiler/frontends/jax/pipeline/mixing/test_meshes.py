"""Tests losses with `shard_map` inside: an axis of the mesh over which the batch is split numbers examples."""

from collections.abc import Callable
from typing import Any

import jax
import pytest
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P
from support.losses.table import any_jax, any_jnp, any_lax

from pathways.compiler.frontends.jax.pipeline.mixing.handling import handled

MESH = AbstractMesh((2, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
ROWS, WIDTH = 16, 4
Body = Callable[[Any, Any], Any]


def verdict_of(body: Body, count: int, out: Any = None, weights: Any = None) -> str:
    """What the sum, or mean, of a shard_map over examples and weights is."""
    specs = (P(None, "model") if weights is None else weights, P("data"))
    out_specs = P() if out is None else out

    def loss(w: Any, x: Any) -> list[Any]:
        made = any_jax.shard_map(body, mesh=MESH, in_specs=specs, out_specs=out_specs, check_vma=False)(w, x)
        return [made if out is None else made.mean()]

    return semantics_of(loss, count)


def semantics_of(loss: Callable[[Any, Any], list[Any]], count: int) -> str:
    types = [jax.ShapeDtypeStruct((WIDTH, WIDTH), "float32"), jax.ShapeDtypeStruct((ROWS, WIDTH), "float32")]
    return handled(loss, types, frozenset({1}), count).verdict.semantics.value


def added_up(w: Any, x: Any) -> Any:
    return any_lax.psum((x @ w).sum(), ("data", "model"))


def averaged(w: Any, x: Any) -> Any:
    return any_lax.pmean((x @ w).mean(), ("data", "model"))


def normalized_on_each_device(w: Any, x: Any) -> Any:
    h = x @ w
    return any_lax.pmean(any_jnp.square(h - h.mean(0)).mean(), ("data", "model"))


def normalized_over_devices(w: Any, x: Any) -> Any:
    h = x @ w
    return any_lax.pmean(any_jnp.square(h - any_lax.pmean(h.mean(0), "data")).mean(), ("data", "model"))


def contrasted(w: Any, x: Any) -> Any:
    h = x @ w
    every = any_lax.all_gather(h, "data", tiled=True)
    return any_lax.pmean(any_jnp.exp(h @ every.T).mean(), ("data", "model"))


def told_by_device(w: Any, x: Any) -> Any:
    return any_lax.pmean((x @ w).mean() * any_lax.axis_index("data"), ("data", "model"))


def root_over_devices(w: Any, x: Any) -> Any:
    return any_jnp.sqrt(any_lax.pmean(any_jnp.square(x @ w).mean(), ("data", "model")))


def moved_between_devices(w: Any, x: Any) -> Any:
    other = any_lax.ppermute(x, "data", [(0, 1), (1, 0)])
    return any_lax.pmean((other * (x @ w).sum(-1, keepdims=True)).mean(), ("data", "model"))


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        (added_up, "sum"),
        (averaged, "mean"),
        (normalized_on_each_device, "mixes"),
        (normalized_over_devices, "mixes"),
        (contrasted, "mixes"),
        (told_by_device, "unknown"),
        (root_over_devices, "unknown"),  # its sums cannot be taken out of the shard_map
        (moved_between_devices, "mixes"),
    ],
)
def test_a_loss_of_devices_is_what_it_is_without(body: Body, verdict: str, count: int) -> None:
    assert verdict_of(body, count) == verdict


def test_a_sum_over_half_of_the_joined_rows_of_each_device_is_unknown() -> None:
    """Each device sums over half of its examples, which are other examples in a microbatch."""

    def half(x: Any) -> Any:
        return any_lax.psum(x[: x.shape[0] // 2].sum(), "data")

    def loss(w: Any, x: Any) -> list[Any]:
        twice = any_jnp.concatenate([x @ w, any_jnp.tanh(x @ w)])
        return [any_jax.shard_map(half, mesh=MESH, in_specs=P("data"), out_specs=P(), check_vma=False)(twice)]

    assert semantics_of(loss, 2) == "unknown"


def test_rows_come_back_from_devices_as_rows() -> None:
    def rows(w: Any, x: Any) -> Any:
        return any_jnp.tanh(x @ w)

    def gathered(w: Any, x: Any) -> Any:
        return any_lax.all_gather(any_jnp.tanh(x @ w), "model", axis=1, tiled=True)

    assert verdict_of(rows, 2, P("data", "model")) == "mean"
    assert verdict_of(gathered, 2, P("data", None)) == "mean"
    assert verdict_of(rows, 2, P(None, "data"), P()) == "mean", "side by side, too"
