"""Holds everything that a picture shows: the program, its plan and recorded runs. Graphs and schedules are computed
when a writer in `render/` needs them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pathways.compiler.collector import collector_paused
from pathways.compiler.machines import Machines
from pathways.compiler.simulate.durations import WhatIf, durations
from pathways.compiler.simulate.work import Work, work_of
from pathways.dialect.plan.nouns import Plan
from pathways.viz.actual import Recorded
from pathways.viz.graphs import Graph, graph_of_work
from pathways.viz.lanes import Lane, lanes_of
from pathways.viz.planned import Times, equal_lengths, planned


@dataclass(eq=False)
class Scene:
    """A program to draw. `plan` is None if the program is not compiled, or if only a trace is drawn."""

    title: str
    plan: Plan | None = None
    earlier: Sequence[Graph] = ()
    """The dataflow at the phases before the plan, as far as it is known."""
    runs: Sequence[Recorded] = ()
    notes: list[str] = field(default_factory=list[str])

    @cached_property
    def work(self) -> Work | None:
        with collector_paused():
            return None if self.plan is None else work_of(self.plan)

    @cached_property
    def graphs(self) -> list[Graph]:
        """The dataflow, one graph for each phase."""
        return [*self.earlier, *([graph_of_work(self.work)] if self.work is not None else [])]

    @cached_property
    def lanes(self) -> list[Lane]:
        return [] if self.work is None else lanes_of(self.work)

    @cached_property
    def times(self) -> dict[str, Times]:
        """The times of each task: estimated by the cost model, for equal stages, and measured if a run is recorded."""
        if self.work is None:
            return {}
        estimated = planned(self.work, self._estimated(), "s")
        equal = planned(self.work, equal_lengths(self.work), "units")
        found = {"equal": equal, "estimated": estimated}
        if self.runs and (measured := self._measured()) is not None:
            found = {"measured": measured, **found}
        return found

    def _estimated(self) -> list[float]:
        """Returns the seconds of each task by the cost model."""
        assert self.work is not None
        machines = Machines(self.work.plan.topology)
        found = durations(self.work, machines, WhatIf(), [None] * len(self.work.tasks))
        return [took.seconds + took.latency for took in found]

    def _measured(self) -> Times | None:
        """Simulates the plan with the computation times of the last recorded run."""
        assert self.work is not None
        lengths = self._estimated()
        took: dict[tuple[str, int, str], float] = {}
        for row in self.runs[-1].rows:
            for cell in row.cells:
                key = row.island, cell.step, cell.name
                took[key] = max(took.get(key, 0.0), cell.end - cell.begin)
        known = 0
        for task in self.work.tasks:
            key = self.work.plan.streams[task.stream].island, task.step, task.name
            if task.devices and key in took:
                lengths[task.number], known = took[key], known + 1
        return planned(self.work, lengths, "s") if known else None
