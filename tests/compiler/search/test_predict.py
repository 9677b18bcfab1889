"""Tests predicted schedules: textbook bubbles, lower bounds of time, and memory by microbatches in flight."""

from dataclasses import replace

import pytest

from pathways.compiler.schedule import Table
from pathways.compiler.search import predict as predict_module
from pathways.compiler.search.predict import again_where_full, in_flight, least_seconds, memory_of_slices, predict
from pathways.compiler.search.stage_costs import StageCost
from pathways.dialect.call_labels import Action
from pathways.dialect.choice import SplitChoice

UNIT = StageCost(
    work=1.0,
    checkpointed=0.0,
    added=0.0,
    added_back=0.0,
    read=0.0,
    written=0.0,
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
    reads = replace(UNIT, read=3.0, written=3.0)
    assert (reads.forward, reads.backward) == (3.0, 6.0)


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


def test_each_transfer_of_a_step_takes_the_time_of_its_sender() -> None:
    """One microbatch on three stages: every forward, backward and transfer happens after the other.

    The last stage sends nothing, so the time that it would take does not count.
    """
    costs = [replace(UNIT, work=w, sends=s) for w, s in ((1.0, 0.5), (2.0, 0.25), (4.0, 100.0))]
    found = predict(costs, SplitChoice(3), 4.0)
    assert found.seconds == 3 * 7 + 2 * (0.5 + 0.25)
    assert found.bubble == pytest.approx(1 - 21 / (3 * found.seconds))


def test_a_gpipe_step_of_two_microbatches_equals_its_time_by_hand() -> None:
    """Slice 1 gets microbatch 0 at 1.5 and works until 15.5; slice 0 gets the last gradient half a second later."""
    costs = [replace(UNIT, sends=0.5), replace(UNIT, work=2.0)]
    for schedule in ("gpipe", "program"):
        found = predict(costs, SplitChoice(2, microbatches=2, schedule=schedule), 4.0)
        assert found.seconds == 1.5 + 2 * 6 + 0.5 + 2
        assert found.bubble == pytest.approx(1 - (6 + 12) / (2 * 16))


def test_a_zero_bubble_step_of_two_microbatches_equals_its_time_by_hand() -> None:
    """Slice 1 runs F0 I0 F1 I1 W0 W1 from 1.25 on: input gradients take 2, weight gradients and their sums 3 seconds.

    Slice 0 has one action for its backward, of 2.5 seconds.
    """
    costs = [replace(UNIT, accumulated=0.5, sends=0.25), replace(UNIT, work=2.0, accumulated=1.0)]
    found = predict(costs, SplitChoice(2, microbatches=2, schedule="zero-bubble"), 4.0)
    assert found.seconds == 1.25 + 2 * (2 + 2 + 3)
    assert found.bubble == pytest.approx(1 - (2 * 3.5 + 14) / (2 * found.seconds))


def test_a_zero_bubble_step_waits_for_the_input_gradients_alone() -> None:
    """Slice 0 gets the gradient of its microbatch before slice 1 has the gradient of its weights."""
    costs = [replace(UNIT, accumulated=20.0), UNIT]
    assert predict(costs, SplitChoice(2, microbatches=1, schedule="zero-bubble"), 4.0).seconds == 1 + 1 + 1 + 22


def test_a_prediction_adds_up_bytes_and_collectives_over_microbatches() -> None:
    """Memory is of the fullest slice, collectives of the slice that has most; each crossing goes forth and back."""
    costs = [
        replace(UNIT, added=a, added_back=b, crosses=c, parameters=p)
        for a, b, c, p in (
            (0.5, 0.25, 3.0, 10.0),
            (0.0, 0.125, 5.0, 40.0),
            (0.25, 0.5, 7.0, 10.0),
            (0.0, 0.0, 0.0, 0.0),
        )
    ]
    found = predict(costs, SplitChoice(2, 2, microbatches=4, schedule="interleaved"), 2.0)
    assert found.dcn_bytes == 2 * 4 * 15 and found.collectives == 4 * 1.5
    memory = memory_of_slices(costs, SplitChoice(2, 2, microbatches=4, schedule="interleaved"), 2.0)
    assert memory == [20 * 2 + 5 * (4 + 2), 40 * 2 + 5 * (3 + 1)] and found.memory == max(memory)


@pytest.mark.parametrize(
    ("works", "sends", "choice", "least"),
    [
        ((1, 10), 0.5, SplitChoice(2, microbatches=1), 33 + 2 * 0.5),  # one after another
        ((1, 10), 0.5, SplitChoice(2, microbatches=4), 4 * 30 + 1.5),  # slice 1, after the first forward
        ((10, 1), 0.5, SplitChoice(2, microbatches=4), 4 * 30),
        ((1, 1, 10), 0.5, SplitChoice(3, microbatches=4), 4 * 30 + 2 * 1.5),
        ((1, 2, 3, 4), 0.5, SplitChoice(2, 2, microbatches=4, schedule="interleaved"), 4 * 18 + 1.5),
        ((4, 3, 2, 1), 0.5, SplitChoice(2, 2, microbatches=4, schedule="interleaved"), 4 * 18),
    ],
)
def test_the_least_time_is_that_of_the_slowest_slice_or_of_one_microbatch(
    works: tuple[int, ...], sends: float, choice: SplitChoice, least: float
) -> None:
    costs = [replace(UNIT, work=float(w), sends=sends) for w in works[:-1]]
    assert least_seconds([*costs, replace(UNIT, work=float(works[-1]))], choice) == least


@pytest.mark.parametrize(
    ("stages", "chunks", "count", "schedule", "flying"),
    [
        (3, 1, 4, "zero-bubble", (3, 3, 3)),  # until the weight gradient, not the input gradient
        (2, 2, 4, "interleaved", (4, 3, 2, 1)),
        (3, 1, 2, "1f1b", (2, 2, 1)),
        (1, 1, 4, "1f1b", (1,)),
    ],
)
def test_a_microbatch_is_in_flight_until_its_last_backward_action(
    stages: int, chunks: int, count: int, schedule: str, flying: tuple[int, ...]
) -> None:
    assert in_flight(stages, chunks, count, schedule) == flying


@pytest.mark.parametrize(("row", "most"), [("FFBFF", 3), ("FFBBFFF", 3), ("FIFIWFIF", 3), ("FBFBF", 1)])
def test_each_last_backward_action_frees_the_inputs_of_one_microbatch(
    row: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule may start more microbatches later than at its beginning."""
    table: Table = (tuple(Action(0, kind, number) for number, kind in enumerate(row)),)
    monkeypatch.setattr(predict_module, "table_of_choice", lambda *_: table)
    assert in_flight.__wrapped__(1, 1, len(row), "gpipe") == (most,)


def test_a_slice_that_fills_its_memory_exactly_does_not_recompute() -> None:
    choice = SplitChoice(2, microbatches=4, schedule="gpipe")
    for limit, again in ((60.0, False), (59.0, True)):
        found = again_where_full([UNIT, UNIT], choice, 4.0, [limit, None])
        assert [c.again for c in found] == [again, False]


def test_all_chunks_of_a_full_slice_recompute_their_forward() -> None:
    choice = SplitChoice(2, 2, microbatches=4, schedule="interleaved")
    assert [c.again for c in again_where_full([UNIT] * 4, choice, 4.0, [1e9, 1.0])] == [False, True, False, True]
