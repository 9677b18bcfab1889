"""Tests microbatches: how their losses are reduced, which options are refused, and which losses cannot be split."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pathways as pw
from pathways.dialect.diagnostics import PathwaysError
from tests.support.unplaced import unplaced

W = jnp.linspace(-1.0, 1.0, 16).reshape(4, 4)
X = jnp.linspace(0.0, 2.0, 32).reshape(8, 4)
MASK = jnp.array([1, 1, 1, 0, 1, 0, 0, 0], jnp.float32)


def mean(w: Any, x: Any) -> Any:
    return jnp.tanh(jnp.tanh(x @ w) @ w).mean()


def masked_mean(w: Any, x: Any, mask: Any) -> Any:
    return (jnp.tanh(x @ w).mean(-1) * mask).sum() / mask.sum()


def masked_sums(w: Any, x: Any, mask: Any) -> Any:
    return (jnp.tanh(x @ w).mean(-1) * mask).sum(), mask.sum()


def normalized(w: Any, x: Any) -> Any:
    """Normalizes by a mean over the batch, so that microbatches change its value."""
    h = x @ w
    return jnp.tanh(h / (1 + (h**2).mean(0))).sum(-1).mean()


def with_aux(w: Any, x: Any) -> Any:
    h = jnp.tanh(x @ w)
    return h.mean(), {"rows": h, "first": h[0, 0]}


@pytest.mark.parametrize("count", [1, 2, 8])
def test_means_and_sums_of_microbatches_equal_those_of_the_batch(count: int) -> None:
    np.testing.assert_allclose(unplaced(mean, 2, microbatches=count)(W, X), mean(W, X), rtol=1e-6)
    total = unplaced(lambda w, x: mean(w, x) * x.shape[0], 2, microbatches=count, reduce="sum")
    np.testing.assert_allclose(total(W, X), mean(W, X) * 8, rtol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_masked_means_are_reduced_by_weight(count: int) -> None:
    cut = unplaced(masked_sums, 2, microbatches=count, batch_argnums=(1, 2), reduce="weighted")
    value, gradient = jax.value_and_grad(cut)(W, X, MASK)
    expected, plain = jax.value_and_grad(masked_mean)(W, X, MASK)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(gradient, plain, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("aux", "rows", "first"), [("stack", (4, 2, 4), (4,)), ("last", (2, 4), ()), ("mean", (2, 4), ())]
)
def test_auxiliary_outputs_of_a_loss_are_kept(aux: str, rows: tuple[int, ...], first: tuple[int, ...]) -> None:
    value, kept = unplaced(with_aux, 2, microbatches=4, has_aux=True, aux=aux)(W, X)
    np.testing.assert_allclose(value, with_aux(W, X)[0], rtol=1e-6)
    assert (kept["rows"].shape, kept["first"].shape) == (rows, first)


def test_auxiliary_rows_are_concatenated() -> None:
    def rows(w: Any, x: Any) -> Any:
        value, kept = with_aux(w, x)
        return value, kept["rows"]

    _, joined = unplaced(rows, 2, microbatches=4, has_aux=True, aux="concat")(W, X)
    np.testing.assert_allclose(joined, with_aux(W, X)[1]["rows"], atol=1e-6)


def test_keys_are_split_and_scalars_repeated_for_each_microbatch() -> None:
    def loss(w: Any, batch: Any) -> Any:
        x, key, scale = batch
        return (jnp.tanh(x @ w) * jax.random.bernoulli(key, 0.5, x.shape)).mean() * scale

    batch = (X, jax.random.key(0), jnp.float32(2))
    value = unplaced(loss, 2, microbatches=2)(W, batch)
    keys = jax.random.split(batch[1], 2)
    halves = [loss(W, (x, key, 2.0)) for x, key in zip(X.reshape(2, 4, 4), keys, strict=True)]
    np.testing.assert_allclose(value, sum(halves) / 2, rtol=1e-6)


def test_gradients_accumulate_in_the_requested_type() -> None:
    """In bfloat16, 256 plus 63 times 1 is 256: the ones are lost. Backward starts with the last microbatch."""
    rows = jnp.array([1.0] * 63 + [256.0]).astype(jnp.bfloat16)

    def loss(w: Any, x: Any) -> Any:
        return (w * x * jnp.ones((1,), jnp.bfloat16)).sum()

    w = jnp.bfloat16(1)
    narrow = jax.grad(unplaced(loss, 1, microbatches=64, reduce="sum"))(w, rows)
    wide = jax.grad(unplaced(loss, 1, microbatches=64, reduce="sum", accumulate=jnp.float32))(w, rows)
    assert (float(narrow), float(wide)) == (256.0, 320.0)
    assert wide.dtype == jnp.bfloat16


def test_check_microbatches_accepts_a_mean_and_refuses_a_batch_norm() -> None:
    devices = pw.make_virtual_device_set()
    slices = [devices.add_slice(devices=1) for _ in range(2)]
    assert pw.check_microbatches(pw.pipeline(mean, slices, microbatches=4), W, X) < 1e-5
    with pytest.raises(PathwaysError, match="PWC0114"):
        pw.check_microbatches(pw.pipeline(normalized, slices, microbatches=4), W, X)
    with pytest.raises(PathwaysError, match=r"PWC0114.*\n(.*\n)*.*weighted"):
        pw.check_microbatches(pw.pipeline(masked_mean, slices, microbatches=4, batch_argnums=(1, 2)), W, X, MASK)


def test_sums_of_16_bit_values_accumulate_in_32_bits() -> None:
    """In bfloat16 a sum of 512 weights of 1 stops growing; in float16 the sum of four losses of 30,000 overflows."""
    ones = jnp.ones((2048,), jnp.bfloat16)

    def weighted(w: Any, rows: Any) -> Any:
        return (w * rows).sum(), rows.sum()

    value = unplaced(weighted, 1, microbatches=512, reduce="weighted")(jnp.bfloat16(1), ones)
    assert (float(value), value.dtype) == (1.0, jnp.bfloat16)
    large = unplaced(lambda w, x: (w * x).mean(), 1, microbatches=4)(jnp.float16(30000), jnp.ones(8, jnp.float16))
    assert (float(large), large.dtype) == (30000.0, jnp.float16)


@pytest.mark.parametrize("count", [1, 2])
def test_a_weighted_loss_may_return_a_list_with_an_integer_weight(count: int) -> None:
    cut = unplaced(lambda w, x: [jnp.tanh(x @ w).sum(), x.shape[0]], 1, microbatches=count, reduce="weighted")
    np.testing.assert_allclose(cut(W, X), jnp.tanh(X @ W).sum() / 8, rtol=1e-6)


def test_check_microbatches_ignores_rounding_noise_and_refuses_nan() -> None:
    made = pw.make_virtual_device_set()
    slices = [made.add_slice(devices=1) for _ in range(2)]

    def shifted(params: Any, x: Any) -> Any:
        """The softmax cancels the bias, so the gradient of the bias is rounding noise."""
        scores = jax.nn.softmax(x @ params["w"] + params["bias"][:1], -1)
        return (scores * x).sum(-1).mean()

    params = {"w": W, "bias": jnp.ones(4)}
    assert pw.check_microbatches(pw.pipeline(shifted, slices, microbatches=4), params, X) < 1e-5

    def no_number(w: Any, x: Any) -> Any:
        h = jnp.tanh(x @ w)
        return (h**2).mean() + 0.0 * jnp.sqrt(((h - h.mean(0)) ** 2).sum(0)).sum()

    with pytest.raises(PathwaysError, match=r"PWC0114.*\n(.*\n)*.*nan"):
        pw.check_microbatches(pw.pipeline(no_number, slices, microbatches=8), W, X)


def test_check_microbatches_accepts_parameters_that_are_no_arrays() -> None:
    made = pw.make_virtual_device_set()

    def loss(params: Any, x: Any) -> Any:
        return params["activation"](params["activation"](x @ params["w"]) @ params["w"]).mean()

    cut = pw.pipeline(loss, [made.add_slice(devices=1) for _ in range(2)], microbatches=2)
    assert pw.check_microbatches(cut, {"w": W, "activation": jax.nn.relu, "name": "net"}, X) < 1e-5


@pytest.mark.parametrize(
    ("loss", "options", "message"),
    [
        (mean, {"microbatches": 3}, "8 mod 3 = 2"),
        (mean, {"microbatches": 0}, "a whole number from 1"),
        (mean, {"reduce": "median"}, "mean, sum, weighted"),
        (mean, {"aux": "first"}, "stack, mean"),
        (mean, {"microbatches": 2, "batch_argnums": 2}, "an argument 2, by position"),
        (mean, {"microbatches": 2, "reduce": "weighted"}, "(sum, weight)"),
        (mean, {"microbatches": 2, "has_aux": True}, "(loss, aux)"),
        (lambda w, x: jnp.tanh(jnp.tanh(x @ w) @ w), {"microbatches": 2}, "a scalar"),
        (with_aux, {"microbatches": 2, "has_aux": True, "aux": "concat"}, "one dimension or more"),
    ],
)
def test_invalid_options_and_losses_are_refused(loss: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(PathwaysError) as raised:
        unplaced(loss, 2, **options)(W, X)
    assert raised.value.diagnostics[0].code == "PWC0112"
    assert message in str(raised.value)
