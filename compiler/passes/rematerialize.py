"""Activations that do not fit are dropped, and computed again right before they are needed."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pathways.compiler.buffers.streams import plan_streams
from pathways.compiler.computations.temporaries import temporaries_of
from pathways.compiler.passes.base import Pass, Session
from pathways.compiler.passes.order_calls import number_nodes
from pathways.compiler.schedule.arrange import order_by_waits
from pathways.compiler.schedule.attribute import read_schedule, write_schedule
from pathways.compiler.schedule.estimate import describe_schedule
from pathways.compiler.schedule.table import Pipeline, read_pipeline
from pathways.dialect.call_labels import Action
from pathways.dialect.host_callbacks import read_callbacks
from pathways.dialect.ir.flow import Node
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import ir
from pathways.dialect.phases import Phase


@dataclass(frozen=True)
class Rematerialize(Pass):
    """Where an island's memory does not suffice, run the forward calls of a stage once more before its backward ones.

    Stage by stage, the one that keeps most bytes first, until the plan fits or nothing is left to drop. The same
    computations run again, so that nothing more is compiled; what a stage took must be kept until then.

    Requires: phase schedule, before calls are merged.
    Ensures: phase schedule: calls that compute something again say so.
    """

    name: ClassVar[str] = "rematerialize"
    requires: ClassVar[Phase] = Phase.SCHEDULE
    ensures: ClassVar[Phase] = Phase.SCHEDULE
    when: str = "auto"
    """auto: where the plan does not fit; always: every stage that keeps something."""

    def __post_init__(self) -> None:
        if self.when not in ("auto", "always"):
            raise ValueError(f"when={self.when!r}, which is neither auto nor always")

    def apply(self, program: ProgramIR, session: Session) -> None:
        pipeline = read_pipeline(program)
        if pipeline is None or not pipeline.has_backward or any(n.op.again for n in program.flow.calls()):
            return
        temporaries = temporaries_of(program, session.analyzer)
        done: list[int] = []
        kept = {stage: _kept_bytes(program, pipeline, stage) for stage in range(pipeline.stages)}
        for stage in sorted(kept, key=lambda s: -kept[s]):
            full = self.when == "always" or program.island_of(_mesh(program, pipeline, stage)) in _full(
                program, temporaries
            )
            if full and _run_again(program, pipeline, stage):
                done.append(stage)
                pipeline = read_pipeline(program) or pipeline
        if done:
            _note(program, sorted(done))


def _mesh(program: ProgramIR, pipeline: Pipeline, stage: int) -> str:
    calls = next(calls for action, calls in pipeline.calls.items() if action.stage == stage)
    return program.flow.nodes[calls[0]].mesh


def _full(program: ProgramIR, temporaries: dict[str, int]) -> set[str]:
    """The islands whose memory does not suffice."""
    planned = plan_streams(program, temporaries=temporaries)
    limits = {name: island.memory for name, island in program.islands.items()}
    return {s.island for s, peak in planned if (limit := limits[s.island]) is not None and peak.bytes > limit}


def _kept(program: ProgramIR, pipeline: Pipeline, action: Action) -> Iterator[tuple[int, list[int]]]:
    """Values of a forward action that calls of its backward take, each with these calls."""
    flow = program.flow
    behind = {call for kind in "BIW" for call in pipeline.calls.get(replace(action, kind=kind), ())}
    for call in pipeline.calls[action]:
        for value in flow.nodes[call].results:
            users = [u for u in flow.users[value] if u in behind]
            if users:
                yield value, users


def _kept_bytes(program: ProgramIR, pipeline: Pipeline, stage: int) -> int:
    action = next((a for a in pipeline.calls if a.stage == stage and a.kind == "F"), None)
    if action is None:
        return 0
    return sum(program.flow.types[v].bytes for v, _ in _kept(program, pipeline, action))


def _run_again(program: ProgramIR, pipeline: Pipeline, stage: int) -> bool:
    """Puts copies of a stage's forward calls before its backward ones; whether there was anything to drop."""
    flow = program.flow
    copied = False
    for action, calls in pipeline.calls.items():
        if action.stage != stage or action.kind != "F":
            continue
        kept = dict(_kept(program, pipeline, action))
        if not kept or any(read_callbacks(program.computations[flow.nodes[call].callee]) for call in calls):
            continue
        first = min(u for users in kept.values() for u in users)
        if not _works_between(program, max(calls), first):  # backward follows at once: nothing is kept meanwhile
            continue
        backward = flow.nodes[first].op
        fresh: dict[int, Any] = {}
        for call in calls:
            node = flow.nodes[call]
            again = node.op.operation.clone(ir.InsertionPoint(backward.operation)).operation
            for i, value in enumerate(node.operands):
                if value in fresh:
                    again.operands[i] = fresh[value]
            with program.context:
                again.attributes["again"] = ir.UnitAttr.get()
                again.attributes["action"] = backward.operation.attributes["action"]
            fresh.update(zip(node.results, again.results, strict=True))
        for value, users in kept.items():
            for user in users:
                op, operands = flow.nodes[user].op.operation, flow.nodes[user].operands
                for i, operand in enumerate(operands):
                    if operand == value:
                        op.operands[i] = fresh[value]
        copied = True
    if copied:
        program.changed()
        with program.context:
            number_nodes(program, list(range(len(program.flow.nodes))))
    return copied


def _works_between(program: ProgramIR, before: int, after: int) -> bool:
    """Whether the slice of two calls does anything else between them; what other slices do needs none of its memory."""
    nodes = program.flow.nodes
    here = program.slice_of(nodes[after].mesh)
    return any(not n.is_transfer and _works_on(program, n, here) for n in nodes[before + 1 : after])


def _works_on(program: ProgramIR, node: Node, slice_: str) -> bool:
    """Whether a call runs on a slice; control flow may, wherever its results are."""
    return not node.is_call or program.slice_of(node.mesh) == slice_


def _note(program: ProgramIR, stages: list[int]) -> None:
    old = read_schedule(program)
    many = "stages" if len(stages) > 1 else "stage"
    note = f"activations of {many} {', '.join(map(str, stages))} are computed again before backward, to save memory"
    write_schedule(program, describe_schedule(program, old.name, replace(order_by_waits(program), note=note)))
