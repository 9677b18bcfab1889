"""Computes one order of all calls and transfers of a program. A pipeline follows its schedule, and all other work goes
where it fits. The pass `order-calls` applies the order. Pure functions.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from pathways.compiler.errors import ScheduleCycle, UnknownSchedule
from pathways.compiler.schedule import PROGRAM, SCHEDULES, ZERO_BUBBLE
from pathways.compiler.schedule.table import Pipeline, Table, read_pipeline
from pathways.compiler.schedule.table_csv import check_rows, needs_split, read_rows
from pathways.compiler.schedule.timeline import Cycle, Precedence, Timeline, play
from pathways.dialect.call_labels import Action
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.records import shown_name
from pathways.dialect.mlir import where_of

UNITS = {"F": 1, "B": 2, "I": 1, "W": 1}
"""Duration of the actions of equal stages, in units."""
_NONE = Pipeline((), (), 0, {})
NO_LOOP = "no loop over microbatches was found: calls keep the order of the program"


@dataclass(frozen=True)
class Arranged:
    """The node numbers in order; if there is a pipeline, also its table and its times in units."""

    order: list[int]
    pipeline: Pipeline | None
    table: Table
    graph: Precedence
    timeline: Timeline
    note: str = ""


def is_file(schedule: str) -> bool:
    return schedule.endswith(".csv")


def splits_backward(schedule: str) -> bool:
    """Whether a schedule separates the two parts of a backward. Raises PWC0403 for a file that is no table."""
    return needs_split(read_rows(Path(schedule))) if is_file(schedule) else schedule == ZERO_BUBBLE


def arrange(program: ProgramIR, schedule: str) -> Arranged:
    """Orders the nodes of a program of phase `transfer`.

    Raises PWC0402 for an order that cannot finish, and PWC0403 for a file that is no table of this program. Raises
    PWC0404 for a pipeline that does not suit the schedule, and PWC0405 for an unknown name.
    """
    if not (schedule == PROGRAM or schedule in SCHEDULES or is_file(schedule)):
        raise PathwaysError(UnknownSchedule(schedule=schedule, known=", ".join((PROGRAM, *SCHEDULES))))
    pipeline = read_pipeline(program)
    if pipeline is None:
        if is_file(schedule):
            read_rows(Path(schedule))  # an unreadable file is refused even without a pipeline
        return replace(order_by_waits(program), note="" if schedule == PROGRAM else NO_LOOP)
    if schedule == PROGRAM:
        return order_by_waits(program)
    graph = _graph(program, pipeline)
    if is_file(schedule):
        table = check_rows(read_rows(Path(schedule)), pipeline, schedule)
    else:
        table = SCHEDULES[schedule](pipeline)
    predecessors = _predecessors(graph, pipeline, table)
    try:
        timeline = play(graph, predecessors)
    except Cycle as cycle:
        raise _refused(program, pipeline, table, schedule, cycle) from None
    return Arranged(_by_start(graph, pipeline, predecessors, timeline), pipeline, table, graph, timeline)


def order_by_waits(program: ProgramIR) -> Arranged:
    """Keeps the order of the program. Raises PWC0402 if the program's own actions contradict it."""
    pipeline = read_pipeline(program)
    graph = _graph(program, pipeline or _NONE)
    table = () if pipeline is None else as_written(pipeline)
    try:
        timeline = play(graph, [] if pipeline is None else _predecessors(graph, pipeline, table))
    except Cycle as cycle:
        raise _refused(program, pipeline or _NONE, table, PROGRAM, cycle) from None
    return Arranged(list(range(len(graph.waits))), pipeline, table, graph, timeline)


def as_written(pipeline: Pipeline) -> Table:
    """Returns the table of the program's own order."""
    first = sorted(pipeline.calls, key=lambda a: pipeline.calls[a][0])
    return tuple(tuple(a for a in first if pipeline.rows[a.stage] == row) for row in range(len(pipeline.slices)))


def _graph(program: ProgramIR, pipeline: Pipeline) -> Precedence:
    """Builds the graph of all nodes. Only the placed calls of the pipeline take time, in units."""
    flow = program.flow
    seconds = [0.0] * len(flow.nodes)
    for action, calls in pipeline.calls.items():
        again = [call for call in calls if flow.nodes[call].op.again]
        for call in calls:
            many = len(again) if call in again else len(calls) - len(again)
            seconds[call] = UNITS["F" if call in again else action.kind] / many
    rows = {s: i for i, s in enumerate(pipeline.slices)}
    slices = [rows.get(program.slice_of(n.mesh), -1) if n.callee else -1 for n in flow.nodes]
    return Precedence(flow.waits, slices, seconds)


def _predecessors(graph: Precedence, pipeline: Pipeline, table: Table) -> list[Sequence[int]]:
    """Returns for each call of a row the call before it."""
    predecessors: list[Sequence[int]] = [()] * len(graph.waits)
    for row in table:
        calls = [call for action in row for call in pipeline.calls[action]]
        for before, call in pairwise(calls):
            predecessors[call] = (before,)
    return predecessors


def _by_start(
    graph: Precedence, pipeline: Pipeline, predecessors: Sequence[Sequence[int]], timeline: Timeline
) -> list[int]:
    """Returns all nodes by start time, so that a slice first makes the values that other slices wait for.

    A node that depends on the pipeline comes as early as possible: a gradient is added when it is ready, a transfer
    overlaps. Any other node comes right before its first user: a microbatch is cut when it is needed.
    """
    count = len(graph.waits)
    inside = {call for calls in pipeline.calls.values() for call in calls}
    users: list[list[int]] = [[] for _ in range(count)]
    depends = [False] * count
    for i in range(count):
        depends[i] = any(depends[j] or j in inside for j in graph.waits[i])
        for j in (*graph.waits[i], *predecessors[i]):
            users[j].append(i)
    wanted = list(timeline.starts)
    for i in range(count - 1, -1, -1):
        if i not in inside and not depends[i] and users[i]:
            wanted[i] = min(wanted[j] for j in users[i])
    waiting = [len(graph.waits[i]) + len(predecessors[i]) for i in range(count)]
    ready = [(wanted[i], i) for i in range(count) if not waiting[i]]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, i = heapq.heappop(ready)
        order.append(i)
        for j in users[i]:
            waiting[j] -= 1
            if not waiting[j]:
                heapq.heappush(ready, (wanted[j], j))
    return order


def columns(pipeline: Pipeline, graph: Precedence, table: Table) -> dict[Action, int]:
    """Returns the start of each action if each takes one unit of time: the columns of a table as a file."""
    inside = {c: 1.0 / len(calls) for calls in pipeline.calls.values() for c in calls}
    units = Precedence(graph.waits, graph.slices, [inside.get(i, 0.0) for i in range(len(graph.waits))])
    starts = play(units, _predecessors(graph, pipeline, table)).starts
    return {action: round(starts[calls[0]]) for action, calls in pipeline.calls.items()}


def _refused(program: ProgramIR, pipeline: Pipeline, table: Table, schedule: str, cycle: Cycle) -> PathwaysError:
    """Returns the error that shows a cycle in the user's names: each line waits for the next."""
    action_of = {call: action for action, calls in pipeline.calls.items() for call in calls}
    row_of = {action: number for number, row in enumerate(table, 1) for action in row}
    before = {action: other for row in table for other, action in pairwise(row)}
    shown: list[tuple[str, str, int]] = []
    for at, node in enumerate(cycle.nodes):
        if node not in action_of:
            continue
        after = next(n for n in (*cycle.nodes[at + 1 :], *cycle.nodes) if n in action_of)
        action, other = action_of[node], action_of[after]
        if action == other:
            continue
        is_predecessor = before.get(action) == other
        why = f"comes after {other} in row {row_of[action]}" if is_predecessor else f"needs a result of {other}"
        op = program.flow.nodes[node].op
        where = where_of(op)
        line = f" ({where.at})" if where else ""
        shown.append((f"{action} {shown_name(op)}{line} on {pipeline.slices[row_of[action] - 1]}", why, node))
    drawn = [f"{'-> ' if i else '   '}{what}: {why}" for i, (what, why, _) in enumerate(shown)]
    drawn.append(f"-> {shown[0][0]}")
    predecessors = next((i for i, (_, why, _) in enumerate(shown) if why.startswith("comes after")), 0)
    action = action_of[shown[predecessors][2]]
    node = program.flow.nodes[shown[0][2]]
    advice = f"move {action} to the left in row {row_of[action]}"
    if schedule in SCHEDULES and schedule != "gpipe":  # every backward pass needs sums over all microbatches
        advice = "--schedule gpipe; or pw.pipeline(mixes='allow'), which gives each microbatch its own sums"
    return PathwaysError(
        ScheduleCycle(
            schedule=schedule,
            count=len(shown),
            cycle="\n".join(drawn),
            advice=advice,
            where=where_of(node.op),
        )
    )
