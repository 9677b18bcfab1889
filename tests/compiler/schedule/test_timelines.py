"""Tests timelines of small graphs, and tables of schedules as files, without any program."""

from pathlib import Path
from typing import Any

import pytest
from support.pipelines import model

from pathways.compiler.schedule import SCHEDULES
from pathways.compiler.schedule.table import Pipeline, Table
from pathways.compiler.schedule.table_csv import check_rows, needs_split, read_rows, write_table
from pathways.compiler.schedule.timeline import Bubble, Cycle, Precedence, bubble, play
from pathways.dialect.call_labels import Action, read_action
from pathways.dialect.diagnostics import PathwaysError

DIAMOND = Precedence([[], [0], [0], [1, 2]], [0, 1, -1, 0], [1.0, 4.0, 2.0, 3.0])
"""Slice 0 works, then slice 1, and beside that a transfer, then slice 0 again."""


def test_a_node_starts_when_all_that_it_waits_for_has_ended() -> None:
    found = play(DIAMOND)
    assert (found.starts, found.ends) == ([0, 1, 1, 5], [1, 5, 3, 8])
    found = play(DIAMOND, [(), (2,), (), ()])  # node 1 also waits for the transfer
    assert (found.starts, found.ends) == ([0, 3, 1, 7], [1, 7, 3, 10])
    assert play(Precedence([], [], [])).starts == []


@pytest.mark.parametrize(
    ("waits", "predecessors", "cycle"),
    [
        ([[], []], [(1,), (0,)], {0, 1}),
        ([[], [0], [1]], [(2,), (), ()], {0, 1, 2}),
        ([[], [], [1], []], [(), (2,), (), (0,)], {1, 2}),  # nodes 0 and 3 are no part of it
        ([[], [], []], [(1,), (2,), (1,)], {1, 2}),  # node 0 only waits for it
        ([[], []], [(), (1,)], {1}),
    ],
)
def test_each_node_of_a_cycle_waits_for_the_next(waits: Any, predecessors: Any, cycle: set[int]) -> None:
    with pytest.raises(Cycle) as caught:
        play(Precedence(waits, [0] * len(waits), [1.0] * len(waits)), predecessors)
    nodes = caught.value.nodes
    assert set(nodes) == cycle and len(nodes) == len(cycle)
    for at, node in enumerate(nodes):
        after = nodes[(at + 1) % len(nodes)]
        assert after in (*waits[node], *predecessors[node])


def test_the_bubble_counts_slices_that_work_and_ends_with_the_last_work() -> None:
    """A transfer at the end, and a slice whose calls take no time, do not count."""
    graph = Precedence([[], [0], [1], [1]], [0, 1, -1, 2], [1.0, 3.0, 9.0, 0.0])
    found = bubble(graph, play(graph))
    assert found == Bubble(4.0, 0.5, 1 - 4 / (2 * (1 + 3 + 9)))
    first = bubble(graph, play(graph), [0, 2])
    assert first == Bubble(1.0, 0.0, 1 - 1 / (1 + 3 + 9))


def test_the_bound_has_transfers_before_and_behind_the_work_of_a_slice() -> None:
    """Slice 0 cannot start before 2, and 3 seconds of a transfer and of slice 1 follow its last node."""
    graph = Precedence([[], [0], [1], [2]], [-1, 0, -1, 1], [2.0, 5.0, 1.0, 2.0])
    assert bubble(graph, play(graph)) == Bubble(10.0, 1 - 7 / 20, 1 - 7 / 20)


def test_the_bound_puts_the_node_last_that_least_follows() -> None:
    """Of two nodes of slice 0 only one is waited for; run first, its transfer overlaps the other."""
    graph = Precedence([[], [0], [0], [2], [3]], [-1, 0, 0, -1, 1], [2.0, 5.0, 1.0, 1.0, 2.0])
    late, early = (bubble(graph, play(graph, order)) for order in ([(), (), (1,), (), ()], [(), (2,), (), (), ()]))
    assert late.seconds == 11 and late.fraction == pytest.approx(1 - 8 / 22)
    assert early.seconds == 8 and early.fraction == late.bound == early.bound == pytest.approx(1 - 8 / 16)


def test_the_bound_begins_with_the_node_that_can_start_first() -> None:
    """A node starts behind the longer of two transfers; another node of its slice waits for nothing."""
    graph = Precedence([[], [], [0, 1], []], [-1, -1, 0, 0], [4.0, 1.0, 2.0, 1.0])
    assert bubble(graph, play(graph), [2]) == Bubble(6.0, 1 - 2 / 6, 1 - 2 / 6)
    assert bubble(graph, play(graph)) == Bubble(6.0, 0.5, 0.0)


def test_the_bound_of_one_busy_slice_has_no_bubble() -> None:
    graph = Precedence([[], []], [0, 0], [1.0, 2.0])
    assert bubble(graph, play(graph, [(), (0,)])) == Bubble(3.0, 0.0, 0.0)


@pytest.mark.parametrize("graph", [Precedence([], [], []), Precedence([[], []], [0, -1], [0.0, 2.0])])
def test_a_graph_without_work_has_no_bubble(graph: Precedence) -> None:
    assert bubble(graph, play(graph)) == Bubble(0.0, 0.0, 0.0)


# ---- pipelines


PAIR = model(2, 1, 2)


def actions(texts: str) -> list[Action]:
    return [read_action(text) for text in texts.split()]


def rows(*texts: str) -> list[list[Action]]:
    return [actions(text) for text in texts]


def shown(table: Table) -> list[str]:
    return [" ".join(map(str, row)) for row in table]


def test_a_pipeline_knows_its_stages_and_kinds() -> None:
    chunked, split = model(2, 2, 1), model(2, 1, 1, split=True)
    assert (chunked.stages, chunked.stages_of(0), chunked.stages_of(1)) == (4, [0, 2], [1, 3])
    assert PAIR.has_backward and not PAIR.is_split and split.has_backward and split.is_split
    forward = Pipeline(("s0",), (0,), 1, {Action(0, "F", 0): (0,)})
    assert not forward.has_backward and not forward.is_split
    half = Pipeline(("s0",), (0,), 1, {Action(0, "F", 0): (0,), Action(0, "W", 0): (1,)})
    assert half.is_split and shown(half.table(rows("0F0 0B0"))) == ["0F0 0W0"]
    assert shown(split.table(rows("0F0 0B0 0F1", "1B0"))) == ["0F0 0I0 0W0", "1I0 1W0"]
    assert split.parts(Action(0, "B", 0)) == actions("0I0 0W0") and forward.parts(Action(0, "B", 0)) == []
    assert forward.parts(Action(0, "W", 0)) == [] and PAIR.parts(Action(0, "B", 1)) == actions("0B1")


def test_gpipe_runs_all_forwards_then_all_backwards_of_the_last_stage_first() -> None:
    assert shown(SCHEDULES["gpipe"](model(2, 2, 2))) == [
        "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1",
        "1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1",
    ]


def test_1f1b_of_fewer_microbatches_than_stages_is_gpipe_in_its_first_stages() -> None:
    assert shown(SCHEDULES["1f1b"](model(3, 1, 2))) == ["0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1", "2F0 2B0 2F1 2B1"]


def test_zero_bubble_fills_gaps_with_weight_gradients() -> None:
    """H1 of the paper: in unit times. The last stage alternates, and its weight gradients wait for the end."""
    assert shown(SCHEDULES["zero-bubble"](model(3, 1, 4, split=True))) == [
        "0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3",
        "1F0 1F1 1I0 1F2 1I1 1W0 1F3 1I2 1W1 1I3 1W2 1W3",
        "2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3",
    ]
    assert shown(SCHEDULES["zero-bubble"](model(1, 1, 2, split=True))) == ["0F0 0I0 0W0 0F1 0I1 0W1"]


def refused(schedule: str, pipeline: Pipeline) -> str:
    with pytest.raises(PathwaysError) as caught:
        SCHEDULES[schedule](pipeline)
    assert caught.value.code == "PWC0404"
    return str(caught.value)


def test_interleaved_refuses_microbatches_that_fill_no_rounds() -> None:
    text = refused("interleaved", model(3, 2, 7))
    assert "7 microbatches, 3 slices" in text and "a multiple of 2 " in text and "6 or 8 microbatches" in text
    assert "9 or 12 microbatches" in refused("interleaved", model(3, 2, 11))
    assert "20 or 24 microbatches" in refused("interleaved", model(4, 2, 21))
    for count in (1, 2, 3, 4, 5, 6, 8):
        assert len(SCHEDULES["interleaved"](model(3, 2, count))) == 3


def test_interleaved_refuses_stages_that_are_not_dealt_in_turn() -> None:
    calls = {Action(s, "F", 0): (s,) for s in range(4)}
    text = refused("interleaved", Pipeline(("a", "b"), (0, 0, 1, 1), 1, calls))
    assert "stages 0 to 3 on slices a, a, b, b" in text and "stage s on slice s mod 2" in text
    refused("interleaved", Pipeline(("a", "b"), (0, 1, 0), 1, calls))


@pytest.mark.parametrize("schedule", ["1f1b", "zero-bubble"])
def test_schedules_of_one_stage_a_slice_say_how_many_there_are(schedule: str) -> None:
    pipeline = Pipeline(("a", "b"), (0, 1, 0), 1, {Action(s, "F", 0): (s,) for s in range(3)})
    text = refused(schedule, pipeline)
    assert "a: 2 stages, b: 1 stages" in text and "one stage per slice" in text and "interleaved" in text


# ---- files


def read(tmp_path: Path, text: str) -> list[list[Action]]:
    path = tmp_path / "table.csv"
    path.write_text(text)
    return read_rows(path)


def test_a_file_has_one_row_a_slice_and_empty_cells_are_idle(tmp_path: Path) -> None:
    found = read(tmp_path, "0F0, 0F1 ,,0B0\n\n1I0,  ,1W0\n,\n\n")
    assert found == [actions("0F0 0F1 0B0"), [], actions("1I0 1W0")]
    assert read(tmp_path, "") == [] and needs_split(found) and not needs_split(found[:1])


def problems(error: PathwaysError) -> list[tuple[str, int | None]]:
    """Returns what each problem of an error has, and its line."""
    return [(d.text(d.have), d.where.line if d.where else None) for d in error.diagnostics]


def test_all_cells_that_are_no_actions_are_named_with_their_line_and_column(tmp_path: Path) -> None:
    with pytest.raises(PathwaysError) as caught:
        read(tmp_path, "0F0,hello\n1F0\n,0F1, 2X0\n")
    assert problems(caught.value) == [("'hello' in column 2", 1), ("' 2X0' in column 3", 3)]


def test_a_file_that_cannot_be_read_is_refused_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(PathwaysError, match=r"PWC0403(.*\n)*.*No such file or directory"):
        read_rows(tmp_path / "none.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(PathwaysError, match=r"PWC0403(.*\n)*.*utf-8"):
        read_rows(tmp_path / "binary.csv")


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (("0F0 0F1 0B0 0B1",), [("1 rows", None), ("missing actions (4): 1B0, 1B1, 1F0, 1F1", None)]),
        (("0F0 0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1"), [("0F0 twice, in rows 1 and 1", 1)]),
        (
            ("0F0 0F1 0B0 0B1 1F0", "1F1 1F0 1B0 1B1"),
            [("1F0 in row 1", 1), ("1F0 twice, in rows 1 and 2", 2)],
        ),
        (("0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1 2F0"), [("2F0", 2)]),
        (("0F0 0F1 0B0 0B1 0F2", "1F0 1F1 1B0 1B1"), [("0F2", 1)]),
        (("0F0 0F1 0B0 0B1 0W0", "1F0 1F1 1B0 1B1"), [("0W0", 1)]),
    ],
)
def test_every_fault_of_a_table_is_named_with_its_line(texts: tuple[str, ...], found: list[Any]) -> None:
    with pytest.raises(PathwaysError) as caught:
        check_rows(rows(*texts), PAIR, "table.csv")
    assert problems(caught.value) == found and caught.value.code == "PWC0403"


def test_faults_of_a_table_say_what_is_needed() -> None:
    with pytest.raises(PathwaysError) as caught:
        check_rows(rows("0F0 1B0 0F2", "", ""), PAIR, "table.csv")
    rules = [d.text(d.need) for d in caught.value.diagnostics]
    known = "stages 0 to 1, microbatches 0 to 1, F and B, the actions of the program"
    assert rules == ["one row per slice: s0, s1", "stage 1 in row 2: it is on s1", known, "every action exactly once"]


def test_at_most_eight_missing_actions_are_named() -> None:
    pipeline = model(1, 1, 5)
    all_eight = "missing actions (8): 0B0, 0B1, 0B2, 0B3, 0F0, 0F1, 0F2, 0F3"
    for have, text in (("0F4 0B4", all_eight), ("0F4", "missing actions (9): ")):
        with pytest.raises(PathwaysError) as caught:
            check_rows(rows(have), pipeline, "table.csv")
        ((found, _),) = problems(caught.value)
        assert found.startswith(text) and found.endswith(", ...") == (text != all_eight)


def test_an_input_gradient_that_is_not_needed_may_be_named() -> None:
    """The first stage has W alone, and its backward may be written as I and W, or as B."""
    calls = {Action(0, kind, m): (i,) for i, (kind, m) in enumerate((k, m) for k in "FW" for m in (0, 1))}
    pipeline = Pipeline(("s0",), (0,), 2, calls)
    for text in ("0F0 0F1 0I0 0W0 0I1 0W1", "0F0 0F1 0B0 0B1", "0F0 0F1 0W0 0W1"):
        assert shown(check_rows(rows(text), pipeline, "t.csv")) == ["0F0 0F1 0W0 0W1"]
    with pytest.raises(PathwaysError) as caught:
        check_rows(rows("0F0 0F1 0W0 0W1 0I2"), pipeline, "t.csv")
    assert problems(caught.value) == [("0I2", 1)] and "F and W, the actions of the program" in str(caught.value)


def test_a_written_table_has_each_action_in_the_column_of_its_start(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    table = tuple(tuple(row) for row in rows("0F0 0B0", "1F0 1B0"))
    starts = dict(zip(actions("0F0 1F0 1B0 0B0"), range(4), strict=True))
    write_table(path, table, starts)
    assert path.read_text() == "0F0,,,0B0\n,1F0,1B0,\n" and read_rows(path) == [list(row) for row in table]
    write_table(path, (), {})
    assert path.read_text() == ""
