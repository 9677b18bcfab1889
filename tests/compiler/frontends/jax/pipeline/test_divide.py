"""Tests where spines of known costs are cut: every cut of a small spine is tried, and the best is known."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import jax
import numpy as np
import pytest

from pathways.compiler.frontends.jax.pipeline.alike import RangeHashes, alike_cuts
from pathways.compiler.frontends.jax.pipeline.costs import Costs, Demands
from pathways.compiler.frontends.jax.pipeline.divide import best_cut, least_memory
from pathways.compiler.frontends.jax.pipeline.graph import Operation
from pathways.compiler.frontends.jax.pipeline.spine import Spine

_jax: Any = jax


def summed(values: Sequence[float]) -> Any:
    return np.concatenate([[0.0], np.cumsum(values)])


def spine(
    flops: Sequence[float],
    crossing: Sequence[float] | None = None,
    parameters: Sequence[float] | None = None,
    kept: Sequence[float] | None = None,
    tokens: Sequence[int] | None = None,
    scopes: Sequence[str] | None = None,
) -> Spine:
    """Returns a spine of operations with these costs; `crossing` are the bytes over each inner place."""
    count = len(flops)
    operations = [Operation("work", [], [], list, made_in(scopes[i] if scopes else "")) for i in range(count)]
    inner = [1.0] * (count - 1) if crossing is None else crossing
    none = [0.0] * count
    return Spine(
        operations,
        {},
        {},
        summed(flops),
        summed(parameters or none),
        summed(kept or none),
        np.array([0.0, *inner, 0.0]),
        list(range(count)) if tokens is None else list(tokens),
    )


def made_in(scope: str) -> Any:
    """Returns an equation that was traced in this scope."""

    def function(x: Any) -> Any:
        with jax.named_scope(scope):
            return x + 1.0

    return _jax.make_jaxpr(function if scope else lambda x: x + 1.0)(1.0).eqns[0]


def demands(stages: int, **other: Any) -> Demands:
    plain = Demands((1.0,) * stages, (0.0,) * stages, (None,) * stages, (1,) * stages, (1,) * stages)
    return replace(plain, **other)


def every_cut(count: int, stages: int) -> Iterator[tuple[int, ...]]:
    for inner in combinations(range(1, count), stages - 1):
        yield (0, *inner, count)


COSTLY = spine([1, 2, 3, 4, 5], [10, 20, 30, 40], [1, 1, 2, 3, 5], [2, 4, 6, 8, 10])


def test_a_stage_takes_three_times_its_forward_work_at_the_rate_of_its_slice() -> None:
    costs = Costs(COSTLY, demands(2, rates=(1.0, 2.0)))
    assert costs.seconds(1, 3, 0) == 3 * (2 + 3)
    assert costs.seconds(1, 3, 1) == 3 * (2 + 3) / 2


def test_a_stage_is_as_slow_as_its_link_both_ways_if_that_is_slower_than_its_work() -> None:
    costs = Costs(COSTLY, demands(2, links=(0.0, 2.0)))
    assert costs.seconds(2, 3, 1) == max(3 * 3, 2 * 20 / 2)
    assert costs.seconds(2, 5, 1) == max(3 * 12, 2 * 20 / 2)
    assert costs.seconds(2, 3, 0) == 3 * 3


def test_memory_is_states_of_parameters_and_activations_of_all_microbatches_in_flight() -> None:
    costs = Costs(COSTLY, demands(2, in_flight=(6, 3), split=(2, 1), states=4.0))
    assert costs.bytes(0, 2, 0) == 4 * (1 + 1) + (2 + 4) * 6 / 2
    assert costs.bytes(2, 5, 1) == 4 * (2 + 3 + 5) + (6 + 8 + 10 + 20) * 3


def test_costs_of_a_cut_are_those_of_its_stages_and_inner_places() -> None:
    costs = Costs(COSTLY, demands(3, memory=(30.0, None, 100.0)))
    assert costs.slowest((0, 2, 3, 5)) == 3 * 9
    assert costs.moved((0, 2, 3, 5)) == 50
    assert costs.widest((0, 2, 3, 5)) == 30
    assert costs.fits((0, 2, 3, 5))
    assert costs.bytes(0, 3, 0) == 4 * 4 + 12 and costs.fits((0, 3, 4, 5))
    exact = replace(costs.demands, memory=(28.0, None, 100.0))
    assert Costs(COSTLY, exact).fits((0, 3, 4, 5)), "just as much as there is"
    assert not Costs(COSTLY, replace(exact, memory=(27.0, None, None))).fits((0, 3, 4, 5))
    assert not Costs(COSTLY, replace(exact, memory=(None, None, 60.0))).fits((0, 2, 4, 5)), "the last stage"


def random_spine(seed: int) -> Spine:
    rng = np.random.default_rng(seed)
    count = 9
    columns = [[float(n) for n in rng.integers(1, 40, count)] for _ in range(4)]
    return spine(columns[0], columns[1][: count - 1], columns[2], columns[3])


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("seed", range(6))
def test_the_best_cut_is_close_to_the_least_time_and_moves_the_fewest_bytes(stages: int, seed: int) -> None:
    """Of all cuts within 8 % of the least time, none has a lower sum of its parts of bytes and squares of times."""
    one = random_spine(seed)
    rates = tuple(float(1 + k) for k in range(stages))
    costs = Costs(one, demands(stages, rates=rates))
    cuts = list(every_cut(len(one), stages))
    least = min(map(costs.slowest, cuts))
    evens = [c for c in cuts if costs.slowest(c) == least]

    found = best_cut(one, costs.demands)
    assert found is not None
    close = 1.08 * least
    near = [c for c in cuts if costs.slowest(c) <= close]

    def score(cut: tuple[int, ...], usual: float) -> float:
        squares = [(float(costs.seconds(a, b, k)) / close) ** 2 for k, (a, b) in enumerate(pairwise(cut))]
        return costs.moved(cut) / usual + sum(squares)

    ways = [min(near, key=lambda c: score(c, costs.moved(even) / (stages - 1))) for even in evens]
    assert found.places in ways
    assert (found.how == "the least time") == (found.runner_up == ())
    assert found.runner_up in [(), *evens]
    if found.places not in evens:
        assert found.how == "fewest bytes, within 8% of the least time" and found.runner_up in evens


@pytest.mark.parametrize("seed", range(4))
def test_a_cut_keeps_to_the_memory_of_each_stage(seed: int) -> None:
    one = random_spine(seed)
    free = demands(3, in_flight=(3, 2, 1))
    costs = Costs(one, free)
    fullest = {c: max(float(costs.bytes(a, b, k)) for k, (a, b) in enumerate(pairwise(c))) for c in every_cut(9, 3)}
    least = min(fullest.values())
    assert fullest[least_memory(one, free)] == least
    assert fullest[least_memory(one, replace(free, memory=(1.0, 1.0, 1.0)))] == least, "a limit does not matter"
    tight = best_cut(one, replace(free, memory=(least,) * 3))
    assert tight is not None and fullest[tight.places] == least
    assert best_cut(one, replace(free, memory=(least - 1,) * 3)) is None
    roomy = best_cut(one, replace(free, memory=(least, None, None)))
    assert roomy is not None and costs.bytes(0, roomy.places[1], 0) <= least


def test_a_single_stage_is_the_whole_loss_if_it_fits() -> None:
    found = best_cut(COSTLY, demands(1))
    assert found is not None and (found.places, found.how, found.runner_up) == ((0, 5), "the only stage", ())
    needed = 4 * 12 + 30
    assert best_cut(COSTLY, demands(1, memory=(float(needed),))) is not None
    assert best_cut(COSTLY, demands(1, memory=(needed - 1.0,))) is None


def test_a_cut_with_as_many_stages_as_operations_puts_one_on_each() -> None:
    found = best_cut(COSTLY, demands(5))
    assert found is not None and found.places == (0, 1, 2, 3, 4, 5)
    assert best_cut(COSTLY, demands(6)) is None
    assert least_memory(COSTLY, demands(6)) == (0, 5)


def test_of_many_places_the_one_with_the_most_bytes_is_left_out() -> None:
    """All work is in the first two operations, and the fewer the bytes, the later the place."""
    count = 710
    heavy = spine([1.0, 1.0] + [0.0] * (count - 2), [float(count - p) for p in range(1, count)])
    found = best_cut(heavy, demands(2))
    assert found is not None and found.places[1] != 1


def test_many_places_with_equal_bytes_are_all_tried() -> None:
    count = 710
    found = best_cut(spine([1.0] * count), demands(2))
    assert found is not None and found.places == (0, count // 2, count)


LAYER = [7, 8, 9]


def layered(layers: int, before: int = 2, behind: int = 2, **columns: Any) -> Spine:
    """Returns a spine of equal layers of three operations, between some others."""
    tokens = [*range(100, 100 + before), *LAYER * layers, *range(200, 200 + behind)]
    flops = [0.5] * before + [1.0, 2.0, 3.0] * layers + [0.5] * behind
    crossing = columns.pop("crossing", None)
    if crossing is None:
        crossing = [9.0] * (len(tokens) - 1)
        crossing[before - 1 :: 3] = [4.0] * len(crossing[before - 1 :: 3])
    return spine(flops, crossing, tokens=tokens, **columns)


def starts(cut: tuple[int, ...], before: int = 2) -> list[float]:
    return [(p - before) / 3 for p in cut[1:-1]]


def test_middle_stages_are_equal_layers() -> None:
    one = layered(40)
    found = best_cut(one, demands(4))
    assert found is not None and found.how == "middle stages are alike"
    assert starts(found.places) == [10, 20, 30]


def test_the_runner_up_of_alike_stages_is_the_cut_with_the_fewest_bytes() -> None:
    """One place in the middle of a layer has fewer bytes than those between layers."""
    one = layered(40)
    one.crossing[33] = one.crossing[34] = 1.0
    found = best_cut(one, demands(4))
    assert found is not None and found.how == "middle stages are alike"
    assert starts(found.places) == [10, 20, 30] and found.runner_up[1] in (33, 34)


def test_the_runner_up_is_the_even_cut_if_alike_stages_move_the_fewest_bytes() -> None:
    """Of 31 layers, the most even cut is inside of layers."""
    one = layered(31)
    found = best_cut(one, demands(3))
    assert found is not None and found.how == "middle stages are alike"
    assert starts(found.places) == [10, 21]
    costs = Costs(one, demands(3))
    assert costs.slowest(found.runner_up) < costs.slowest(found.places)


def test_cuts_do_not_depend_on_the_units_of_time_and_bytes() -> None:
    for seed in range(4):
        one = random_spine(seed)
        found = best_cut(one, demands(3))
        assert found == best_cut(one, demands(3, rates=(1e6,) * 3))
        assert found == best_cut(replace(one, crossing=one.crossing * 1e-6), demands(3))


def test_two_stages_have_no_middle() -> None:
    one = layered(40)
    assert alike_cuts(one, Costs(one, demands(2)), 1e9, 1e9) == []
    found = best_cut(one, demands(2))
    assert found is not None and found.how != "middle stages are alike"
    assert alike_cuts(one, Costs(one, demands(3)), 1e9, 1e9) != []


@pytest.mark.parametrize(
    ("layers", "others", "stages", "cuts"),
    [
        (9, 2, 3, [(0, 14, 17, 31)]),
        (10, 2, 4, [(0, 14, 17, 20, 34)]),
        (9, 2, 4, []),
        (9, 0, 3, [(0, 12, 15, 27)]),
        (8, 0, 3, []),
        (7, 2, 3, []),
    ],
)
def test_alike_places_have_twelve_equal_operations_before_and_behind_them(
    layers: int, others: int, stages: int, cuts: list[tuple[int, ...]]
) -> None:
    one = layered(layers, others, others)
    assert alike_cuts(one, Costs(one, demands(stages)), 1e9, 1e9) == cuts


def test_a_cut_with_equal_middle_stages_is_better_than_one_that_moves_fewer_bytes() -> None:
    """Between five places with equal surroundings are the operations 1, 2, 2 and 3."""
    around = list(range(10, 34))
    tokens = [*around, 1, *around, 2, *around, 2, *around, 3, *around]
    centers = [12 + 25 * k for k in range(5)]
    crossing = [100.0] * (len(tokens) - 1)
    for center, width in zip(centers, (1.0, 2.0, 3.0, 2.0, 1.0), strict=True):
        crossing[center - 1] = width
    one = spine([1.0] * len(tokens), crossing, tokens=tokens)
    cuts = alike_cuts(one, Costs(one, demands(4)), 1e9, 3.0)
    assert list(cuts[0][1:-1]) == centers[1:4]
    moved = [Costs(one, demands(4)).moved(c) for c in cuts]
    assert moved[0] == 7 > max(moved[1:])


def test_alike_cuts_are_no_slower_and_no_wider_than_asked_for() -> None:
    one = layered(40)
    costs = Costs(one, demands(4))
    slowest = 3 * (10 * 6 + 1 + 3)
    cuts = alike_cuts(one, costs, slowest, 4.0)
    assert cuts and all(costs.slowest(c) <= slowest and costs.widest(c) <= 4.0 for c in cuts)
    assert {round(b - a) for c in cuts for a, b in pairwise(starts(c))} == {10}, "the middles have equal layers"
    assert (0, 32, 62, 92, 124) in cuts
    assert costs.slowest((0, 32, 62, 92, 124)) == 183.0
    assert (0, 32, 62, 92, 124) in alike_cuts(one, costs, 183.0, 4.0), "just as slow as may be"
    assert alike_cuts(one, costs, 182.9, 4.0) == []
    assert alike_cuts(one, costs, slowest, 3.9) == []


def test_alike_cuts_keep_to_the_memory() -> None:
    one = layered(40, kept=[1.0] * 124)
    free = alike_cuts(one, Costs(one, demands(4)), 1e9, 4.0)
    tight = demands(4, memory=(None, None, None, 40.0))
    some = alike_cuts(one, Costs(one, tight), 1e9, 4.0)
    assert 0 < len(some) < len(free)
    assert all(124 - c[-2] + 4 <= 40 for c in some)


def test_of_alike_cuts_that_move_as_much_the_most_even_is_first() -> None:
    one = layered(40)
    costs = Costs(one, demands(4))
    cuts = alike_cuts(one, costs, 3 * 6 * 14, 4.0)
    times = [costs.slowest(c) for c in cuts]
    assert times == sorted(times) and times[0] < times[-1]


def scopes_of(layers: int) -> list[str]:
    """Names the modules of layers: pairs of layers are a block, so that every other layer begins inside of one."""
    names = [f"net/block_{k // 2}/layer_{k}" for k in range(layers) for _ in range(3)]
    return ["net/in"] * 2 + names + ["net/out"] * 2


def test_a_cut_between_modules_is_preferred_to_a_slightly_more_even_one_inside_of_them() -> None:
    """The most even cut begins its stages at odd layers, inside of blocks."""
    one = layered(40, before=2, behind=2, scopes=scopes_of(40))
    costs = Costs(one, demands(3, rates=(13.0, 14.0, 13.0)))
    least = min(costs.slowest((0, 2 + 3 * a, 2 + 3 * b, 124)) for a in range(1, 39) for b in range(a + 1, 40))
    first = alike_cuts(one, costs, 1.2 * least, 4.0)[0]
    assert costs.slowest((0, 41, 83, 124)) == least and starts((0, 41, 83, 124)) == [13, 27]
    assert all(start % 2 == 0 for start in starts(first))
    assert costs.slowest(first) <= 1.12 * least


def test_a_cut_between_modules_must_be_nearly_as_even_and_move_as_little() -> None:
    """Only the first layers are modules of their own: a cut there is too uneven, or moves more."""
    scopes = ["in"] * 2 + [f"net/layer_{k}" if k < 8 else "net/rest" for k in range(40) for _ in range(3)] + ["out"] * 2
    one = layered(40, scopes=scopes)
    costs = Costs(one, demands(3))
    cuts = alike_cuts(one, costs, 1e9, 9.0)
    assert starts(cuts[0]) == [13, 26] or starts(cuts[0]) == [13, 27] or starts(cuts[0]) == [14, 27]
    assert costs.slowest(cuts[0]) <= 1.12 * min(map(costs.slowest, cuts)) and costs.moved(cuts[0]) == 8
    assert any(starts(c)[0] < 8 for c in cuts)
    assert len(set(cuts)) == len(cuts)


def test_equal_ranges_of_tokens_have_equal_hashes() -> None:
    tokens = [5, 0, 1, 5, 0, 1, 0, 0]
    hashes = RangeHashes(tokens)
    ranges = [(i, j) for i in range(9) for j in range(i, 9)]
    for one in ranges:
        for other in ranges:
            same = tokens[slice(*one)] == tokens[slice(*other)]
            assert (hashes.of(*one) == hashes.of(*other)) == same, (one, other)


def test_hashes_of_long_ranges_stay_small() -> None:
    hashes = RangeHashes([3] * 1000)
    assert hashes.of(0, 500) == hashes.of(500, 1000)
    assert all(0 <= hashes.of(0, n)[1] < 1 << 61 for n in (1, 10, 1000))
