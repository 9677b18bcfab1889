"""Reads recorded runs from the file that `pw.trace` and `pwc run --trace` write, so that they can be drawn below the
planned schedule.
"""

import json
import math
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pathways.dialect.call_labels import read_action
from pathways.dialect.diagnostics import PathwaysError
from pathways.viz.errors import NoTrace

MAX_RUNS = 8
"""Number of runs kept for each program. The last ones are kept, because the first ones compile and warm up."""
PLANNED = ", planned"


@dataclass(frozen=True)
class Cell:
    """A computation on one device: its step in the plan, and its begin and end in seconds of the recording."""

    step: int
    name: str
    action: str
    line: str
    begin: float
    end: float


@dataclass
class Gap:
    """An interval in which a device was idle, and the reason."""

    begin: float
    end: float
    reason: str


@dataclass
class DeviceRow:
    """One device of an island in one run: its computations, those it would have had without delays, and its gaps."""

    island: str
    device: int
    cells: list[Cell] = field(default_factory=list[Cell])
    planned: list[Cell] = field(default_factory=list[Cell])
    gaps: list[Gap] = field(default_factory=list[Gap])


@dataclass(frozen=True)
class Recorded:
    """One recorded run of a program."""

    number: int
    program: str
    rows: tuple[DeviceRow, ...]


def read_trace(path: Path) -> list[Recorded]:
    """Reads the last runs of each program in a trace. Raises PWC0822 for any other file."""
    try:
        read: Any = json.loads(path.read_text(encoding="utf-8"))
        runs = _Reader(read["traceEvents"]).runs()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise _no_trace(path, f"{type(error).__name__}: {error}") from None
    if not runs:
        raise _no_trace(path, "the file contains no computation of a run")
    return runs


def _no_trace(path: Path, problem: str) -> PathwaysError:
    return PathwaysError(NoTrace(path=str(path), problem=problem, rule="a file that pw.trace wrote"))


class _Reader:
    """Reads events in Chrome's trace format: one process for each island, two threads for each device."""

    def __init__(self, events: list[Any]) -> None:
        self.events: list[dict[str, Any]] = [cast("dict[str, Any]", e) for e in events]
        self.islands: dict[int, str] = {}
        self.threads: dict[tuple[int, int], tuple[int, bool]] = {}
        """Maps each thread to its device, and to whether it shows the planned times."""
        for event in self.events:
            if event.get("ph") == "M" and event["name"] == "process_name":
                self.islands[event["pid"]] = event["args"]["name"]
            elif event.get("ph") == "M" and event["name"] == "thread_name":
                text: str = event["args"]["name"]
                device = text.removesuffix(PLANNED).removeprefix("device ")
                if text.startswith("device ") and device.isdigit():
                    self.threads[event["pid"], event["tid"]] = int(device), text.endswith(PLANNED)

    def runs(self) -> list[Recorded]:
        spans = [e for e in self.events if e.get("ph") == "X" and (e["pid"], e["tid"]) in self.threads]
        names = self._programs()
        numbers = _last_of_each({int(e["args"]["run"]) for e in spans if "run" in e["args"]}, names)
        rows: dict[int, dict[tuple[str, int], DeviceRow]] = {n: {} for n in numbers}
        gaps: dict[tuple[str, int], list[Gap]] = defaultdict(list)
        for event in spans:
            device, is_planned = self.threads[event["pid"], event["tid"]]
            key = self.islands[event["pid"]], device
            begin, end = _span(event)
            arguments = event["args"]
            if "gap" in arguments:
                gaps[key].append(Gap(begin, end, str(arguments["gap"])))
            elif arguments["run"] in rows:
                row = rows[arguments["run"]].setdefault(key, DeviceRow(*key))
                action, line = _action(arguments), str(arguments.get("line", ""))
                cell = Cell(int(arguments.get("step", -1)), str(event["name"]), action, line, begin, end)
                (row.planned if is_planned else row.cells).append(cell)
        found = [Recorded(n, names.get(n, ""), tuple(rows[n][key] for key in sorted(rows[n]))) for n in numbers]
        for run in found:
            for row in run.rows:
                _finish(row, gaps[row.island, row.device])
        return [run for run in found if any(row.cells for row in run.rows)]

    def _programs(self) -> dict[int, str]:
        """Finds the program of each run in the spans of the controller."""
        found: dict[int, str] = {}
        for event in self.events:
            if event.get("cat") == "run" and event.get("ph") == "b":
                number = int(event["args"]["run"])
                found[number] = str(event["name"]).partition(f" {number}: ")[0]
        return found


def _last_of_each(numbers: set[int], names: dict[int, str]) -> list[int]:
    """Returns the last runs of each program, so that rarely run programs are kept, too."""
    of: dict[str, list[int]] = defaultdict(list)
    for number in sorted(numbers):
        of[names.get(number, "")].append(number)
    return sorted(number for mine in of.values() for number in mine[-MAX_RUNS:])


def _action(arguments: dict[str, Any]) -> str:
    """Returns the action of a computation, or "". Raises ValueError for an invalid action."""
    text = arguments.get("action", "")
    return str(read_action(text)) if text else ""


def _span(event: dict[str, Any]) -> tuple[float, float]:
    """Returns begin and end in seconds. Raises ValueError for times that are not finite: Python's JSON allows NaN."""
    begin = float(event["ts"]) * 1e-6
    end = begin + float(event["dur"]) * 1e-6
    if not (math.isfinite(begin) and begin <= end < math.inf):
        raise ValueError(f"{event['name']!r} has no valid times")
    return begin, end


def _finish(row: DeviceRow, gaps: list[Gap]) -> None:
    row.cells.sort(key=lambda c: c.begin)
    row.planned.sort(key=lambda c: c.begin)
    if row.cells:
        first, last = row.cells[0].begin, row.cells[-1].end
        row.gaps = [g for g in gaps if first <= g.begin and g.end <= last + 1e-9]
