"""Defines the pass `rematerialize`. If the activations of a pipeline do not fit in memory, it drops them and computes
them again right before the backward pass.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from pathways.compiler.buffers.streams import device_peaks
from pathways.compiler.computations.temporaries import temporaries_of
from pathways.compiler.passes.base import Pass, Session
from pathways.compiler.passes.order_calls import number_nodes
from pathways.compiler.schedule.arrange import order_by_waits
from pathways.compiler.schedule.attribute import read_schedule, write_schedule
from pathways.compiler.schedule.describe import describe_schedule
from pathways.compiler.schedule.table import Pipeline, read_pipeline
from pathways.dialect.call_labels import Action
from pathways.dialect.host_callbacks import read_callbacks
from pathways.dialect.ir.flow import Draft, Node, Rewriting, renumbered
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.phases import Phase


@dataclass(frozen=True)
class Rematerialize(Pass):
    """Repeats the forward calls of a stage before its backward calls, if the memory of a device does not suffice.

    Each slice starts with its stage that keeps most bytes, and stops when the plan fits or nothing is left to drop. The
    same computations run again, so nothing more is compiled. The inputs of a stage must be kept until then, which may
    be more than its results. If the estimated peak of its slice does not fall, the stage stays as it was.

    Requires: phase schedule, before calls are merged.
    Ensures: phase schedule: calls that compute something again say so.
    """

    name: ClassVar[str] = "rematerialize"
    requires: ClassVar[Phase] = Phase.SCHEDULE
    ensures: ClassVar[Phase] = Phase.SCHEDULE
    when: str = "auto"
    """auto: if the plan does not fit; always: every stage whose slice then needs less memory."""

    def __post_init__(self) -> None:
        if self.when not in ("auto", "always"):
            raise ValueError(f"when={self.when!r}, which is neither auto nor always")

    def apply(self, program: ProgramIR, session: Session) -> None:
        pipeline = read_pipeline(program)
        if pipeline is None or not pipeline.has_backward or any(n.op.again for n in program.flow.calls()):
            return
        temporaries = temporaries_of(program, session.analyzer)
        done: list[int] = []
        peaks = _peaks(program, temporaries)
        for stages in _rounds(program, pipeline):
            # Slices share no devices, so a change on one slice changes no peak of another: one estimate serves all.
            flow, before = program.flow, peaks
            on = {stage: pipeline.slices[pipeline.rows[stage]] for stage in stages}
            wanted = [s for s in stages if self.when == "always" or _is_full(program, on[s], peaks)]
            tried = [stage for stage in wanted if _run_again(program, stage)]
            peaks = _peaks(program, temporaries) if tried else peaks
            better = [stage for stage in tried if peaks[on[stage]] < before[on[stage]]]
            if better != tried:
                peaks |= {on[stage]: before[on[stage]] for stage in tried if stage not in better}
                program.flow = flow
                number_nodes(program)
                for stage in better:
                    _run_again(program, stage)
            done += better
        if done:
            _note(program, sorted(done))


def _rounds(program: ProgramIR, pipeline: Pipeline) -> list[list[int]]:
    """Returns rounds of stages to try together, one for each slice. Stages that keep most bytes come first."""
    kept = {stage: _kept_bytes(program, pipeline, stage) for stage in range(pipeline.stages)}
    of_slice: dict[int, list[int]] = {}
    for stage in sorted(kept, key=lambda s: -kept[s]):
        of_slice.setdefault(pipeline.rows[stage], []).append(stage)
    max_length = max(map(len, of_slice.values()))
    return [[stages[i] for stages in of_slice.values() if i < len(stages)] for i in range(max_length)]


def _peaks(program: ProgramIR, temporaries: dict[str, int]) -> dict[str, int]:
    """Returns the maximum bytes alive on one device of each slice."""
    high = device_peaks(program, temporaries=temporaries)
    bound = {symbol: [(op.island or "", d) for d in op.device_ids or ()] for symbol, op in program.slices.items()}
    return {symbol: max((high.get(device, 0) for device in devices), default=0) for symbol, devices in bound.items()}


def _is_full(program: ProgramIR, slice_: str, peaks: dict[str, int]) -> bool:
    limit = program.islands[program.slices[slice_].island or ""].memory
    return limit is not None and peaks[slice_] > limit


def _kept(program: ProgramIR, pipeline: Pipeline, action: Action) -> Iterator[tuple[int, list[int]]]:
    """Yields each value of a forward action that its backward calls take, with these calls."""
    flow = program.flow
    backward_calls = {call for kind in "BIW" for call in pipeline.calls.get(action._replace(kind=kind), ())}
    for call in pipeline.calls[action]:
        for value in flow.nodes[call].results:
            users = [u for u in flow.users[value] if u in backward_calls]
            if users:
                yield value, users


def _kept_bytes(program: ProgramIR, pipeline: Pipeline, stage: int) -> int:
    action = next((a for a in pipeline.calls if a.stage == stage and a.kind == "F"), None)
    if action is None:
        return 0
    return sum(program.flow.types[v].bytes for v, _ in _kept(program, pipeline, action))


def _run_again(program: ProgramIR, stage: int) -> bool:
    """Inserts copies of a stage's forward calls before its backward calls. Returns whether it inserted any."""
    flow, pipeline = program.flow, read_pipeline(program)
    if pipeline is None:
        return False
    types, rewriting = list(flow.types), Rewriting()
    for action, calls in pipeline.calls.items():
        if action.stage != stage or action.kind != "F":
            continue
        kept = dict(_kept(program, pipeline, action))
        if not kept or any(read_callbacks(program.computations[flow.nodes[call].callee]) for call in calls):
            continue
        first = min(u for users in kept.values() for u in users)
        if not _works_between(program, max(calls), first):  # backward follows directly: dropping saves nothing
            continue
        fresh: dict[int, int] = {}
        for call in calls:
            node = flow.nodes[call]
            again = node.op.copy()
            again.again, again.action = True, flow.nodes[first].op.action
            made = range(len(types), len(types) + len(node.results))
            operands = [fresh.get(v, v) for v in node.operands]
            rewriting.before.setdefault(first, []).append(Draft(again, node.callee, node.mesh, operands, made))
            types += flow.types[node.results.start : node.results.stop]
            fresh.update(zip(node.results, made, strict=True))
        for user in sorted({user for users in kept.values() for user in users}):
            now = rewriting.instead.get(user) or flow.nodes[user]
            operands = [fresh[v] if v in kept and user in kept[v] else v for v in now.operands]
            rewriting.instead[user] = Draft(now.op, now.callee, now.mesh, operands, now.results)
    if not rewriting.before:
        return False
    program.flow = renumbered(program, types, flow.arguments, rewriting.nodes(flow), flow.returned)
    number_nodes(program)
    return True


def _works_between(program: ProgramIR, before: int, after: int) -> bool:
    """Whether the slice of two calls does other work between them. Work of other slices uses none of its memory."""
    nodes = program.flow.nodes
    here = program.slice_of(nodes[after].mesh)
    return any(not n.is_transfer and _works_on(program, n, here) for n in nodes[before + 1 : after])


def _works_on(program: ProgramIR, node: Node, slice_: str) -> bool:
    """Whether a node runs on a slice. Control flow counts for every slice, wherever its results are."""
    return not node.is_call or program.slice_of(node.mesh) == slice_


def _note(program: ProgramIR, stages: list[int]) -> None:
    old = read_schedule(program)
    many = "stages" if len(stages) > 1 else "stage"
    note = f"activations of {many} {', '.join(map(str, stages))} are computed again before backward, to save memory"
    write_schedule(program, describe_schedule(old.name, replace(order_by_waits(program), note=note)))
