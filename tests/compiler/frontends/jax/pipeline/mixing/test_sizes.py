"""Tests losses in which a number depends on how many examples there are: none is said to be what it is not."""

from typing import Any

import pytest
from support.losses.sizes import SIZES
from support.losses.table import Case, any_jax, examples, is_equal, microbatches, numbers_of, parameters

from tests.compiler.frontends.jax.pipeline.mixing.test_verdicts import handling_of
from tests.support.unplaced import unplaced


def is_whole(case: Case, verdict: str, count: int) -> bool:
    """Whether a loss that is said to be a mean, a sum or exact equals that of the whole batch."""
    p, b = parameters(), examples()
    graded: Any = any_jax.value_and_grad(case.loss)
    if verdict == "exact":
        found = numbers_of(any_jax.value_and_grad(unplaced(case.loss, 1, microbatches=count, mixes="refuse"))(p, b))
    else:
        parts = [numbers_of(graded(p, one)) for one in microbatches(b, count)]
        found = [sum(each) / (count if verdict == "mean" else 1) for each in zip(*parts, strict=True)]
    return is_equal(numbers_of(graded(p, b)), found, case.tolerance)


@pytest.mark.long("four microbatches in place of two", keep=("*-2",))
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("what", SIZES)
def test_a_number_that_depends_on_the_batch_is_noticed(what: str, count: int) -> None:
    case = Case(what, SIZES[what], "", tolerance=2e-5)
    verdict = handling_of(case, count).verdict.semantics.value
    assert verdict in ("mixes", "unknown") or is_whole(case, verdict, count), verdict
    known = {"own derivative and noise", "own derivative and mask", "two results", "a sum beside rows"}
    assert what not in known or verdict == "exact"
