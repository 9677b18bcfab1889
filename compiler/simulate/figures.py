"""Holds the figures of a simulated step, and formats them as text: a line for each island and link, and the critical
path by source line.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from pathways.compiler.placement.runner_up import seconds
from pathways.compiler.simulate.engine import Played, Waits
from pathways.compiler.simulate.work import PlannedTask, Work
from pathways.dialect.topology import Topology, readable

MAX_PATH_ROWS = 12
"""Rows of the critical path that are printed; the path itself is complete."""


@dataclass(frozen=True)
class IslandUse:
    """One island in a simulated step. `busy` is the fraction of the step in which its used devices compute.

    `peak_bytes` is the memory on its fullest device, and `limit` what a device has (None: the topology states nothing).
    """

    name: str
    devices: int
    busy: float
    peak_bytes: int
    limit: int | None


@dataclass(frozen=True)
class LinkUse:
    """Traffic from one island to another in a step, and the fraction of the step in which the link is busy."""

    source: str
    target: str
    bytes: int
    busy: float


@dataclass(frozen=True)
class PathPart:
    """A task on the critical path, in seconds from the call. `waited` is why it did not start earlier."""

    task: PlannedTask
    start: float
    end: float
    waited: Waits


@dataclass(frozen=True)
class StepFigures:
    """The figures of a simulated step: its seconds, and what takes them.

    `bubble` is the fraction of the step in which the used devices wait. `controller` is the seconds in which the
    controller works for one run: no more runs a second than its inverse can start.
    """

    name: str
    topology: Topology
    seconds: float
    bubble: float
    controller: float
    islands: tuple[IslandUse, ...]
    links: tuple[LinkUse, ...]
    path: tuple[PathPart, ...]
    assumptions: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(_lines(self))


@dataclass(frozen=True)
class Simulated(StepFigures):
    """The prediction of one step, with each task and its times."""

    work: Work = field(repr=False)
    played: Played = field(repr=False)

    def figures(self) -> StepFigures:
        """Returns the figures without `work` and `played`, which hold the plan and all tasks."""
        return StepFigures(*(getattr(self, each.name) for each in fields(StepFigures)))


def _lines(found: StepFigures) -> list[str]:
    lines = [
        f"{found.name}: one step takes {seconds(found.seconds)} (simulated); devices wait {found.bubble:.1%} of it"
    ]
    for island in found.islands:
        limit = "" if island.limit is None else f" of {readable(island.limit)}"
        memory = f"{readable(island.peak_bytes)}{limit} on the fullest device"
        lines.append(f"  {island.name:<20} {island.devices:>5} devices, {island.busy:6.1%} busy, {memory}")
    for link in found.links:
        arrow = f"{link.source} -> {link.target}"
        lines.append(f"  {arrow:<20} {readable(link.bytes):>13}, {link.busy:6.1%} busy")
    if found.controller:
        lines.append(f"  controller           {seconds(found.controller)} a run")
    lines.append("critical path")
    lines += [f"  {row}" for row in _path_rows(found.path)]
    if found.assumptions:
        lines.append(f"assumed, since the topology does not state it: {', '.join(found.assumptions)}")
    return lines


def _path_rows(path: Sequence[PathPart]) -> list[str]:
    """Formats a critical path: tasks of one name, line and kind as one row, the longest rows of at most 12."""
    rows: dict[tuple[str, str, str], list[float]] = {}
    for part in path:
        where = f"{part.task.where.file}:{part.task.where.line}" if part.task.where is not None else ""
        sums = rows.setdefault((part.task.kind, part.task.name, where), [0.0, 0.0])
        sums[0], sums[1] = sums[0] + part.end - part.start, sums[1] + 1
    ordered = sorted(rows.items(), key=lambda row: -row[1][0])
    shown = [
        f"{seconds(time):>10}  {int(count):>5} x {kind} {name}{f'  {where}' if where else ''}"
        for (kind, name, where), (time, count) in ordered[:MAX_PATH_ROWS]
    ]
    waits = path[-1].end - sum(part.end - part.start for part in path) if path else 0.0
    if waits > 0:
        shown.append(f"{seconds(waits):>10}  until the controller and the hosts have enqueued it")
    if len(ordered) > MAX_PATH_ROWS:
        shown.append(f"... and {len(ordered) - MAX_PATH_ROWS} more rows")
    return shown
