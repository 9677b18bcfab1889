"""Tests what users read of losses that mix examples: warnings, errors, notes, and `batch_semantics`."""

import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from support.losses import CASES
from support.losses.table import any_jax, any_jnp, examples, parameters

import pathways as pw
from pathways.dialect.diagnostics import PathwaysError
from tests.support.unplaced import unplaced

P, B = parameters(), examples()
HERE = "test_told.py"


def normalized(p: Any, b: Any) -> Any:
    x = b["x"] @ p["w"]
    return ((x - x.mean(0)) * b["y"]).mean()


def calling_python(p: Any, b: Any) -> Any:
    rows = b["x"] @ p["w"]
    return any_jax.pure_callback(abs, jax.ShapeDtypeStruct(rows.shape, rows.dtype), rows).mean()


def warned(call: Any) -> list[str]:
    """The texts of the warnings of a call, of which each is a MicrobatchWarning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert all(w.category is pw.MicrobatchWarning for w in caught)
    return [str(w.message) for w in caught]


def code_of(call: Any) -> str:
    with pytest.raises(PathwaysError) as caught:
        call()
    return caught.value.code


def test_a_loss_that_mixes_examples_is_told_once_with_its_line() -> None:
    cut = unplaced(normalized, 1, microbatches=2)
    (text,) = warned(lambda: [cut(P, B), cut(P, B)])
    assert text.startswith(
        "warning[PWC0119]: normalized mixes examples: over 2 microbatches it differs from normalized of"
    )
    assert f"{HERE}:{normalized.__code__.co_firstlineno + 2}" in text
    assert "have:  a statistic of the whole batch is applied to its examples: sub" in text
    assert "try:   microbatches=1; or mixes='allow'" in text


def test_the_warning_is_at_the_line_of_the_call_if_the_user_has_one() -> None:
    """A thread whose first function is the loss runs no line of the user."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        unplaced(normalized, 1, microbatches=2)(P, B)
        with ThreadPoolExecutor(1) as thread:
            thread.submit(unplaced(normalized, 1, microbatches=2), P, B).result()
    at = [(w.filename == __file__, str(w.message).partition(":")[0]) for w in caught]
    assert at == [(True, "warning[PWC0119]"), (False, "warning[PWC0119]")]


def test_the_warning_is_an_error_or_silent_on_demand() -> None:
    assert code_of(lambda: unplaced(normalized, 1, microbatches=2, mixes="refuse")(P, B)) == "PWC0119"
    assert warned(lambda: unplaced(normalized, 1, microbatches=2, mixes="allow")(P, B)) == []
    assert warned(lambda: unplaced(normalized, 1)(P, B)) == [], "one microbatch is the whole batch"
    assert code_of(lambda: unplaced(normalized, 1, mixes="maybe")) == "PWC0112"


def test_what_cannot_be_told_is_a_note(capfd: pytest.CaptureFixture[str]) -> None:
    cut = unplaced(calling_python, 1, microbatches=2)
    assert warned(lambda: [cut(P, B), cut(P, B)]) == []
    (note,) = capfd.readouterr().err.splitlines()
    assert re.match(r"note: cannot tell whether calling_python mixes examples: .*test_told\.py:\d+", note)
    assert "there is no rule for pure_callback (pure_callback); the analysis is undecided: pw." in note


def test_a_loss_that_is_written_for_one_microbatch_runs_and_is_noted(capfd: pytest.CaptureFixture[str]) -> None:
    def of_four(p: Any, b: Any) -> Any:
        return (b["x"].reshape(4, 2, 2) @ p["w"][:2, :2]).mean()

    cut = unplaced(of_four, 1, microbatches=2)
    halves = [jax.tree.map(lambda a, k=k: a.reshape(2, 4, *a.shape[1:])[k], B) for k in range(2)]
    assert float(cut(P, B)) == pytest.approx(float(sum(of_four(P, h) for h in halves) / 2), rel=1e-5)
    assert "the loss cannot be traced for the whole batch (TypeError: cannot reshape" in capfd.readouterr().err
    assert cut.batch_semantics(P, B).verdict == "unknown"

    def of_one(p: Any, b: Any) -> Any:
        return (b["x"].reshape(2, 2) @ p["w"][:2, :2]).mean()

    assert unplaced(of_one, 1, microbatches=8).batch_semantics(P, B).verdict == "unknown"


@pytest.mark.parametrize(
    ("name", "reduce", "wrong"),
    [("summed", "mean", "makes summed 4 times too small"), ("squared", "sum", "makes squared 4 times too large")],
)
def test_a_wrong_reduce_is_refused(name: str, reduce: str, wrong: str) -> None:
    cut = unplaced(CASES[name].loss, 1, microbatches=4, reduce=reduce)
    with pytest.raises(PathwaysError, match="PWC0124") as caught:
        cut(P, B)
    assert wrong in str(caught.value)
    other = {"mean": "sum", "sum": "mean"}[reduce]
    assert f"try:   reduce='{other}'; mixes='allow' only turns this check off" in str(caught.value)
    as_given = unplaced(CASES[name].loss, 1, microbatches=4, reduce=reduce, mixes="allow")
    factor = {"mean": 0.25, "sum": 4.0}[reduce]
    assert float(as_given(P, B)) == pytest.approx(factor * float(CASES[name].loss(P, B)), rel=1e-5)


@pytest.mark.parametrize("verdict", ["mean", "sum", "exact", "mixes", "unknown"])
def test_each_verdict_is_shown_with_causes_and_handling(verdict: str) -> None:
    name = {"mean": "squared", "sum": "summed", "exact": "dropout", "mixes": "batch_norm", "unknown": "counted_rows"}
    case = CASES[name[verdict]]
    found = unplaced(case.loss, 1, microbatches=2).batch_semantics(P, B)
    assert isinstance(found, pw.BatchSemantics)
    assert (found.loss, found.microbatches, found.verdict) == (case.name, 2, verdict)
    assert str(found).startswith(f"{case.name} over 2 microbatches: {verdict}; {found.handling}")
    kinds = {"exact": {"noise"}, "mixes": {"back"}, "unknown": {"unknown"}}
    assert {c.kind for c in found.causes} == kinds.get(verdict, set())
    assert all(c.where is not None and c.operation for c in found.causes)


def test_a_verdict_needs_no_arrays_and_one_microbatch_is_exact() -> None:
    types = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (P, B))
    assert unplaced(normalized, 1, microbatches=4).batch_semantics(*types).verdict == "mixes"
    assert unplaced(normalized, 1).batch_semantics(*types).verdict == "exact"


class Net(nn.Module):
    """Two layers with batch normalization, as libraries have it."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        for _ in range(2):
            x = nn.BatchNorm(use_running_average=False)(nn.Dense(4)(x))
        return x


def test_modules_and_statistics_of_a_library_are_named() -> None:
    net: Any = Net()
    variables = net.init(jax.random.key(0), B["x"])

    def loss(params: Any, b: Any) -> Any:
        out, _ = net.apply({**variables, "params": params}, b["x"], mutable=["batch_stats"])
        return ((out - b["y"]) ** 2).mean()

    cut = unplaced(loss, 1, microbatches=2)
    found = cut.batch_semantics(variables["params"], B)
    assert {c.module.split("/")[-1] for c in found.causes} == {"BatchNorm_0", "BatchNorm_1"}
    (text,) = warned(lambda: cut(variables["params"], B))
    assert "in Net/BatchNorm_0, and in 1 more modules" in text
    assert str(cut.stages(variables["params"], B)).count("mixes; each microbatch has its own statistics") == 1


def test_long_lists_of_causes_are_cut() -> None:
    def deep(p: Any, b: Any) -> Any:
        x = b["x"]
        for number in range(9):
            with any_jax.named_scope(f"layer{number}"):
                x = any_jnp.tanh(x @ p["w"]) - x.mean(0)
        return x.mean() * p["scale"]

    found = unplaced(deep, 1, microbatches=2).batch_semantics(P, B)
    assert len(found.causes) == 9 and str(found).splitlines()[-1] == "  and 4 more causes"


def with_values(p: Any, b: Any) -> Any:
    out = any_jnp.tanh(b["x"] @ p["w"])
    more = {"mean": out.mean(0), "sum": out.sum(), "rows": out, "spread": out.std(), "scale": p["scale"]}
    return (out * b["y"]).mean(), more


@pytest.mark.parametrize(
    ("aux", "wrong"),
    [("mean", "['rows'], ['spread'], ['sum']"), ("sum", "['mean'], ['rows'], ['scale'], and 1 more"), ("stack", "")],
)
def test_values_beside_the_loss_that_are_not_of_the_whole_batch_are_told(aux: str, wrong: str) -> None:
    texts = warned(lambda: unplaced(with_values, 1, microbatches=2, has_aux=True, aux=aux)(P, B))
    assert len(texts) == bool(wrong)
    assert not wrong or (f"PWC0128]: aux='{aux}'" in texts[0] and f"have:  {wrong}" in texts[0])


def test_values_of_the_whole_batch_are_not_told() -> None:
    def means(p: Any, b: Any) -> Any:
        value, more = with_values(p, b)
        return value, (more["mean"], 0.9 * p["b"] + 0.1 * more["mean"])

    refusing = unplaced(means, 1, microbatches=2, has_aux=True, aux="mean", mixes="refuse")
    whole, found = means(P, B), refusing(P, B)
    jax.tree.map(lambda a, b: assert_close(a, b), whole, found)

    def rows(p: Any, b: Any) -> Any:
        value, more = with_values(p, b)
        return value, more["rows"]

    def numbered(p: Any, b: Any) -> Any:
        numbers = any_jnp.arange(b["x"].shape[0])[:, None]
        return with_values(p, b)[0], any_jnp.concatenate([b["label"][:, None], numbers], 1)

    refused = unplaced(numbered, 1, microbatches=2, has_aux=True, aux="concat", mixes="refuse")
    assert code_of(lambda: refused(P, B)) == "PWC0128"

    _, joined = unplaced(rows, 1, microbatches=2, has_aux=True, aux="concat", mixes="refuse")(P, B)
    assert_close(rows(P, B)[1], joined)
    refused = unplaced(with_values, 1, microbatches=2, has_aux=True, aux="mean", mixes="refuse")
    assert code_of(lambda: refused(P, B)) == "PWC0128"


def assert_close(a: Any, b: Any) -> None:
    assert jnp.allclose(a, b, rtol=1e-5, atol=1e-6)
