"""Makes rows for people of what is under way: when to show them, and what they say. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from pathways.dialect.activities import BYTES, ELSEWHERE, Activity
from pathways.dialect.topology import readable

MOST_ROWS = 6
"""The most rows that are shown at once."""


@dataclass(frozen=True)
class ProgressRow:
    """One activity as it is shown. `depth`: how many activities of its thread it is inside of."""

    depth: int
    name: str
    count: str
    part: float | None
    """How much of it is done, from 0 to 1; None where that is not known."""
    detail: str
    seconds: int


def time_to_show(activities: Sequence[Activity], now: float, after: float) -> float | None:
    """Returns in how many seconds something has taken so long that it is shown; None where nothing is under way."""
    oldest = min((activity.begun for activity in activities), default=None)
    return None if oldest is None else max(0.0, oldest + after - now)


def progress_rows(activities: Sequence[Activity], now: float, after: float) -> list[ProgressRow]:
    """Makes a row of each activity of the threads that have been at theirs for long enough; inner ones below outer."""
    threads: dict[int, list[Activity]] = {}
    for activity in activities:
        threads.setdefault(activity.thread, []).append(activity)
    long = [stack for stack in threads.values() if stack[0].begun + after <= now]
    rows: list[ProgressRow] = []
    told: set[str] = set()
    """What holds up runs elsewhere: threads that wait for the same are one row."""
    for stack in long:
        for depth, activity in enumerate(stack):
            if activity.unit == ELSEWHERE:
                detail = activity.detail
                if not detail or detail in told:
                    continue
                told.add(detail)
            rows.append(_row(activity, depth, now))
    return rows[:MOST_ROWS]


def _row(activity: Activity, depth: int, now: float) -> ProgressRow:
    done, total = activity.done, activity.total  # once: other threads change them
    part = min(1.0, done / total) if total else None
    seconds = int(max(0.0, now - activity.begun))
    return ProgressRow(depth, activity.name, _count(done, total, activity.unit), part, activity.detail, seconds)


def _count(done: int, total: int, unit: str) -> str:
    if unit == BYTES:
        return f"{readable(done)} of {readable(total)}" if total else ""
    return f"{done} of {total} {unit}".rstrip() if total else ""


def one_line(rows: Sequence[ProgressRow]) -> str:
    """Says all of it in one line: `compiling step: merging calls, 3 of 12, 4 s`."""
    named = ": ".join(row.name for row in rows)
    last = rows[-1]
    return ", ".join(part for part in (named, last.count, last.detail, f"{rows[0].seconds} s") if part)
