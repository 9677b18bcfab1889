"""Tests that losses over microbatches equal those of the whole batch, in stages, under GPipe and 1F1B."""

from typing import Any

import jax
import numpy as np
import pytest
from support.losses import CASES, Case
from support.losses.table import Loss, any_jax, any_jnp, errors, examples, is_equal, numbers_of, parameters

import pathways as pw
from pathways.compiler.frontends.jax.pipeline.mixing.hoist import made_once
from pathways.dialect.diagnostics import PathwaysError
from tests.compiler.frontends.jax.pipeline.mixing.test_verdicts import handling_of
from tests.support.unplaced import unplaced

WHOLE = [case for case in CASES.values() if case.is_ in ("mean", "sum", "exact")]
BY_TOTALS = ("weights_of_the_model", "covariance")
"""Losses for which every backward pass needs sums over all microbatches."""


def named(case: Any) -> str:
    return case.name if isinstance(case, Case) else str(case)


def reduce_of(case: Case) -> str:
    return "sum" if case.is_ == "sum" else "mean"


@pytest.mark.long("all losses", keep=("dropout_in_each_layer", "masked_tokens", "weights_of_the_model", "summed_in*"))
@pytest.mark.parametrize("case", WHOLE, ids=named)
def test_a_loss_in_stages_is_that_of_the_whole_batch(case: Case) -> None:
    p, b = parameters(), examples()
    for count in case.counts:
        cut = unplaced(case.loss, 1, microbatches=count, mixes="refuse", reduce=reduce_of(case))
        found = any_jax.jit(any_jax.value_and_grad(cut))(p, b)
        whole = any_jax.value_and_grad(case.loss)(p, b)
        assert is_equal(numbers_of(whole), numbers_of(found), case.tolerance), count


@pytest.mark.long("all exact losses", keep=("masked_and_dropped",))
@pytest.mark.parametrize("case", [c for c in WHOLE if c.is_ == "exact"], ids=named)
def test_an_exact_loss_runs_under_schedules(case: Case) -> None:
    """What holds no parameter is made once, for any schedule; what sums need, 1F1B refuses with what to do."""
    p, b = parameters(), examples()
    devices = pw.make_virtual_device_set()
    loss = pw.pipeline(case.loss, [devices.add_slice(devices=1) for _ in range(2)], microbatches=2, mixes="refuse")
    lowered = pw.program(lambda p, b: any_jax.value_and_grad(loss)(p, b)).lower(p, b)
    whole = numbers_of(any_jax.value_and_grad(case.loss)(p, b))
    assert is_equal(whole, numbers_of(lowered.compile(schedule="gpipe")(p, b)), case.tolerance)
    try:
        found = lowered.compile(schedule="1f1b")(p, b)
    except PathwaysError as error:
        code = error.diagnostics[0].code
        assert code == "PWC0402" or (code == "PWC0404" and case.name not in BY_TOTALS), error
        assert code == "PWC0404" or "--schedule gpipe" in str(error)
    else:
        assert case.name not in BY_TOTALS and is_equal(whole, numbers_of(found), case.tolerance)


SINGLE = (
    *("dropout_in_each_layer", "masked_examples", "normalized_inputs", "weights_of_the_model", "numbered_examples"),
    *("squared", "softmax_without_some", "not_a_number_where_negative"),
)


@pytest.mark.parametrize("name", SINGLE)
def test_microbatches_of_one_example_are_exact(name: str) -> None:
    """An axis of one example broadcasts."""
    case, (p, b) = CASES[name], (parameters(), examples())
    cut = unplaced(case.loss, 1, microbatches=8, mixes="refuse")
    assert cut.batch_semantics(p, b).verdict == case.is_
    found = any_jax.jit(any_jax.value_and_grad(cut))(p, b)
    assert is_equal(numbers_of(any_jax.value_and_grad(case.loss)(p, b)), numbers_of(found), 1e-5)


def scaled_if_alone(p: Any, b: Any) -> Any:
    return errors(p, b).mean() * (p["scale"] if b["x"].shape[0] == 1 else 2.0)


def scaled_if_alone_and_computed_again(p: Any, b: Any) -> Any:
    return any_jax.checkpoint(scaled_if_alone)(p, b)


def over_half_of_the_batch(p: Any, b: Any) -> Any:
    return errors(p, b).sum() / max(1, b["x"].shape[0] // 2)


def over_half_as_many_ones(p: Any, b: Any) -> Any:
    return errors(p, b).sum() / any_jnp.ones(max(1, b["x"].shape[0] // 2)).sum()


_SCALED = (scaled_if_alone, scaled_if_alone_and_computed_again)
_OF_HALF = (over_half_of_the_batch, over_half_as_many_ones)


@pytest.mark.parametrize("loss", [CASES["masked_tokens"].loss, *_SCALED, *_OF_HALF])
def test_a_loss_that_one_example_computes_differently_is_unknown(loss: Loss, capfd: pytest.CaptureFixture[str]) -> None:
    """Of these, `take_along_axis` leaves out axes of length one."""
    p, b = parameters(), examples()
    cut = unplaced(loss, 1, microbatches=8)
    assert cut.batch_semantics(p, b).verdict == "unknown"
    cut(p, b)
    assert "use fewer microbatches" in capfd.readouterr().err


def test_a_constant_that_depends_on_the_batch_otherwise_for_one_example_is_made_once() -> None:
    def loss(p: Any, b: Any) -> Any:
        rows = b["x"].shape[0]
        return (errors(p, b) * np.full(rows, 1 / max(1, rows // 2), np.float32)).sum()

    p, b = parameters(), examples()
    cut = unplaced(loss, 1, microbatches=8, mixes="refuse")
    assert cut.batch_semantics(p, b).verdict == "exact"
    assert float(cut(p, b)) == pytest.approx(float(loss(p, b)), rel=1e-5)


def test_a_loss_of_sums_keeps_its_type() -> None:
    """One of its sums is of 16 bits."""

    def loss(p: Any, b: Any) -> Any:
        x = b["x"] @ p["w"]
        narrow = any_jnp.sqrt((x.astype(any_jnp.bfloat16) ** 2).sum()).astype(any_jnp.float32)
        return any_jnp.sqrt((x**2).mean()) + narrow

    p, b = parameters(), examples()
    found = unplaced(loss, 1, microbatches=2, mixes="refuse")(p, b)
    assert found.dtype == any_jnp.float32 and float(found) == pytest.approx(float(loss(p, b)), rel=1e-2)


def test_noise_that_is_made_once_is_made_without_the_layers() -> None:
    hoists = handling_of(CASES["dropout_in_layers_computed_again"], 2).hoists
    assert hoists is not None
    made = str(
        any_jax.make_jaxpr(lambda *leaves: made_once(hoists, leaves))(*jax.tree.leaves((parameters(), examples())))
    )
    assert "random_bits" in made and "tanh" not in made


def test_what_is_made_once_is_not_made_again_from_the_sums() -> None:
    def loss(p: Any, b: Any) -> Any:
        return any_jnp.sqrt(errors(p, b).mean()) * any_jnp.sort(b["reward"])[1]

    p, b = parameters(), examples()
    cut = unplaced(loss, 1, microbatches=2, mixes="refuse")
    assert str(any_jax.make_jaxpr(cut)(p, b)).count("sort[") == 1
    assert float(cut(p, b)) == pytest.approx(float(loss(p, b)), rel=1e-5)


@pytest.mark.parametrize("weight", [1.0, 8.0])
def test_weights_that_are_constants_are_divided_once(weight: float) -> None:
    def loss(p: Any, b: Any) -> Any:
        return ((b["x"] @ p["w"]) ** 2).sum(), any_jnp.float32(weight)

    p, b = parameters(), examples()
    cut = unplaced(loss, 1, microbatches=2, reduce="weighted", mixes="refuse")
    assert float(cut(p, b)) == pytest.approx(float(loss(p, b)[0]) / weight, rel=1e-5)


def test_a_loss_that_mixes_is_refused_each_time() -> None:
    cut = unplaced(CASES["batch_norm"].loss, 1, microbatches=2, mixes="refuse")
    for _ in range(2):
        with pytest.raises(PathwaysError, match="PWC0119"):
            cut(parameters(), examples())


def test_allowed_sums_of_their_own_run_under_any_schedule() -> None:
    case, (p, b) = CASES["weights_of_the_model"], (parameters(), examples())
    cut = unplaced(case.loss, 1, microbatches=2, mixes="allow")
    halves = [jax.tree.map(lambda a, k=k: a.reshape(2, 4, *a.shape[1:])[k], b) for k in range(2)]
    assert float(cut(p, b)) == pytest.approx(float(sum(case.loss(p, h) for h in halves) / 2), rel=1e-6)
