"""Defines what a pipeline schedule receives and returns. It receives the stages and the slices of virtual devices that
run them. It returns a table of actions, such as forward of microbatch 3, with one row for each slice.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from pathways.compiler.errors import UnsuitableSchedule
from pathways.dialect.call_labels import Action, read_action
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ir.program import ProgramIR

Table: TypeAlias = tuple[tuple[Action, ...], ...]
"""The actions of each slice of a pipeline, in order."""


@dataclass(frozen=True)
class Pipeline:
    """Stages on slices, and the actions that the program has for them.

    A slice with several stages holds several chunks of the model. `calls` are numbers of nodes in program order.
    """

    slices: tuple[str, ...]
    """The slices in the order of their first stages: row i of a table is for slice i."""
    rows: tuple[int, ...]
    """The slice of each stage, as an index into `slices`."""
    microbatches: int
    calls: dict[Action, tuple[int, ...]]

    @property
    def stages(self) -> int:
        return len(self.rows)

    def stages_of(self, row: int) -> list[int]:
        return [stage for stage, at in enumerate(self.rows) if at == row]

    @property
    def has_backward(self) -> bool:
        return any(a.kind != "F" for a in self.calls)

    @property
    def is_split(self) -> bool:
        """Whether backward computations are in two parts, I and W."""
        return any(a.kind in "IW" for a in self.calls)

    def table(self, rows: Iterable[Iterable[Action]]) -> Table:
        """Returns a table of those actions that the program has. B of a split backward becomes I, then W."""
        return tuple(tuple(a for wanted in row for a in self.parts(wanted)) for row in rows)

    def parts(self, action: Action) -> list[Action]:
        """Returns the actions of the program for one action of a table; none if the program needs none."""
        if action in self.calls or action.kind != "B":
            return [action] if action in self.calls else []
        both = (Action(action.stage, kind, action.microbatch) for kind in "IW")
        return [a for a in both if a in self.calls]


def read_pipeline(program: ProgramIR) -> Pipeline | None:
    """Returns the pipeline that the actions of the placed calls describe; None if there are no actions."""
    calls: dict[Action, list[int]] = {}
    slice_of: dict[int, str] = {}
    for node in program.flow.calls():
        if node.op.action is None or node.op.gathered:
            continue
        action = read_action(node.op.action)
        calls.setdefault(action, []).append(node.number)
        slice_of.setdefault(action.stage, program.slice_of(node.mesh))
    if not calls:
        return None
    slices = tuple(dict.fromkeys(slice_of[stage] for stage in sorted(slice_of)))
    rows = tuple(slices.index(slice_of[stage]) for stage in sorted(slice_of))
    microbatches = 1 + max(a.microbatch for a in calls)
    return Pipeline(slices, rows, microbatches, {a: tuple(numbers) for a, numbers in calls.items()})


def refuse(schedule: str, have: str, need: str, advice: str) -> NoReturn:
    """Raises PWC0404."""
    raise PathwaysError(UnsuitableSchedule(schedule=schedule, have_=have, rule=need, advice=advice))


def one_stage_a_slice(schedule: str, pipeline: Pipeline, advice: str) -> None:
    """Raises PWC0404 if a slice has several stages."""
    if pipeline.rows != tuple(range(pipeline.stages)):
        shown = ", ".join(f"{s}: {len(pipeline.stages_of(i))} stages" for i, s in enumerate(pipeline.slices))
        refuse(schedule, shown, "one stage per slice", advice)
