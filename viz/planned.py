"""Simulates a plan in the best case: each task starts as soon as its operands are ready and its devices are free.
Pictures show the result as the planned schedule, with the cause of each gap. Pure functions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pathways.compiler.schedule.arrange import UNITS
from pathways.compiler.schedule.timeline import Precedence, play
from pathways.compiler.simulate.work import PlannedTask, Work
from pathways.dialect.call_labels import Action


@dataclass(frozen=True)
class Times:
    """`starts` and `ends` of every task, and in `causes` the task that each one waited for last (-1: none).

    `unit` is seconds, or units of equal stages (a forward is 1).
    """

    unit: str
    starts: list[float]
    ends: list[float]
    causes: list[int]

    @property
    def length(self) -> float:
        return max(self.ends, default=0.0)


def planned(work: Work, lengths: Sequence[float], unit: str) -> Times:
    """Simulates the tasks with the given lengths. Each device executes its tasks in plan order.

    Transfers occupy no device. Calls on shared devices wait for each other.
    """
    predecessors = _predecessors(work.tasks)
    waits = [t.waits for t in work.tasks]
    graph = Precedence(waits, [-1] * len(waits), lengths)
    found = play(graph, predecessors)
    causes = [_last((*a, *b), found.ends) for a, b in zip(waits, predecessors, strict=True)]
    return Times(unit, found.starts, found.ends, causes)


def equal_lengths(work: Work) -> list[float]:
    """Returns the lengths of tasks if all stages are equal. Of several calls of one action, only the largest counts.

    Without a pipeline, every call takes one unit.
    """
    largest: dict[Action, int] = {}
    for task in work.tasks:
        for part in task.parts:
            if part not in largest or work.tasks[largest[part]].flops < task.flops:
                largest[part] = task.number
    lengths = [0.0] * len(work.tasks)
    for part, number in largest.items():
        lengths[number] += UNITS[part.kind]
    return lengths if largest else [1.0 if t.devices else 0.0 for t in work.tasks]


def _predecessors(tasks: Sequence[PlannedTask]) -> list[tuple[int, ...]]:
    """Returns for each task the previous task on each of its devices."""
    last: dict[tuple[int, int], int] = {}
    found: list[tuple[int, ...]] = []
    for task in tasks:
        found.append(tuple(dict.fromkeys(last[d] for d in task.devices if d in last)))
        last.update(dict.fromkeys(task.devices, task.number))
    return found


def _last(before: Sequence[int], ends: Sequence[float]) -> int:
    return max(before, key=lambda i: ends[i], default=-1)
