"""Tests random losses against numbers: none is said to be a mean, a sum or exact, and is not."""

import collections
from typing import Any

import pytest
from support.losses.random_batches import random_batch_loss
from support.losses.table import any_jax, examples, is_equal, microbatches, numbers_of, parameters

from pathways.dialect.diagnostics import PathwaysError
from tests.compiler.frontends.jax.pipeline.mixing.test_verdicts import handling_of
from tests.support.unplaced import unplaced

GROUPS, LOSSES_OF_A_GROUP = 18, 10


@pytest.mark.long("more random losses", keep=("0",))
@pytest.mark.parametrize("group", range(GROUPS))
def test_random_losses_are_what_they_are_said_to_be(group: int, thorough: bool) -> None:
    verdicts: collections.Counter[str] = collections.Counter()
    p, b = parameters(), examples()
    count_of_losses = LOSSES_OF_A_GROUP if thorough else LOSSES_OF_A_GROUP // 2
    for seed in range(group * LOSSES_OF_A_GROUP, group * LOSSES_OF_A_GROUP + count_of_losses):
        case = random_batch_loss(seed)
        graded: Any = any_jax.value_and_grad(case.loss)
        count = case.counts[seed % 2]
        verdict = handling_of(case, count).verdict.semantics.value
        verdicts[verdict] += 1
        if verdict in ("mixes", "unknown"):
            continue
        whole = numbers_of(graded(p, b))
        if verdict == "exact":
            cut = unplaced(case.loss, 1, microbatches=count, mixes="refuse")
            try:
                found = numbers_of(any_jax.value_and_grad(cut)(p, b))
            except PathwaysError as error:
                assert error.code == "PWC0111", error  # nothing in it depends on parameters
                continue
        else:
            parts = [numbers_of(graded(p, one)) for one in microbatches(b, count)]
            found = [sum(each) / (count if verdict == "mean" else 1) for each in zip(*parts, strict=True)]
        assert is_equal(whole, found, case.tolerance), (seed, verdict)
    assert verdicts["exact"] and (verdicts["mixes"] or not thorough) and verdicts["unknown"] <= 4, verdicts
