"""Tests microbatches: how their losses are reduced, which options are refused, and which losses cannot be split."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pathways as pw
from pathways.compiler.frontends.jax.pipeline.microbatches import Microbatches
from pathways.dialect.diagnostics import PathwaysError
from tests.support.unplaced import unplaced

W = jnp.linspace(-1.0, 1.0, 16).reshape(4, 4)
X = jnp.linspace(0.0, 2.0, 32).reshape(8, 4)
MASK = jnp.array([1, 1, 1, 0, 1, 0, 0, 0], jnp.float32)
MEAN = Microbatches(2, "mean", has_aux=False, aux="stack")
SUM = replace(MEAN, reduce="sum")
WEIGHTED = replace(MEAN, reduce="weighted")
ROWS = jnp.arange(12, dtype=jnp.float32).reshape(2, 3, 2)
"""Two microbatches of three rows."""
AUX = replace(MEAN, has_aux=True)
ARRAY = jnp.zeros((3, 2))


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
    value, kept = unplaced(with_aux, 2, microbatches=4, has_aux=True, aux=aux, mixes="allow")(W, X)
    np.testing.assert_allclose(value, with_aux(W, X)[0], rtol=1e-6)
    assert (kept["rows"].shape, kept["first"].shape) == (rows, first)


def test_auxiliary_rows_are_concatenated() -> None:
    def rows(w: Any, x: Any) -> Any:
        value, kept = with_aux(w, x)
        return value, kept["rows"]

    _, joined = unplaced(rows, 2, microbatches=4, has_aux=True, aux="concat")(W, X)
    np.testing.assert_allclose(joined, with_aux(W, X)[1]["rows"], atol=1e-6)


def noisy(w: Any, batch: Any) -> Any:
    x, key, scale = batch
    return (jnp.tanh(x @ w) * jax.random.bernoulli(key, 0.5, x.shape)).mean() * scale


def test_a_key_of_the_batch_draws_once_and_scalars_are_repeated_for_each_microbatch() -> None:
    batch = (X, jax.random.key(0), jnp.float32(2))
    value = unplaced(noisy, 2, microbatches=2)(W, batch)
    np.testing.assert_allclose(value, noisy(W, batch), rtol=1e-6)


def test_keys_are_split_for_microbatches_that_have_statistics_of_their_own() -> None:
    def loss(w: Any, batch: Any) -> Any:
        x = jnp.tanh(batch[0] @ w)
        return noisy(w, batch) * (x / (1 + abs(x).max())).mean()

    batch = (X, jax.random.key(0), jnp.float32(2))
    value = unplaced(loss, 2, microbatches=2, mixes="allow")(W, batch)
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


def test_check_microbatches_accepts_means_and_refuses_a_batch_norm() -> None:
    devices = pw.make_virtual_device_set()
    slices = [devices.add_slice(devices=1) for _ in range(2)]
    assert pw.check_microbatches(pw.pipeline(mean, slices, microbatches=4), W, X) < 1e-5
    with pytest.raises(PathwaysError, match="PWC0114"):
        pw.check_microbatches(pw.pipeline(normalized, slices, microbatches=4), W, X)
    masked = pw.pipeline(masked_mean, slices, microbatches=4, batch_argnums=(1, 2))
    assert pw.check_microbatches(masked, W, X, MASK) < 1e-5


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
        (mean, {"microbatches": 2, "batch_argnums": 2}, "positional argument 2, which is in batch_argnums"),
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


def refused(function: Any, *args: Any) -> str:
    with pytest.raises(PathwaysError) as caught:
        function(*args)
    (error,) = caught.value.diagnostics
    assert error.code == "PWC0112"
    return str(caught.value)


def test_rows_are_split_in_their_order() -> None:
    x = np.arange(24).reshape(6, 4)
    np.testing.assert_array_equal(replace(MEAN, count=3).split(x, "x"), x.reshape(3, 2, 4))
    np.testing.assert_array_equal(MEAN.split(np.arange(6), "x"), [[0, 1, 2], [3, 4, 5]])


def test_scalars_are_repeated_and_keys_are_split() -> None:
    np.testing.assert_array_equal(MEAN.split(np.float32(3), "x"), [3, 3])
    key: Any = jax.random.key(1)
    one, other = jax.random.key_data(MEAN.split(key, "key"))
    expected = jax.random.key_data(jax.random.split(key, 2))
    np.testing.assert_array_equal([one, other], expected)
    many = MEAN.split(jax.random.split(key, 4), "keys")
    np.testing.assert_array_equal(jax.random.key_data(many[1]), jax.random.key_data(jax.random.split(key, 4)[2:]))


@pytest.mark.parametrize("shape", [(6, 4), (6,), ()])
def test_types_are_split_as_arrays_are(shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, np.float16)
    found, expected = MEAN.split(jax.ShapeDtypeStruct(shape, np.float16), "x"), MEAN.split(array, "x")
    assert isinstance(found, jax.ShapeDtypeStruct)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    key: Any = jax.eval_shape(lambda: jax.random.key(0))
    split = MEAN.split(jax.ShapeDtypeStruct(key.shape, key.dtype), "key")
    assert (split.shape, split.dtype) == ((2,), key.dtype)


@pytest.mark.parametrize(
    ("leaf", "name", "have", "advice"),
    [
        (np.zeros((7, 2)), "['x']", "['x'] has 7 rows: 7 mod 4 = 3", "a padded batch"),
        (np.zeros(2, np.uint32), "", "the batch has 2 rows: 2 mod 4 = 2", "a typed key"),
        (np.zeros(5, np.uint32), "", "the batch has 5 rows: 5 mod 4 = 1", "a padded batch"),
        (np.zeros(2, np.int32), "", "the batch has 2 rows: 2 mod 4 = 2", "a padded batch"),
        (np.zeros((2, 4), np.uint32), "", "the batch has 2 rows", "a padded batch"),
    ],
)
def test_rows_that_do_not_divide_are_refused(leaf: Any, name: str, have: str, advice: str) -> None:
    text = refused(replace(MEAN, count=4).split, leaf, name)
    assert have in text and advice in text and "into 4 microbatches" in text


def test_the_two_kinds_of_old_keys_are_known() -> None:
    for words, count in ((2, 3), (4, 3), (4, 8)):
        assert "a typed key" in refused(replace(MEAN, count=count).split, np.zeros(words, np.uint32), "")
    assert "a typed key" not in refused(replace(MEAN, count=2).split, np.zeros(3, np.uint32), "")


def total(leaves: Sequence[Any]) -> Any:
    return leaves[0].sum(), None


def test_losses_of_microbatches_are_added_or_averaged() -> None:
    assert float(SUM.over(total, [ROWS])) == 66
    assert float(MEAN.over(total, [ROWS])) == 33
    by_weight = WEIGHTED.over(lambda leaves: ((leaves[0].sum(), leaves[0][0, 0] + 1), None), [ROWS])
    assert float(by_weight) == 66 / (1 + 7)
    assert float(MEAN.over(total, [ROWS], lambda sums, _: sums * 3)) == 66 * 3


def test_a_loss_keeps_its_type_if_it_is_a_floating_one() -> None:
    half = ROWS.astype(jnp.float16)
    found = MEAN.over(total, [half])
    assert (float(found), found.dtype) == (33, jnp.float16)
    numbers = jnp.array([[1], [2]], jnp.int32)
    mean = MEAN.over(total, [numbers])
    assert (float(mean), mean.dtype) == (1.5, jnp.float32)
    added = SUM.over(total, [numbers])
    assert (int(added), added.dtype) == (3, jnp.int32)


def test_sums_of_32_bits_stay_of_32_bits() -> None:
    """In 64 bits, a sum of a loss of 32 bits is of 32 bits, and of 16 bits as well."""
    with jax.enable_x64(True):
        assert SUM.over(total, [ROWS]).dtype == jnp.float32
        assert SUM.over(total, [ROWS.astype(jnp.float64)]).dtype == jnp.float64


@pytest.mark.parametrize(
    ("aux", "expected"),
    [
        ("stack", ROWS),
        ("mean", (ROWS[0] + ROWS[1]) / 2),
        ("sum", ROWS[0] + ROWS[1]),
        ("last", ROWS[1]),
        ("concat", ROWS.reshape(6, 2)),
    ],
)
def test_what_else_microbatches_return_becomes_one(aux: str, expected: Any) -> None:
    both = replace(MEAN, has_aux=True, aux=aux)
    value, kept = both.over(lambda leaves: (leaves[0].sum(), {"rows": leaves[0]}), [ROWS])
    assert float(value) == 33
    np.testing.assert_array_equal(kept["rows"], expected)


def test_values_of_one_dimension_are_joined_and_numbers_are_not() -> None:
    both = replace(MEAN, has_aux=True, aux="concat")
    _, kept = both.over(lambda leaves: (leaves[0].sum(), leaves[0][:, 1]), [ROWS])
    np.testing.assert_array_equal(kept, [1, 3, 5, 7, 9, 11])
    text = refused(both.over, lambda leaves: (leaves[0].sum(), leaves[0][0, 0]), [ROWS])
    assert "a value of shape () for each microbatch" in text


def test_the_loss_of_a_whole_batch_is_reduced_the_same_way() -> None:
    one = replace(MEAN, count=1)
    assert one.unsplit(3.0) == 3.0
    assert one.unsplit([1, 2]) == [1, 2], "without microbatches, any tree"
    assert float(replace(one, reduce="weighted").unsplit((6.0, 4))) == 1.5
    assert replace(one, has_aux=True).unsplit((3.0, "aux")) == (3.0, "aux")
    value, aux = replace(one, has_aux=True, reduce="weighted").unsplit(([6.0, 4.0], "aux"))
    assert (float(value), aux) == (1.5, "aux")


@pytest.mark.parametrize(
    ("many", "made", "have"),
    [
        (AUX, 1.0, "1.0"),
        (AUX, (1.0, 2.0, 3.0), "(1.0, 2.0, 3.0)"),
        (AUX, [1.0, 2.0], "[1.0, 2.0]"),
        (AUX, (ARRAY,), "('float32[3, 2]',)"),
        (AUX, (ARRAY, None), "float32[3, 2]"),
        (MEAN, ARRAY, "float32[3, 2]"),
        (MEAN, {"loss": ARRAY[0, 0]}, "{'loss': 'float32[]'}"),
        (WEIGHTED, ARRAY[0, 0], "float32[]"),
        (WEIGHTED, (1.0, 2.0, 3.0), "(1.0, 2.0, 3.0)"),
        (WEIGHTED, (ARRAY[0, 0],), "('float32[]',)"),
        (WEIGHTED, (ARRAY[0, 0], ARRAY[0]), "('float32[]', 'float32[2]')"),
        (WEIGHTED, (ARRAY[0], 1.0), "('float32[2]', '1.0')"),
    ],
)
def test_results_of_another_structure_are_refused_with_what_they_are(many: Microbatches, made: Any, have: str) -> None:
    text = refused(many.unsplit, made)
    assert have.replace("'", "") in text.replace("'", "")
