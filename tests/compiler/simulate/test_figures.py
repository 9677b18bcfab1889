"""Tests how the figures of a simulated step are shown as text, above all its critical path."""

from typing import Any

import pytest

from pathways.compiler.simulate.engine import Waits
from pathways.compiler.simulate.figures import MAX_PATH_ROWS, IslandUse, LinkUse, PathPart, StepFigures
from pathways.compiler.simulate.work import CALL, TRANSFER, PlannedTask
from pathways.dialect.diagnostics import Where
from pathways.dialect.topology import Island, Topology

WAITED = "until the controller and the hosts have enqueued it"


def part(kind: str, name: str, start: float, end: float, where: Where | None = None) -> PathPart:
    return PathPart(PlannedTask(kind, name, 0, 0, (), (), where=where), start, end, Waits.NOTHING)


def shown(*path: PathPart, **figures: Any) -> list[str]:
    """Returns the lines of a step of two seconds with this critical path."""
    rest: Any = {"islands": (), "links": (), "assumptions": (), "controller": 0.0} | figures
    found = StepFigures(name="step", topology=Topology((Island("a", 1),)), seconds=2.0, bubble=0.25, path=path, **rest)
    return [" ".join(line.split()) for line in str(found).splitlines()]


def path_rows(*path: PathPart) -> list[str]:
    lines = shown(*path)
    assert lines[:2] == ["step: one step takes 2 s (simulated); devices wait 25.0% of it", "critical path"]
    return lines[2:]


def test_a_critical_path_sums_the_tasks_of_each_line_and_shows_the_longest_first() -> None:
    here, there = Where("m.py", 7), Where("m.py", 9)
    path = (
        part(CALL, "f", 0.0, 0.25, here),
        part(TRANSFER, "f", 0.25, 0.75),
        part(CALL, "f", 0.75, 1.0, there),
        part(CALL, "f", 1.0, 1.5, here),
    )
    assert path_rows(*path) == ["750 ms 2 x call f m.py:7", "500 ms 1 x transfer f", "250 ms 1 x call f m.py:9"]


@pytest.mark.parametrize(("gaps", "waited"), [((0.0, 0.0), ""), ((0.5, 0.0), "500 ms"), ((0.25, 0.5), "750 ms")])
def test_a_critical_path_shows_the_time_in_which_none_of_its_tasks_runs(gaps: tuple[float, float], waited: str) -> None:
    first = part(CALL, "f", gaps[0], gaps[0] + 0.5)
    second = part(CALL, "g", first.end + gaps[1], first.end + gaps[1] + 0.25)
    rows = path_rows(first, second)
    assert rows == ["500 ms 1 x call f", "250 ms 1 x call g", *([f"{waited} {WAITED}"] if waited else [])]


@pytest.mark.parametrize("more", [0, 1, 3])
def test_a_critical_path_counts_the_rows_that_it_leaves_out(more: int) -> None:
    path = [part(CALL, f"f{i}", float(i), float(i + 1)) for i in range(MAX_PATH_ROWS + more)]
    rows = path_rows(*path)
    assert rows[:MAX_PATH_ROWS] == [f"1 s 1 x call f{i}" for i in range(MAX_PATH_ROWS)]
    assert rows[MAX_PATH_ROWS:] == ([f"... and {more} more rows"] if more else [])


def test_a_step_without_tasks_has_an_empty_critical_path() -> None:
    assert path_rows() == []


def test_each_island_and_link_has_a_line_and_assumptions_have_one() -> None:
    """An island whose memory the topology does not state shows no limit."""
    islands = IslandUse("a", 2, 0.5, 1024, 4096), IslandUse("b", 1, 1.0, 2048, None)
    figures: Any = {"islands": islands, "links": (LinkUse("a", "b", 512, 0.125),), "controller": 0.001}
    assert shown(**figures, assumptions=("20 us a call", "50% of the flop/s"))[1:] == [
        "a 2 devices, 50.0% busy, 1.0 KiB of 4.0 KiB on the fullest device",
        "b 1 devices, 100.0% busy, 2.0 KiB on the fullest device",
        "a -> b 512 B, 12.5% busy",
        "controller 1 ms a run",
        "critical path",
        "assumed, since the topology does not state it: 20 us a call, 50% of the flop/s",
    ]
