"""Tests rankings of splits: they equal a brute force search, and count each dropped candidate with its reason."""

from dataclasses import replace
from itertools import groupby
from typing import Any

import jax
import numpy as np
import pytest
from support.searched import LAYERS, ROWS, batch, init, loss

from pathways.compiler.machines import Machines
from pathways.compiler.search.candidates import Space, candidates
from pathways.compiler.search.predict import Prediction, least_seconds, memory_of_slices
from pathways.compiler.search.profile import Profiles
from pathways.compiler.search.rank import Dropped, PlanFigures, Ranker, Row, better, in_words
from pathways.compiler.search.subject import SearchedLoss
from pathways.dialect.choice import SplitChoice
from pathways.dialect.topology import Island, Topology

SPACE = Space(ROWS, LAYERS)
ROW = Row(SplitChoice(2), (0, 1), (), Prediction(2.0, 0.25, 100.0, 7.0, 0.0), 100.0)
PLAN = PlanFigures(3.0, 0.5, 101.0, 9.0)


@pytest.fixture(scope="module")
def profiles() -> Profiles:
    return Profiles(SearchedLoss("f", loss, (init(), batch())), [1, 2, 4, 8, 16], 32)


def topology(memory: int | None = None, second: int | None = None) -> Topology:
    return Topology((Island("a", 2, flops=1e9, memory=memory), Island("b", 2, flops=1e9, memory=second or memory)))


def ranker(profiles: Profiles, memory: int | None = None, second: int | None = None) -> Ranker:
    return Ranker(profiles, Machines(topology(memory, second)), ROWS)


def split_of(row: Row) -> tuple[int, int, int]:
    return row.choice.stages, row.choice.data, row.choice.model


@pytest.mark.parametrize("top", [1, 3, 100])
def test_the_ranking_equals_that_of_all_candidates_played(top: int, profiles: Profiles) -> None:
    choices = list(candidates(topology(), SPACE))
    played = ranker(profiles).each(c for c in choices if c.islands).rows
    groups = groupby(sorted(played, key=split_of), key=split_of)
    best = sorted((min(rows, key=better) for _, rows in groups), key=better)
    found = ranker(profiles).rank(choices, top)
    assert [r.seconds for r in found.rows] == pytest.approx([r.seconds for r in best[:top]])
    assert [split_of(r) for r in found.rows] == [split_of(r) for r in best[:top]]
    assert {r.choice.remat for r in found.rows} == {"no"} and {r.limit for r in found.rows} == {None}
    assert found.tried == len(choices) == len(found.rows) + sum(d.count for d in found.dropped)
    reasons = {d.reason: d for d in found.dropped}
    assert reasons["need a slice with more devices than an island has"].count == sum(not c.islands for c in choices)
    assert "do not fit the memory of a device" not in reasons
    if top == 1:
        assert f"{best[1].choice.split}, " in reasons["are slower than all rows shown"].closest


def test_each_choice_asked_for_has_a_row_whether_it_fits_or_not(profiles: Profiles) -> None:
    choices = [SplitChoice(2, microbatches=4, schedule=s, islands=("a", "b")) for s in ("gpipe", "1f1b")]
    (first, second) = ranker(profiles, 1000, 900).each(choices).rows
    assert first.limit == 900 and not first.fits and not second.fits
    assert {first.choice.schedule, second.choice.schedule} == {"gpipe", "1f1b"} and first.seconds <= second.seconds
    chunked = SplitChoice(2, 2, microbatches=2, schedule="interleaved", islands=("a", "b"))
    (row,) = ranker(profiles).each([chunked]).rows
    assert len(row.places) == 5 and len(row.costs) == 4 and row.limit is None and row.fits


def test_a_candidate_with_more_stages_than_operations_is_dropped(profiles: Profiles) -> None:
    count = len(profiles.at(ROWS).spine)
    found = ranker(profiles).rank([SplitChoice(count, islands=("a",) * count), SplitChoice(islands=("a",))], 8)
    assert len(found.rows) == 2 and not found.dropped
    many = SplitChoice(count // 2 + 1, 2, schedule="interleaved", islands=("a",) * (count // 2 + 1))
    found = ranker(profiles).rank([many], 8)
    (dropped,) = found.dropped
    assert dropped.reason == "have more stages than the loss has operations to cut at" and not found.rows
    stages = 2 * (count // 2 + 1)
    assert dropped.closest == f"{many.split}, 1 microbatches, interleaved: {stages} stages of {count} operations"


def test_candidates_behind_a_dropped_one_are_ranked(profiles: Profiles) -> None:
    """One has too many stages, one needs too much memory, one spans islands."""
    count = 2 * len(profiles.at(ROWS).spine)
    small = Topology((Island("a", 4, flops=1e9), Island("b", 1, flops=1e9, memory=1000)))
    good = SplitChoice(islands=("a",))
    bad = [SplitChoice(count, islands=("a",) * count), SplitChoice(islands=("b",)), SplitChoice(1, 1, 8)]
    found = Ranker(profiles, Machines(small), ROWS).rank([*bad, good], 8)
    assert [r.choice for r in found.rows] == [good] and [d.count for d in found.dropped] == [1, 1, 1]


def test_an_island_of_unknown_memory_takes_what_another_has_no_room_for(profiles: Profiles) -> None:
    choice = SplitChoice(2, microbatches=4, schedule="1f1b", islands=("a", "b"))
    even = memory_at(profiles, choice)
    unknown = Topology((Island("a", 1, flops=1e9, memory=int(even[0] * 0.6)), Island("b", 1, flops=1e9)))
    (row,) = Ranker(profiles, Machines(unknown), ROWS).rank([choice], 8).rows
    assert row.limit == int(even[0] * 0.6)
    assert memory_of_slices(row.costs, row.choice, 4.0)[0] <= int(even[0] * 0.6)


def test_the_closest_of_dropped_candidates_is_the_first_with_the_least_measure() -> None:
    dropped = Dropped("are slow")
    for measure, shown in ((3.0, "three"), (2.0, "two"), (2.0, "as fast"), (5.0, "five")):
        dropped.add(measure, shown)
    assert (dropped.count, dropped.closest) == (4, "two")


def memory_at(profiles: Profiles, choice: SplitChoice) -> list[float]:
    """Returns the bytes a device of each slice without recomputation."""
    (row,) = ranker(profiles).each([choice]).rows
    return memory_of_slices(row.costs, choice, 4.0)


def test_a_candidate_that_needs_too_much_memory_says_how_much(profiles: Profiles) -> None:
    choice = SplitChoice(microbatches=2, schedule="1f1b", islands=("a",))
    (needed,) = memory_at(profiles, choice)
    found = ranker(profiles, int(needed)).rank([choice], 8)
    assert found.rows and not found.dropped
    (dropped,) = ranker(profiles, int(needed / 2.5)).rank([choice], 8).dropped
    assert (dropped.count, dropped.reason) == (1, "do not fit the memory of a device")
    assert dropped.closest == "1 x 1 x 1, 2 microbatches, 1f1b: 2.50 times the memory of a device"


def test_a_candidate_without_room_for_activations_recomputes_its_forward(profiles: Profiles) -> None:
    choice = SplitChoice(microbatches=2, schedule="1f1b", islands=("a",))
    (needed,) = memory_at(profiles, choice)
    plain = ranker(profiles, int(needed) + 1).rank([choice], 8).rows[0]
    assert plain.choice.remat == "no" and plain.fits and plain.limit == int(needed) + 1
    two = replace(choice, stages=2, schedule="gpipe", microbatches=8, islands=("a", "b"))
    limit = max(memory_at(profiles, two)) - 1
    row = ranker(profiles, int(limit)).rank([two], 8).rows[0]
    assert row.choice.remat == "auto" and row.fits and any(c.again for c in row.costs)
    free = ranker(profiles).rank([two], 8).rows[0]
    assert row.seconds > free.seconds and row.places == free.places and free.memory > limit


def test_a_smaller_island_gets_fewer_layers(profiles: Profiles) -> None:
    """The even cut does not fit; another one does, so the candidate is kept. Rows say the least memory there is."""
    choice = SplitChoice(2, microbatches=4, schedule="1f1b", islands=("a", "b"))
    even = memory_at(profiles, choice)
    states = float(profiles.at(4).spine.parameters[-1]) * 4
    small = int(states * 0.4)
    found = ranker(profiles, small, int(sum(even))).rank([choice], 8)
    (row,) = found.rows
    free = ranker(profiles).rank([choice], 8).rows[0]
    assert row.places[1] < free.places[1] and row.limit == small and not found.dropped
    assert memory_of_slices(row.costs, row.choice, 4.0)[0] <= small
    (dropped,) = ranker(profiles, int(states * 0.01), int(sum(even))).rank([choice], 8).dropped
    times = float(dropped.closest.split(": ")[1].split()[0])
    assert dropped.reason == "do not fit the memory of a device" and 40 < times < 100


def test_a_slice_on_several_islands_is_dropped_with_its_least_time(profiles: Profiles) -> None:
    choice = SplitChoice(1, 1, 4, microbatches=1)
    (row,) = ranker(profiles).each([choice]).rows
    (dropped,) = ranker(profiles).rank([choice], 8).dropped
    assert dropped.closest == f"1 x 4 x 1, 1 microbatches, program: {least_seconds(row.costs, choice):.4g} s at best"


def test_a_plan_takes_the_place_of_a_prediction_unless_it_was_refused() -> None:
    def figures(row: Row) -> tuple[float, float, float, float]:
        return row.seconds, row.bubble, row.memory, row.dcn_bytes

    assert figures(ROW) == (2.0, 0.25, 100.0, 7.0) and ROW.fits
    told = replace(ROW, plan=PLAN)
    assert figures(told) == (3.0, 0.5, 101.0, 9.0) and not told.fits and replace(told, limit=None).fits
    refused = replace(ROW, plan=PlanFigures(3.0, 0.5, 101.0, 9.0, "PWC0402"))
    assert figures(refused) == figures(ROW) and refused.fits


def test_rows_are_sorted_by_plan_fit_time_devices_and_microbatches() -> None:
    def row(seconds: float, choice: SplitChoice = ROW.choice, **changes: Any) -> Row:
        return replace(ROW, prediction=replace(ROW.prediction, seconds=seconds), choice=choice, **changes)

    ordered = [
        row(1.0, SplitChoice(1, microbatches=8)),
        row(1.0, SplitChoice(2, microbatches=2)),
        row(1.0, SplitChoice(2, microbatches=4)),
        row(1.5),
        row(0.5, limit=99.0),
        row(0.1, plan=PlanFigures(refused="PWC0402")),
    ]
    assert sorted(reversed(ordered), key=better) == ordered
    assert in_words(SplitChoice(2, 2, 4, 1, 8, "interleaved")) == "2*2 x 4 x 1, 8 microbatches, interleaved"


def test_one_split_has_one_row_of_its_fastest_candidate(profiles: Profiles) -> None:
    """All others of the split are counted, with the closest of them."""
    choices = [SplitChoice(2, microbatches=n, schedule="gpipe", islands=("a", "b")) for n in (2, 4, 8)]
    played = sorted(ranker(profiles).each(choices).rows, key=lambda r: r.seconds)
    for order in (choices, choices[::-1]):
        found = ranker(profiles).rank(order, 8)
        (row,), (dropped,) = found.rows, found.dropped
        assert row.choice == played[0].choice and row.seconds == played[0].seconds
        assert (dropped.count, dropped.reason) == (2, "have the same split as a row, and are slower")
        assert dropped.closest.startswith(in_words(played[1].choice))


def test_of_equally_fast_candidates_the_one_with_fewer_microbatches_is_kept() -> None:
    """A loss of one operation, and no time for a call: a single slice takes the same time for all microbatches."""
    subject = SearchedLoss("f", lambda w, x: (x * 2.0).sum(), ((), jax.ShapeDtypeStruct((16, 4), np.float32)))
    machines = Machines(topology(), call_seconds=0.0)
    choices = [SplitChoice(microbatches=n, schedule="gpipe", islands=("a",)) for n in (8, 4, 2, 16)]
    row = Ranker(Profiles(subject, [1, 2, 4, 8], 1), machines, 16).rank(choices, 8).rows[0]
    assert row.choice.microbatches == 2
