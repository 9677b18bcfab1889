"""What a picture shows: a program, its plan, what runs of it did. What is drawn is found when it is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pathways.compiler.collector import collector_paused
from pathways.dialect.plan.nouns import Plan
from pathways.viz.actual import Recorded
from pathways.viz.graphs import Graph, graph_of_work
from pathways.viz.lanes import Lane, lanes_of
from pathways.viz.planned import Times, equal_lengths, planned
from pathways.viz.work import Work, work_of


@dataclass(eq=False)
class Scene:
    """A program to look at. `plan` is None for one that is not compiled, and for a trace alone; `runs` are recorded."""

    title: str
    plan: Plan | None = None
    earlier: Sequence[Graph] = ()
    """The dataflow at the phases before the plan, as far as they are known."""
    runs: Sequence[Recorded] = ()
    notes: list[str] = field(default_factory=list[str])

    @cached_property
    def work(self) -> Work | None:
        with collector_paused():
            return None if self.plan is None else work_of(self.plan)

    @cached_property
    def graphs(self) -> list[Graph]:
        """The dataflow, a graph a phase."""
        return [*self.earlier, *([graph_of_work(self.work)] if self.work is not None else [])]

    @cached_property
    def lanes(self) -> list[Lane]:
        return [] if self.work is None else lanes_of(self.work)

    @cached_property
    def times(self) -> dict[str, Times]:
        """When each task happens: as estimated by the cost model, and for equal stages."""
        if self.work is None:
            return {}
        estimated = planned(self.work, [t.seconds for t in self.work.tasks], "s")
        equal = planned(self.work, equal_lengths(self.work), "units")
        found = {"equal": equal, "estimated": estimated}
        if self.runs and (measured := self._measured()) is not None:
            found = {"measured": measured, **found}
        return found

    def _measured(self) -> Times | None:
        """The plan with every computation as long as it was in the last run that was recorded."""
        assert self.work is not None
        lengths = [t.seconds for t in self.work.tasks]
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
