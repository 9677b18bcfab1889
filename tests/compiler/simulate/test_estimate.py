"""Tests how a sweep decides what to simulate, and how it estimates the rest."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pathways.compiler.simulate.estimate import (
    MAX_EXTRAPOLATION,
    MAX_QUICK_MICROBATCHES,
    MAX_REFUSALS,
    SIMULATED_PER_LINE,
    SweepLine,
    fastest,
    fitted,
    next_cell,
)

COUNTS = tuple(n for n in range(1, 61) if 120 % n == 0)
Seconds = Callable[[int], float]


def ranked(
    lines: list[SweepLine], times: list[Seconds], top: int, refused: Callable[[int], bool] = lambda _: False
) -> int:
    """Simulates what the policy asks for; returns how many were simulated."""
    simulated = 0
    while (cell := next_cell(lines, top)) is not None:
        number, count = cell
        assert count in lines[number].untried
        if refused(count):
            lines[number].refused.add(count)
        else:
            lines[number].seconds[count] = times[number](count)
            simulated += 1
    return simulated


@given(st.lists(st.floats(0.0, 10.0), min_size=3, max_size=3).filter(lambda f: sum(f) > 0.1))
def test_times_of_the_formula_are_estimated_exactly(factors: list[float]) -> None:
    def seconds(count: int) -> float:
        return factors[0] + factors[1] * count + factors[2] / count

    estimate = fitted({count: seconds(count) for count in (1, 4, 12, 60)})
    assert list(estimate(COUNTS)) == pytest.approx([seconds(count) for count in COUNTS], rel=1e-6)


@given(st.dictionaries(st.sampled_from(COUNTS), st.floats(1e-9, 1e3), min_size=1))
def test_an_estimate_is_exact_where_the_time_is_known(known: dict[int, float]) -> None:
    assert list(fitted(known)(list(known))) == pytest.approx(list(known.values()))


def test_the_fastest_are_found_with_few_simulations() -> None:
    """The second line is the slower one; the first jumps where memory is full."""

    def first(count: int) -> float:
        return 1.0 + 0.02 * count + 2.0 / count + 0.1 * (count > 20)

    def second(count: int) -> float:
        return first(count) + 0.5

    lines = [SweepLine(COUNTS), SweepLine(COUNTS)]
    simulated = ranked(lines, [first, second], top=3)
    best = sorted(COUNTS, key=first)[:3]
    assert [(cell, known) for _, cell, known in fastest(lines)[:3]] == [((0, count), True) for count in best]
    assert 2 * SIMULATED_PER_LINE <= simulated <= 2 * SIMULATED_PER_LINE + 3 < 2 * len(COUNTS)


def test_the_ends_of_a_line_are_simulated_first() -> None:
    line = SweepLine(COUNTS)
    found: list[int] = []
    while (count := line.next_to_simulate()) is not None:
        found.append(count)
        line.seconds[count] = 1.0
    assert found[:2] == [COUNTS[0], COUNTS[-1]] and len(found) == SIMULATED_PER_LINE
    assert found[2] in (6, 8, 10)  # in the middle, on a logarithmic scale


def test_numbers_that_take_long_to_compile_are_simulated_only_if_they_may_be_fast() -> None:
    line = SweepLine(range(1, 1001))
    ranked([line], [lambda count: 1.0 + 0.01 * count + 13.0 / count], top=3)  # 36 are the fastest
    assert 36 in line.seconds and max(line.seconds) <= MAX_QUICK_MICROBATCHES
    line = SweepLine(range(1, 1001))
    ranked([line], [lambda count: 1.0 + 13.0 / count], top=3)  # 1,000 are the fastest
    assert {998, 999, 1000} <= line.seconds.keys() and len(line.seconds) <= SIMULATED_PER_LINE + 7


@given(st.floats(0, 1e-3), st.sets(st.integers(1, 30_000), min_size=5, max_size=60))
def test_no_number_far_above_the_simulated_ones_is_simulated(overhead: float, counts: set[int]) -> None:
    line, largest = SweepLine(sorted(counts)), 0
    while (cell := next_cell([line], top=3)) is not None:
        count = cell[1]
        between = [other for other in counts if largest < other < count]
        assert count <= max(MAX_QUICK_MICROBATCHES, MAX_EXTRAPOLATION * largest) or len(line.seconds) < 4 or not between
        line.seconds[count] = 1.0 + overhead * count + 13.0 / count
        largest = max(line.seconds)


def test_refused_numbers_are_left_out_of_the_ranking() -> None:
    lines = [SweepLine(COUNTS)]
    ranked(lines, [lambda count: 1 / count], top=2, refused=lambda count: count % 4 != 0)
    assert [cell for _, cell, _ in fastest(lines)[:2]] == [(0, 60), (0, 40)]


@pytest.mark.parametrize(("counts", "least", "most"), [(64, 8, 64), (64, 1, 8), (1000, 70, 1000)])
def test_a_line_is_simulated_where_it_is_not_refused(counts: int, least: int, most: int) -> None:
    line = SweepLine(range(1, counts + 1))
    while (count := line.next_to_simulate()) is not None:
        if least <= count <= most:
            line.seconds[count] = 1 / count
        else:
            line.refused.add(count)
    assert line.seconds and len(line.refused) <= MAX_REFUSALS


def test_the_largest_number_is_not_tried_after_two_refusals() -> None:
    line, tried = SweepLine([1, 12, 24, 48, 64, 12_000]), list[int]()
    while (count := line.next_to_simulate()) is not None:
        tried.append(count)
        if count % 12:
            line.refused.add(count)
        else:
            line.seconds[count] = 1 / count
    assert tried[:2] == [1, 64] and sorted(tried[2:]) == [12, 24, 48]


def test_the_largest_number_is_the_last_one_tried_when_all_are_refused() -> None:
    """It takes long to compile, so it is tried only where the last refusal would abandon the line."""
    line, tried = SweepLine([*range(1, 65), 12_000]), list[int]()
    while (count := line.next_to_simulate()) is not None:
        tried.append(count)
        line.refused.add(count)
    assert len(tried) == MAX_REFUSALS and tried.index(12_000) == MAX_REFUSALS - 1


def test_a_line_whose_numbers_are_refused_is_abandoned() -> None:
    lines = [SweepLine(COUNTS), SweepLine(COUNTS[:2])]
    assert ranked(lines, [lambda _: 1.0] * 2, top=5, refused=lambda _: True) == 0
    assert not lines[0].seconds and len(lines[0].refused) == MAX_REFUSALS and not fastest(lines)
    assert len(lines[1].refused) == 2
