"""Tests predicted schedules: textbook bubbles, lower bounds of time, and memory by microbatches in flight."""

from dataclasses import replace

import pytest

from pathways.compiler.search.predict import again_where_full, in_flight, least_seconds, memory_of_slices, predict
from pathways.compiler.search.stage_costs import StageCost
from pathways.dialect.choice import SplitChoice

UNIT = StageCost(
    work=1.0,
    checkpointed=0.0,
    added=0.0,
    added_back=0.0,
    read=0.0,
    accumulated=0.0,
    call=0.0,
    sends=0.0,
    crosses=0.0,
    parameters=10.0,
    kept=4.0,
    taken=1.0,
)


def test_forward_and_backward_read_the_parameters() -> None:
    """So many small microbatches take longer than few large ones with the same total work."""
    reads = replace(UNIT, read=0.5)
    assert (reads.forward, reads.backward) == (1.5, 2.5) and reads.bare == UNIT


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "count"), [(2, 4), (4, 8), (8, 8)])
def test_equal_stages_have_the_textbook_bubble(schedule: str, stages: int, count: int) -> None:
    choice = SplitChoice(stages, microbatches=count, schedule=schedule)
    found = predict([UNIT] * stages, choice, 4.0)
    assert found.seconds == pytest.approx(3 * (count + stages - 1))
    assert found.bubble == pytest.approx((stages - 1) / (count + stages - 1))


def test_interleaved_chunks_reduce_the_bubble() -> None:
    halves = [replace(UNIT, work=0.5)] * 8
    whole = predict([UNIT] * 4, SplitChoice(4, microbatches=8, schedule="1f1b"), 4.0)
    cut = predict(halves, SplitChoice(4, 2, microbatches=8, schedule="interleaved"), 4.0)
    assert cut.bubble == pytest.approx(3 / (2 * 8 + 3)) and cut.seconds < whole.seconds


def test_zero_bubble_is_faster_than_1f1b() -> None:
    times = {
        s: predict([UNIT] * 4, SplitChoice(4, microbatches=8, schedule=s), 4.0).seconds for s in ("1f1b", "zero-bubble")
    }
    assert times["zero-bubble"] < times["1f1b"]


@pytest.mark.parametrize(
    ("schedule", "chunks", "flying"),
    [("gpipe", 1, (8, 8, 8, 8)), ("1f1b", 1, (4, 3, 2, 1)), ("program", 1, (8, 8, 8, 8))],
)
def test_in_flight_counts_the_microbatches_of_each_stage(schedule: str, chunks: int, flying: tuple[int, ...]) -> None:
    assert in_flight(4, chunks, 8, schedule) == flying


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zero-bubble", "interleaved"])
def test_the_lower_bound_never_exceeds_the_predicted_time(schedule: str) -> None:
    chunks = 2 if schedule == "interleaved" else 1
    for count in (2, 4, 8):
        for slow in range(2 * chunks):
            costs = [replace(UNIT, sends=0.3, call=0.1, work=2.5 if k == slow else 1.0) for k in range(2 * chunks)]
            choice = SplitChoice(2, chunks, microbatches=count, schedule=schedule)
            assert least_seconds(costs, choice) <= predict(costs, choice, 4.0).seconds * (1 + 1e-9)


def test_a_slice_without_enough_memory_recomputes_its_forward() -> None:
    choice = SplitChoice(2, microbatches=4, schedule="gpipe")
    costs = [UNIT, replace(UNIT, kept=1.0)]
    assert memory_of_slices(costs, choice, 4.0) == [40 + 4 * 5, 40 + 4 * 2]
    again = again_where_full(costs, choice, 4.0, [50.0, 50.0])
    assert [c.again for c in again] == [True, False]
    assert memory_of_slices(again, choice, 4.0) == [40 + 4 * 1 + 4, 40 + 4 * 2]
    assert again[0].backward == UNIT.backward + UNIT.forward
    assert again_where_full(costs, choice, 4.0, [None, None]) == costs
