"""Tests which arrays of a program are cut into pieces, along which axis, and how operations on pieces are computed."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.stacked import stacks, tree

import pathways as pw
from pathways.api.array_in_pieces import ArrayInPieces
from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.flatten import flatten
from pathways.compiler.frontends.jax.pieces import InPieces, cut_into_pieces

MESHES = [s.mesh("x") for s in [pw.make_virtual_device_set()] for s in [s.add_slice(devices=2) for _ in range(3)]]
jit: Any = jax.jit
STAGES = [jit(lambda w, x: jnp.tanh(x * w.sum()), in_shardings=NamedSharding(m, P())) for m in MESHES]
W = jnp.asarray(np.random.default_rng(0).standard_normal((6, 4)), jnp.float32)
PIECE_SIZES = (2, 1, 3)


def cut(function: Callable[..., Any], *arguments: Any) -> InPieces:
    def flat(*leaves: Any) -> Any:
        return tree.leaves(function(*tree.unflatten(tree.structure(arguments), leaves)))

    return cut_into_pieces(flatten(compat.traced_jaxpr(flat, *tree.leaves(arguments)), "program", None))


def sizes(found: Sequence[Any]) -> list[Any]:
    return [None if p is None else p.sizes for p in found]


def run_stages(w: Any, x: Any, bounds: Sequence[int] = (0, 2, 3, 6), stages: Sequence[Any] = STAGES) -> Any:
    for stage, a, b in zip(stages, bounds, bounds[1:], strict=False):
        x = stage(w[a:b], x)
    return x


def assert_equal_to_jax(function: Callable[..., Any], *arguments: Any) -> None:
    """Asserts that the program gives what JAX gives."""
    plain = [jit(lambda w, x: jnp.tanh(x * w.sum()))] * 3
    ours, theirs = pw.program(lambda *a: function(STAGES, *a))(*arguments), function(plain, *arguments)
    for a, b in zip(tree.leaves(ours), tree.leaves(theirs), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=1e-6)


CLIP = optax.clip_by_global_norm(0.05)


@pytest.mark.parametrize("name", ["adamw", "momentum", "lamb", "adafactor"])
def test_an_optimizer_step_joins_and_splits_no_pieces(name: str) -> None:
    tx: Any = {
        "adamw": optax.chain(CLIP, optax.adamw(1e-2)),
        "momentum": optax.chain(CLIP, optax.sgd(0.1, momentum=0.9)),
        "lamb": optax.lamb(1e-2),
        "adafactor": optax.adafactor(1e-2, min_dim_size_to_factor=4),
    }[name]
    made = stacks(PIECE_SIZES, tx, width=8)
    found = cut(made.step, *made.arguments)
    assert (found.joined, found.split) == (0, 0)
    stacked = [leaf.shape[:1] == (6,) for leaf in tree.leaves(made.arguments)]
    assert [p is not None for p in found.inputs] == stacked
    assert {p.sizes for p in found.inputs if p} == {PIECE_SIZES}


def test_gradients_are_in_pieces() -> None:
    found = cut(jax.grad(lambda w, x: run_stages(w, x).sum()), W, jnp.ones(4))
    assert sizes(found.outputs) == [PIECE_SIZES] and sizes(found.inputs) == [PIECE_SIZES, None] and not found.joined
    assert_equal_to_jax(
        lambda stages, w, x: jax.grad(lambda w, x: run_stages(w, x, stages=stages).sum())(w, x), W, jnp.ones(4)
    )


def test_an_array_over_two_slices_is_cut() -> None:
    found = cut(lambda w, x: run_stages(w, x, (0, 2, 6)), W, jnp.ones(4))
    assert sizes(found.inputs) == [(2, 4), None] and not found.joined


def one_slice(w: Any, x: Any) -> Any:
    return STAGES[0](w[2:], STAGES[0](w[:2], x))


def a_gap(w: Any, x: Any) -> Any:
    return STAGES[1](w[4:], STAGES[0](w[:2], x))


def an_overlap(w: Any, x: Any) -> Any:
    return STAGES[1](w[2:], STAGES[0](w[:4], x))


def strided(w: Any, x: Any) -> Any:
    return STAGES[1](w[1::2], STAGES[0](w[::2], x))


def moved_first(w: Any, x: Any) -> Any:
    return run_stages(jax.device_put(w, NamedSharding(MESHES[0], P())), x)


@pytest.mark.parametrize("function", [one_slice, a_gap, an_overlap, strided, moved_first], ids=lambda f: f.__name__)
def test_arrays_that_are_not_partitioned_over_slices_stay_whole(function: Any) -> None:
    found = cut(function, W, jnp.ones(4))
    assert sizes(found.inputs) in ([None, None], []) and not found.joined


def test_slicing_a_piece_further_does_not_change_the_cut() -> None:
    found = cut(lambda w, x: (run_stages(w, x), w[3:4] * 2, w[0]), W, jnp.ones(4))
    assert sizes(found.inputs) == [PIECE_SIZES, None] and not found.joined
    assert_equal_to_jax(
        lambda stages, w, x: (run_stages(w, x, stages=stages), w[3:4] * 2, w[0], w[1:5]), W, jnp.ones(4)
    )


WHOLE_ARRAY_OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "matmul": lambda w: w @ w.T,
    "sort": lambda w: jnp.sort(w, 0),
    "cumsum": lambda w: jnp.cumsum(w, 0),
    "reverse": lambda w: w[::-1] + w,
    "reshape": lambda w: w.reshape(-1) * 2,
    "gather": lambda w: w[jnp.array([5, 1])],
    "argmax": lambda w: jnp.argmax(w, 0),
    "concatenate": lambda w: jnp.concatenate([w, w]),
    "call": lambda w: STAGES[0](w, w),
    "cond": lambda w: lax.cond(w[0, 0] > 0, lambda w: w * 2, lambda w: w, w),
    "softmax": lambda w: jax.nn.softmax(w, 0),
    "relu": lambda w: jax.nn.relu(w),
    "random": lambda w: w + jax.random.normal(jax.random.key(0), w.shape),
}
PIECEWISE_OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "sums": lambda w: (w.sum(), w.sum(0), w.sum(1), w.mean(), (w * w).sum() + w.sum()),
    "others": lambda w: (w.max(0), w.min(), jnp.prod(w, 0), jnp.all(w > -9, 0), jnp.any(w > 0)),
    "closed over": lambda w: w * np.linspace(0, 1, 24, dtype=np.float32).reshape(6, 4) + np.arange(6)[:, None],
    "transposed": lambda w: (w.T * 2, w.T.sum(0), jnp.swapaxes(w, 0, 1).T),
    "reshaped": lambda w: w.reshape(6, 2, 2) + 1,
    "scalars": lambda w: jnp.where(w > w.mean(), w, 0) / (1 + jnp.abs(w).max()),
    "rows": lambda w: w / jnp.linalg.norm(w, axis=1, keepdims=True) + jnp.ones(4),
    "types": lambda w: (w.astype(jnp.bfloat16) * 2).astype(jnp.float32) + (w > 0),
    "put together": lambda w: jnp.concatenate([w[:2] * 2, w[2:3], w[3:] + 1]) + w,
    "split": lambda w: [part * 2 for part in jnp.split(w, [2, 3])],
    "zeros": lambda w: jnp.zeros_like(w) + lax.pad(w[2:3], np.float32(0), ((2, 3, 0), (0, 0, 0))) * w,
    "columns": lambda w: (w[:, 1:3], jnp.pad(w, ((0, 0), (1, 1)))),
}


@pytest.mark.long("more operations of the same kind", keep=("call", "sort", "matmul", "cond", "random"))
@pytest.mark.parametrize("name", WHOLE_ARRAY_OPERATIONS)
def test_operations_that_need_the_whole_array_equal_jax(name: str) -> None:
    other = WHOLE_ARRAY_OPERATIONS[name]
    assert cut(lambda w, x: (run_stages(w, x), other(w)), W, jnp.ones(4)).inputs[0] is not None
    if name == "call":
        pytest.skip("compared below, where the stage is JAX's own")
    assert_equal_to_jax(lambda stages, w, x: (run_stages(w, x, stages=stages), other(w)), W, jnp.ones(4))


@pytest.mark.long(
    "more operations of the same kind", keep=("reshaped", "closed over", "split", "types", "rows", "sums", "zeros")
)
@pytest.mark.parametrize("name", PIECEWISE_OPERATIONS)
def test_piecewise_operations_join_and_split_no_pieces(name: str) -> None:
    other = PIECEWISE_OPERATIONS[name]
    found = cut(lambda w, x: (run_stages(w, x), other(w)), W, jnp.ones(4))
    assert sizes(found.inputs) == [PIECE_SIZES, None] and (found.joined, found.split) == (0, 0)
    assert_equal_to_jax(lambda stages, w, x: (run_stages(w, x, stages=stages), other(w)), W, jnp.ones(4))


def test_a_whole_result_is_split_where_it_meets_pieces() -> None:
    def function(stages: Any, w: Any, x: Any) -> Any:
        return run_stages(w, x, stages=stages), w + stages[0](w, w)

    found = cut(lambda w, x: function(STAGES, w, x), W, jnp.ones(4))
    assert (found.joined, found.split) == (1, 1)
    assert_equal_to_jax(function, W, jnp.ones(4))


def test_stages_of_one_layer_cut_the_stack_into_layers() -> None:
    def function(stages: Any, w: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            y = x
            for number, stage in enumerate(stages):
                y = stage(w[number], y)
            return y.sum()

        return jax.value_and_grad(loss)(w)

    found = cut(lambda w, x: function(STAGES, w, x), W[:3], jnp.ones(4))
    assert sizes(found.inputs) == [(1, 1, 1), None] and not found.joined
    assert_equal_to_jax(function, W[:3], jnp.ones(4))


def test_arrays_of_keys_are_cut_into_pieces() -> None:
    def noise(keys: Any, x: Any) -> Any:
        return x + jax.vmap(lambda key: jax.random.normal(key, x.shape))(keys).sum(0)

    noisy = [jit(noise, in_shardings=NamedSharding(m, P())) for m in MESHES]
    keys = jax.random.split(jax.random.key(0), 6)
    plain = [jit(noise)] * 3
    program = pw.program(lambda k, x: (run_stages(k, x, stages=noisy), k))
    ours, theirs = program(keys, jnp.ones(4)), run_stages(keys, jnp.ones(4), stages=plain)
    np.testing.assert_allclose(ours[0], theirs, rtol=1e-5)
    assert isinstance(ours[1], ArrayInPieces) and ours[1].shape == (6,) and ours[1].dtype == keys.dtype
    again = program(ours[1], jnp.ones(4))
    np.testing.assert_array_equal(jax.random.key_data(again[1].to_jax()), jax.random.key_data(keys))
    other = pw.program(lambda k: jax.random.key_data(k))(ours[1])
    np.testing.assert_array_equal(other, jax.random.key_data(keys))


def test_a_cast_of_the_whole_stack_is_cut_into_pieces() -> None:
    def function(stages: Any, w: Any, x: Any) -> Any:
        return jax.grad(lambda w: run_stages(w.astype(jnp.bfloat16), x, stages=stages).astype(jnp.float32).sum())(w)

    found = cut(lambda w, x: function(STAGES, w, x), W, jnp.ones(4, jnp.bfloat16))
    assert sizes(found.inputs) == [PIECE_SIZES, None] and sizes(found.outputs) == [PIECE_SIZES] and not found.joined
