"""Writes the schedule of a plan as text, for terminals and .txt files. Devices with the same tasks share a row, and
each column is one unit of time.
"""

from collections.abc import Sequence

from pathways.compiler.simulate.work import PlannedTask
from pathways.viz.lanes import Lane
from pathways.viz.planned import Times
from pathways.viz.render.words import several_stages, short_actions
from pathways.viz.scene import Scene

IDLE = "."
MAX_NAME_CHARS = 28
"""Maximum length in characters of the name of a row."""
MAX_CALL_CHARS = 12


def text_of_schedule(scene: Scene, width: int = 0) -> str:
    """Writes each lane: `F3` is the forward of microbatch 3, `2F3` if the lane has several stages. Dots are idle time.

    `width` is the width of the terminal: longer rows are cut, and a last line says so. 0 cuts nothing. The last
    recorded run follows below, with the computations of each device in their order.
    """
    planned = [] if scene.work is None else _planned(scene, width)
    recorded = _recorded(scene, width) if scene.runs else []
    return "\n".join([*planned, *recorded] or [f"{scene.title}: not compiled, so it has no schedule"])


def _planned(scene: Scene, width: int) -> list[str]:
    assert scene.work is not None
    plan, times = scene.work.plan, scene.times["equal"]
    told = [_cells(scene, lane, times) for lane in scene.lanes]
    column = max((len(text) for row in told for text, _ in row), default=1) + 1
    rows = [(lane.name, _row(scene, lane, times, column)) for lane in scene.lanes]
    pipeline = f"{plan.schedule.stages} stages, {plan.schedule.microbatches} microbatches"
    what = f"{plan.schedule.name}: {pipeline}" if plan.schedule.microbatches else "no pipeline"
    idle = _idle(scene, times)
    head = f"{plan.name}: {what}; {times.length:g} units of equal work, idle {idle:.1%} ({IDLE})"
    return [head, *_aligned(rows, width)]


def _idle(scene: Scene, times: Times) -> float:
    busy = sum(times.ends[t] - times.starts[t] for lane in scene.lanes for t in lane.tasks)
    whole = times.length * len(scene.lanes)
    return 1 - busy / whole if whole else 0.0


def _cells(scene: Scene, lane: Lane, times: Times) -> list[tuple[str, PlannedTask]]:
    """Returns the label of each task in a lane that takes time."""
    assert scene.work is not None
    tasks = [scene.work.tasks[t] for t in lane.tasks if times.ends[t] > times.starts[t]]
    several = several_stages(tasks)
    return [(_short(task, several), task) for task in tasks]


def _short(task: PlannedTask, several: bool) -> str:
    if not task.parts:
        return task.name[:MAX_CALL_CHARS]
    return short_actions(task.parts, several)


def _row(scene: Scene, lane: Lane, times: Times, column: int) -> str:
    """Writes the row of a lane. A unit of time is as wide as the longest label, so two units take two columns."""
    written = ""
    for text, task in _cells(scene, lane, times):
        begin, end = (round(t[task.number] * column) for t in (times.starts, times.ends))
        written += _blank(len(written), begin, column)
        written += text.ljust(end - begin)[: max(end - begin, len(text))]
    return written + _blank(len(written), round(times.length * column), column)


def _blank(begin: int, end: int, column: int) -> str:
    return "".join(IDLE if at % column == 0 else " " for at in range(begin, end))


def _recorded(scene: Scene, width: int) -> list[str]:
    run = scene.runs[-1]
    rows = [
        (f"{row.island} device {row.device}", " ".join(c.action or c.name[:MAX_CALL_CHARS] for c in row.cells))
        for row in run.rows
    ]
    return [f"{run.program} run {run.number}: the computations of each device, in order", *_aligned(rows, width)]


def _aligned(rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    pad = min(MAX_NAME_CHARS, max((len(name) for name, _ in rows), default=0))
    lines = [f"{name[:pad].ljust(pad)}  {row}".rstrip() for name, row in rows]
    longest = max((len(line) for line in lines), default=0)
    if not width or longest <= width:
        return lines
    return [*(line[:width] for line in lines), f"... {longest - width} more columns: -o schedule.txt has all"]
