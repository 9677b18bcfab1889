"""Tests which activities become progress rows, and the text of the rows."""

from pathways.api.progress_rows import MAX_ROWS, ProgressRow, one_line, progress_rows, time_to_show
from pathways.dialect.activities import BYTES, ELSEWHERE, Activity


def activity(name: str, begun: float, thread: int = 1, total: int = 0, unit: str = "", done: int = 0) -> Activity:
    made = Activity(name, total, unit, since=begun)
    made.thread, made.done = thread, done
    return made


def test_rows_appear_once_the_outermost_activity_took_long_enough() -> None:
    quick = [activity("preparing", 10.0), activity("tracing", 10.8)]
    assert time_to_show([], 10.0, 1.0) is None
    assert time_to_show(quick, 10.9, 1.0) == 1.0 - (10.9 - 10.0) and progress_rows(quick, 10.9, 1.0) == []
    assert time_to_show(quick, 11.0, 1.0) == 0.0
    assert [row.name for row in progress_rows(quick, 11.0, 1.0)] == ["preparing", "tracing"]


def test_a_quick_thread_gets_no_rows_beside_a_slow_one() -> None:
    both = [activity("slow", 0.0, thread=1), activity("quick", 4.5, thread=2), activity("inner", 4.9, thread=1)]
    assert [(row.depth, row.name) for row in progress_rows(both, 5.0, 1.0)] == [(0, "slow"), (1, "inner")]


def test_counts_and_bytes_are_formatted_as_text() -> None:
    calls = activity("merging", 0.0, total=12, unit="calls", done=3)
    sent = activity("sending", 0.0, thread=2, total=3 << 20, unit=BYTES, done=1 << 20)
    sent.detail = "x"
    rows = progress_rows([calls, sent], 4.2, 1.0)
    assert rows == [
        ProgressRow(0, "merging", "3 of 12 calls", 0.25, "", 4),
        ProgressRow(0, "sending", "1.0 MiB of 3.0 MiB", 1 / 3, "x", 4),
    ]
    assert one_line(rows[1:]) == "sending, 1.0 MiB of 3.0 MiB, x, 4 s"
    assert progress_rows([activity("unknown", 0.0, done=7)], 2.0, 1.0) == [ProgressRow(0, "unknown", "", None, "", 2)]


def test_an_activity_beyond_its_total_counts_as_complete() -> None:
    assert progress_rows([activity("grows", 0.0, total=2, done=3)], 2.0, 1.0)[0].part == 1.0


def test_a_wait_elsewhere_is_shown_once_its_reason_is_known() -> None:
    wait = activity("a run waits", 0.0, unit=ELSEWHERE)
    assert progress_rows([wait], 2.0, 1.0) == []
    wait.detail = "after 1 run of main"
    assert [row.detail for row in progress_rows([wait], 2.0, 1.0)] == ["after 1 run of main"]


def test_threads_that_wait_elsewhere_for_one_reason_share_a_row() -> None:
    waits = [activity("a run waits", float(thread), thread, unit=ELSEWHERE) for thread in range(3)]
    for wait, detail in zip(waits, ("after 1 run of main", "after 1 run of main", "lacks memory"), strict=True):
        wait.detail = detail
    rows = progress_rows(waits, 5.0, 1.0)
    assert [(row.detail, row.seconds) for row in rows] == [("after 1 run of main", 5), ("lacks memory", 3)]


def test_rows_beyond_the_maximum_are_dropped() -> None:
    many = [activity(str(n), 0.0, thread=n) for n in range(2 * MAX_ROWS)]
    assert [row.name for row in progress_rows(many, 2.0, 1.0)] == [str(n) for n in range(MAX_ROWS)]
