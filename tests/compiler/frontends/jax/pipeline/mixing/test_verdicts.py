"""Tests what each loss of `support/losses` is over microbatches, and that numbers agree."""

from typing import Any

import jax
import pytest
from support.losses import CASES, Case
from support.losses.table import by_numbers, examples, parameters

from pathways.compiler.frontends.jax.pipeline.mixing.handling import Handling, handled
from pathways.compiler.frontends.jax.pipeline.mixing.judge import Exactly

BOTH_COUNTS = [(case, count) for case in CASES.values() for count in case.counts]
_FALSE_ALARMS = ("worst_examples", "branch_of_the_mean", "loop_of_the_mean")
"""Losses that are a mean in some batches: the largest errors of each half are those of the batch, say."""


def handling_of(case: Case, count: int) -> Handling:
    leaves, tree = jax.tree.flatten((parameters(), examples()))
    first = len(jax.tree.leaves(parameters()))

    def flat(*given: Any) -> list[Any]:
        return [case.loss(*jax.tree.unflatten(tree, given))]

    types = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves]
    return handled(flat, types, frozenset(range(first, len(leaves))), count)


def named(value: Any) -> str:
    return value.name if isinstance(value, Case) else str(value)


def test_the_table_is_large_and_few_of_it_is_unknown() -> None:
    unknown = [c for c in CASES.values() if c.is_ == "unknown"]
    assert len(CASES) >= 160 and len(unknown) <= 0.05 * len(CASES)


@pytest.mark.long("four microbatches in place of two", keep=("*-2",))
@pytest.mark.parametrize(("case", "count"), BOTH_COUNTS, ids=named)
def test_a_loss_is_what_the_table_says(case: Case, count: int) -> None:
    verdict = handling_of(case, count).verdict
    assert verdict.semantics.value == case.is_, [(c.why.name, c.text) for c in verdict.causes]
    assert bool(verdict.causes) or case.is_ not in ("mixes", "unknown")


EXACTLY = {
    "over_one_less_than_the_count": Exactly.SCALED,
    "times_an_inverse": Exactly.QUOTIENT,
    "over_a_count_with_two_bounds": Exactly.QUOTIENT,
    "either_of_two_quotients": Exactly.QUOTIENT,
    "over_a_bounded_quotient": Exactly.TOTALS,
    "root_of_a_quotient": Exactly.TOTALS,
    "either_a_quotient_or_a_root": Exactly.TOTALS,
    "numbers_beside_examples": Exactly.HOISTED,
    "dropout_of_a_key_from_outside": Exactly.NOISE,
}
"""Names the way in which each of these exact losses is computed."""


@pytest.mark.parametrize("name", EXACTLY)
def test_an_exact_loss_says_how_it_is_computed(name: str) -> None:
    assert handling_of(CASES[name], 2).verdict.exactly is EXACTLY[name]


BY_NUMBERS = [(case, count) for case, count in BOTH_COUNTS if case.is_ in ("mean", "sum", "mixes")]


@pytest.mark.long("numbers of all losses", keep=("batch_norm-2", "summed-2", "squared-4"))
@pytest.mark.parametrize(("case", "count"), BY_NUMBERS, ids=named)
def test_numbers_say_the_same(case: Case, count: int) -> None:
    """No loss that is said to be a mean or a sum is another by its numbers, and none that mixes is one of them."""
    found = by_numbers(case, count)
    if case.name not in _FALSE_ALARMS:
        assert found == ("other" if case.is_ == "mixes" else case.is_)
