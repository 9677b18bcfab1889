"""Lists the tasks of a plan (computations, transfers, branches) and which tasks each waits for. Drawings and
simulations of the schedule start from this list. Pure functions.

Only the program's own streams have tasks: the work of a branch depends on data.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeAlias

from pathways.compiler.computations.collectives import Collectives, collectives_of
from pathways.compiler.computations.flops import flops_of
from pathways.compiler.computations.total import has_unknown_loops
from pathways.dialect.call_labels import Action, actions_of, read_action
from pathways.dialect.diagnostics import Where
from pathways.dialect.mlir import from_portable, make_context
from pathways.dialect.plan.instructions import Copy, Instruction, Recv, Run, Send
from pathways.dialect.plan.nouns import Decision, Plan
from pathways.dialect.plan.order import Joined, linearize

CALL, TRANSFER, RESHARD, BRANCH = ("call", "transfer", "reshard", "branch")
Device: TypeAlias = tuple[int, int]
"""The number of an island (of a stream), and a position on it."""
Slot: TypeAlias = tuple[int, int]
"""The number of a stream, and a slot in that stream."""


class PlannedTask(NamedTuple):
    """One call, transfer, reshard or branch (`kind`). `waits` are the tasks that produce the values it reads.

    A transfer runs on no devices. `bytes` is the amount that changes device; for a call, the size of its results on a
    device. `mesh` is the location of a call or the target of a value; -1 means several. `decision` belongs to a
    transfer or reshard.
    """

    kind: str
    name: str
    step: int
    stream: int
    reads: tuple[Slot, ...]
    writes: tuple[Slot, ...]
    number: int = -1
    waits: tuple[int, ...] = ()
    devices: tuple[Device, ...] = ()
    bytes: int = 0
    where: Where | None = None
    parts: tuple[Action, ...] = ()
    mesh: int = -1
    temporaries: int = 0
    decision: Decision | None = None
    part_names: tuple[str, ...] = ()
    flops: float = 0.0
    """Floating-point operations of a call, over all devices."""
    collectives: Collectives = Collectives()
    """The collectives inside a call."""
    touched: int = 0
    """Bytes that a call reads and writes on one device."""
    source: int = -1
    """The stream that sends the value of a transfer."""


@dataclass(eq=False)
class Work:
    """The tasks of a plan, in the order in which a single controller enqueues them. Each waits for earlier ones."""

    plan: Plan
    tasks: list[PlannedTask] = field(default_factory=list[PlannedTask])
    makers: dict[Slot, int] = field(default_factory=dict[Slot, int])
    """The task that produces the value of a slot; arguments and constants have none."""
    uncounted: set[str] = field(default_factory=set[str])
    """Names of computations whose collectives are unknown."""
    loops: set[str] = field(default_factory=set[str])
    """Names of computations with loops whose number of turns is unknown."""

    def assumptions(self) -> list[str]:
        """Lists what is assumed about the work of computations, as text."""
        found = [f"no collectives in {', '.join(sorted(self.uncounted))}"] if self.uncounted else []
        return found + [f"one turn of the loops on data in {', '.join(sorted(self.loops))}"] * bool(self.loops)

    @cached_property
    def runs(self) -> dict[tuple[int, int], Run]:
        """The instruction of each call, by stream and step."""
        return {
            (number, i.step): i
            for number, stream in enumerate(self.plan.streams)
            for i in stream.instructions
            if isinstance(i, Run)
        }

    @cached_property
    def users(self) -> dict[Slot, list[int]]:
        """For each slot, the tasks that read it, in order."""
        found: dict[Slot, list[int]] = {}
        for task in self.tasks:
            for slot in task.reads:
                found.setdefault(slot, []).append(task.number)
        return found


def work_of(plan: Plan) -> Work:
    """Builds the tasks of a plan. Raises PWC0604 if the plan's streams wait for each other."""
    work = Work(plan)
    reader = _Reader(work, _costs(work))
    for stream, instruction in linearize(plan):
        reader.read(stream, instruction)
    return work


def _costs(work: Work) -> list[tuple[float, Collectives]]:
    """Returns the flops of each computation, and its collectives."""
    known: dict[bytes, tuple[float, Collectives]] = {}
    context = make_context()
    for computation in work.plan.computations:
        if computation.module not in known:
            module = from_portable(computation.module, context).operation
            if (collectives := collectives_of(module)) is None:
                work.uncounted.add(computation.name)
            if has_unknown_loops(module):
                work.loops.add(computation.name)
            known[computation.module] = flops_of(module), collectives or Collectives()
    return [known[c.module] for c in work.plan.computations]


class _Reader:
    def __init__(self, work: Work, costs: Sequence[tuple[float, Collectives]]) -> None:
        self.work, self.plan, self.costs = work, work.plan, costs
        self.sent: dict[int, tuple[Send, int]] = {}
        """For each channel, its send and the sending stream."""
        self.decided = {
            step: d for d in reversed(self.plan.decisions) if d.kind in ("transfer", "reshard") for step in d.steps
        }

    def read(self, stream: int, what: Instruction | Joined) -> None:
        match what:
            case Run():
                self._call(stream, what)
            case Send():
                self.sent[what.channel] = what, stream
            case Recv():
                send, source = self.sent[what.channel]
                self._move(TRANSFER, (source, send.slot), (stream, what.slot), what, what.where or send.where)
            case Copy():
                self._move(RESHARD, (stream, what.source), (stream, what.target), what, what.where)
            case Joined():
                self._branch(what)
            case _:
                pass

    def _call(self, stream: int, run: Run) -> None:
        mesh = self.plan.meshes[run.mesh]
        kinds = self.plan.streams[stream].kind_of
        flops, collectives = self.costs[run.computation]
        task = PlannedTask(
            CALL,
            run.name,
            run.step,
            stream,
            reads=tuple((stream, s) for s in run.inputs),
            writes=tuple((stream, s) for s in run.outputs),
            devices=tuple((stream, d) for d in mesh.devices),
            bytes=sum(kinds[s].bytes for s in run.outputs),
            where=run.where,
            parts=tuple(map(read_action, actions_of(run.action, run.parts))),
            mesh=run.mesh,
            temporaries=run.temporaries,
            part_names=run.parts,
            flops=flops,
            collectives=collectives,
            touched=sum(kinds[s].bytes for s in (*run.inputs, *run.outputs)) + 2 * run.temporaries,
        )
        self._add(task)

    def _move(self, kind: str, source: Slot, target: Slot, what: Recv | Copy, where: Where | None) -> None:
        decision = self.decided.get(what.step)
        stream = self.plan.streams[target[0]]
        moved = decision.bytes if decision is not None else 0
        task = PlannedTask(
            kind,
            decision.name if decision is not None else stream.buffers[target[1]].name,
            what.step,
            target[0],
            reads=(source,),
            writes=(target,),
            bytes=moved,
            where=where,
            mesh=stream.kind_of[target[1]].layout.mesh,
            decision=decision,
            source=source[0],
        )
        self._add(task)

    def _branch(self, joined: Joined) -> None:
        branch = joined.branch
        devices = {(s, d): None for s, part in joined.parts for m in part.meshes for d in self.plan.meshes[m].devices}
        task = PlannedTask(
            BRANCH,
            branch.name or f"{branch.kind} on data",
            branch.step,
            joined.parts[0][0],
            reads=tuple((s, slot) for s, part in joined.parts for slot in part.inputs),
            writes=tuple((s, slot) for s, part in joined.parts for slot in part.outputs),
            devices=tuple(devices),
            where=branch.where,
            temporaries=branch.temporaries,
        )
        self._add(task)

    def _add(self, task: PlannedTask) -> None:
        tasks, makers = self.work.tasks, self.work.makers
        waits = tuple(dict.fromkeys(makers[slot] for slot in task.reads if slot in makers))
        makers.update(dict.fromkeys(task.writes, len(tasks)))
        tasks.append(task._replace(number=len(tasks), waits=waits))
