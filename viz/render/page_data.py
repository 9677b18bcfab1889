"""Collects the data of the HTML page as tables of numbers that refer to shared strings. `html.py` puts them into the
page, where viz/page/data.js reads them. Pure functions.

viz/page/data.js uses the same names.
"""

from collections.abc import Callable
from itertools import accumulate
from typing import Any

from pathways.compiler.simulate.work import RESHARD, TRANSFER, PlannedTask, Work
from pathways.dialect.call_labels import Action
from pathways.dialect.diagnostics import Where
from pathways.dialect.memo import remembered_by_identity
from pathways.dialect.plan.nouns import Plan, PlanSlice, Stream
from pathways.dialect.schedule_figures import Schedule
from pathways.viz.actual import DeviceRow, Recorded
from pathways.viz.graphs import Graph
from pathways.viz.memory import device_memory
from pathways.viz.planned import Times
from pathways.viz.render.columns import pack_column, pack_rows, pack_times
from pathways.viz.scene import Scene

Row = list[Any]
RESOLUTION = 1e-6
"""The finest time step on the page, as a fraction of the whole schedule."""


class Strings(dict[str, int]):
    """A table of unique strings; rows refer to them by number. Looking up a missing string adds it.

    `line` and `parts` return the numbers of source lines and of actions, and cache them: both are slow to format and
    compare.
    """

    def __init__(self) -> None:
        super().__init__()
        self.line: Callable[[Where | None], int] = remembered_by_identity(self._line)
        self.parts: Callable[[tuple[Action, ...]], int] = remembered_by_identity(self._parts)

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number

    def _line(self, where: Where | None) -> int:
        return self["" if where is None else str(where)]

    def _parts(self, parts: tuple[Action, ...]) -> int:
        return self[" ".join(map(str, parts))]


def page_data(scene: Scene) -> dict[str, Any]:
    """Collects the data of the page."""
    strings = Strings()
    data: dict[str, Any] = {
        "title": scene.title,
        "notes": scene.notes,
        "graphs": [_graph(g, strings) for g in scene.graphs],
        "runs": [_run(run, strings) for run in scene.runs],
    }
    if scene.plan is not None and scene.work is not None:
        data |= _plan(scene.plan, scene.work, strings)
        data["lanes"] = [
            {"stream": lane.stream, "name": lane.name, "island": lane.island, "devices": lane.devices,
             "slices": lane.slices, "tasks": pack_column(lane.tasks)}
            for lane in scene.lanes
        ]  # fmt: skip
        data["times"] = {name: _times(times) for name, times in scene.times.items()}
    data["strings"] = list(strings)
    return data


def _graph(graph: Graph, s: Strings) -> dict[str, Any]:
    boxes = [
        [s[b.kind], s[b.name], s[b.slice], s[b.island], s.parts(b.parts), b.bytes, s.line(b.where), b.task]
        for b in graph.boxes
    ]
    arrows = [[a.source, a.target, s[a.value], a.bytes, s[a.route], s[a.reason], a.many, a.moves] for a in graph.arrows]
    return {
        "phase": graph.phase.value,
        "boxes": pack_rows(boxes),
        "arrows": pack_rows(arrows),
        "moves": graph.moves,
    }


def _plan(plan: Plan, work: Work, s: Strings) -> dict[str, Any]:
    return {
        "program": plan.name,
        "platform": plan.platform,
        "placement": plan.placement,
        "temporaries": plan.temporaries,
        "losses": [f"{d.name}: {d.chosen}" for d in plan.decisions if d.kind == "loss"],
        "schedule": _schedule(plan.schedule),
        "dcn_gbps": plan.topology.dcn_gbps,
        "islands": [
            {
                "name": i.name,
                "hosts": i.hosts,
                "devices": i.devices,
                "kind": i.kind,
                "memory": i.memory,
                "flops": i.flops,
                "ici_gbps": i.ici_gbps,
            }
            for i in plan.topology.islands
        ],
        "slices": [_slice(x) for x in plan.slices],
        "meshes": [
            {"name": m.name, "slice": m.slice, "island": m.island, "axes": m.axes, "devices": m.devices}
            for m in plan.meshes
        ],
        "streams": [{"island": stream.island} for stream in plan.streams],
        "kinds": [_kinds(plan, stream, s) for stream in plan.streams],
        "tasks": pack_rows(_tasks(plan, work, s)),
        "values": pack_rows([row for number in range(len(plan.streams)) for row in _values(work, number, s)]),
        "memory": [
            {
                "island": m.island,
                "devices": m.devices,
                "limit": m.limit,
                "owners": m.owners,
                "peak": m.peak,
                "peak_step": m.peak_step,
                "changes": pack_rows(m.changes),
            }
            for m in device_memory(plan)
        ],
    }


def _schedule(schedule: Schedule) -> dict[str, Any]:
    return {
        "name": schedule.name,
        "note": schedule.note,
        "stages": schedule.stages,
        "slices": schedule.slices,
        "microbatches": schedule.microbatches,
        "bubble": schedule.bubble,
        "bound": schedule.bound,
    }


def _slice(found: PlanSlice) -> dict[str, Any]:
    return {
        "name": found.name,
        "island": found.island,
        "devices": found.devices,
        "reason": found.reason,
        "runner_up": found.runner_up,
    }


def _kinds(plan: Plan, stream: Stream, s: Strings) -> list[Row]:
    """Lists type, mesh, axes of each dimension and bytes on a device, for each kind of buffer in a stream."""
    return [
        [s[str(k.type)], list(k.type.shape), k.layout.mesh, k.layout.dims, k.bytes, s[str(plan.sharding(k.layout))]]
        for k in stream.kinds
    ]


def _tasks(plan: Plan, work: Work, s: Strings) -> list[Row]:
    counts = [sum(len(group.kinds) for group in stream.groups) for stream in plan.streams]
    firsts = [0, *accumulate(counts)]
    return [_task(task, work, firsts, s) for task in work.tasks]


def _task(task: PlannedTask, work: Work, firsts: list[int], s: Strings) -> Row:
    """Builds the row of a task. `firsts` are the row numbers of the first slot of each stream."""
    decision = task.decision
    moves = task.kind in (TRANSFER, RESHARD)
    stream, slot = task.reads[0] if moves else (task.stream, -1)
    return [
        s[task.kind],
        s[task.name],
        task.step,
        task.stream,
        s.parts(task.parts),
        task.bytes,
        s.line(task.where),
        task.mesh,
        task.temporaries,
        [task.number - w for w in task.waits],
        s[decision.reason if decision is not None else ""],
        s[decision.chosen if decision is not None else ""],
        s["\n".join(task.part_names)],
        work.makers.get((stream, slot), -1),
        stream,
        len(task.devices),
        firsts[stream] + slot if moves else -1,
    ]


def _times(times: Times) -> dict[str, Any]:
    """Packs times in ticks of a millionth of the total (nanoseconds or units), causes as distances from tasks."""
    scale = 1e9 if times.unit == "s" else 1.0
    tick = times.length * RESOLUTION if times.unit == "s" else 1.0
    causes = [i - cause if cause >= 0 else 0 for i, cause in enumerate(times.causes)]
    return {
        "unit": "ns" if times.unit == "s" else times.unit,
        "tick": tick * scale,
        "starts": pack_times(times.starts, tick or 1.0),
        "ends": pack_times(times.ends, tick or 1.0),
        "causes": pack_column(causes),
    }


def _values(work: Work, number: int, s: Strings) -> list[Row]:
    """Builds a row for each buffer: stream, name, kind, role, owner, producing task, first reader, birth, death."""
    stream = work.plan.streams[number]
    rows: list[Row] = []
    slot = 0
    for group in stream.groups:
        name, role, owner = s[group.name], s[group.role], s[group.owner]
        for kind, death in zip(group.kinds, group.deaths, strict=True):
            at = number, slot
            first = work.users[at][0] if at in work.users else -1
            rows.append([number, name, kind, role, owner, work.makers.get(at, -1), first, group.birth, death])
            slot += 1
    return rows


def _run(run: Recorded, s: Strings) -> dict[str, Any]:
    return {"number": run.number, "program": run.program, "rows": [_row(row, s) for row in run.rows]}


def _row(row: DeviceRow, s: Strings) -> dict[str, Any]:
    def cells(found: list[Any]) -> list[Row]:
        return [[c.step, s[c.name], s[c.action], s[c.line], round(c.begin * 1e9), round(c.end * 1e9)] for c in found]

    gaps = [[round(g.begin * 1e9), round(g.end * 1e9), s[g.reason]] for g in row.gaps]
    return {"island": row.island, "device": row.device, "cells": cells(row.cells), "planned": cells(row.planned),
            "gaps": gaps}  # fmt: skip
