"""Formats long-running work, such as tracing or compiling, as rows of text with counts and seconds. It also decides
when a row is first shown. The progress display calls it at each refresh. Pure functions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pathways.dialect.activities import BYTES, ELSEWHERE, Activity
from pathways.dialect.topology import readable

MAX_ROWS = 6
"""Maximum number of rows shown at once."""


@dataclass(frozen=True)
class ProgressRow:
    """One activity as shown. `depth` is the number of activities of its thread that contain it."""

    depth: int
    name: str
    count: str
    part: float | None
    """The completed fraction, from 0 to 1; None if it is unknown."""
    detail: str
    seconds: int


def time_to_show(activities: Sequence[Activity], now: float, after: float) -> float | None:
    """Returns the seconds until the oldest activity has run long enough to be shown. None if none runs."""
    oldest = min((activity.begun for activity in activities), default=None)
    return None if oldest is None else max(0.0, oldest + after - now)


def progress_rows(activities: Sequence[Activity], now: float, after: float) -> list[ProgressRow]:
    """Makes rows for the activities of threads whose outermost one has run long enough; inner rows follow outer."""
    threads: dict[int, list[Activity]] = {}
    for activity in activities:
        threads.setdefault(activity.thread, []).append(activity)
    long = [stack for stack in threads.values() if stack[0].begun + after <= now]
    rows: list[ProgressRow] = []
    shown: set[str] = set()
    """Reasons of waits elsewhere: threads that wait for the same reason share one row."""
    for stack in long:
        for depth, activity in enumerate(stack):
            if activity.unit == ELSEWHERE:
                detail = activity.detail
                if not detail or detail in shown:
                    continue
                shown.add(detail)
            rows.append(_row(activity, depth, now))
    return rows[:MAX_ROWS]


def _row(activity: Activity, depth: int, now: float) -> ProgressRow:
    done, total = activity.done, activity.total  # read once: other threads change them
    part = min(1.0, done / total) if total else None
    seconds = int(max(0.0, now - activity.begun))
    return ProgressRow(depth, activity.name, _count(done, total, activity.unit), part, activity.detail, seconds)


def _count(done: int, total: int, unit: str) -> str:
    if unit == BYTES:
        return f"{readable(done)} of {readable(total)}" if total else ""
    return f"{done} of {total} {unit}".rstrip() if total else ""


def one_line(rows: Sequence[ProgressRow]) -> str:
    """Formats all rows as one line: `compiling step: merging calls, 3 of 12, 4 s`."""
    named = ": ".join(row.name for row in rows)
    last = rows[-1]
    return ", ".join(part for part in (named, last.count, last.detail, f"{rows[0].seconds} s") if part)
