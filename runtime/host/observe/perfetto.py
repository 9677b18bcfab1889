"""Writes a recording as one Perfetto file: a process an island, a thread a device, flows along transfers. Pure.

For each launch: enqueued (by the controller), ready (when the last of what it reads was made), start and end. A gap
before it carries its reason. Beside each device's queue stands the plan: the same launches in their order, each as long
as such a launch usually was, each as early as its operands allow.
"""

import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pathways.dialect.plan.instructions import Copy, Recv, Run, Send
from pathways.dialect.plan.nouns import Plan
from pathways.runtime.host.devices.islands import PhysicalIsland

_CONTROLLER = 1
_GAP = 20_000
"""Nanoseconds: shorter gaps are not drawn."""


@dataclass(eq=False)
class RunSpan:
    """The times of one run; 0 until they are known."""

    number: int
    program: str
    client: str
    submitted: int
    turn: int = 0
    enqueued: int = 0
    done: int = 0


@dataclass(frozen=True, eq=False)
class LaunchSpan:
    """A computation was enqueued between two times. `base`: the first launch id of its run, or of its body's run."""

    launch: int
    number: int
    base: int
    island: str
    positions: tuple[int, ...]
    run: Run
    plan: Plan
    begin: int
    end: int
    devices: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Moved:
    """A transfer to an island was enqueued between two times."""

    number: int
    island: str
    instruction: Recv | Copy
    begin: int
    end: int


@dataclass(frozen=True)
class DeviceSpan:
    """The time in which a device worked on a launch."""

    launch: int
    island: str
    position: int
    begin: int
    end: int


def write(
    runs: Sequence[RunSpan],
    launches: Sequence[LaunchSpan],
    moves: Sequence[Moved],
    spans: Sequence[DeviceSpan],
    islands: Sequence[PhysicalIsland],
) -> str:
    """Writes the file as JSON."""
    writer = _Writer(launches, spans, islands)
    events = [*writer.names(runs), *writer.controller(runs, launches, moves), *writer.queues(), *writer.planned()]
    start = min((e["ts"] for e in events if "ts" in e), default=0)
    for event in events:
        if "ts" in event:
            event["ts"] = (event["ts"] - start) / 1000
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def producers(plan: Plan) -> dict[int, list[int]]:
    """Finds for each computation (by step) the computations that make its operands, through transfers."""
    sent: dict[int, int] = {}
    for stream in plan.streams:
        made: dict[int, int] = {}
        for i in stream.instructions:
            if isinstance(i, Run):
                made.update(dict.fromkeys(i.outputs, i.step))
            elif isinstance(i, Send) and i.slot in made:
                sent[i.channel] = made[i.slot]
    found: dict[int, list[int]] = {}
    for stream in plan.streams:
        made = {}
        for i in stream.instructions:
            match i:
                case Run():
                    found[i.step] = sorted({made[s] for s in i.inputs if s in made})
                    made.update(dict.fromkeys(i.outputs, i.step))
                case Recv() if i.channel in sent:
                    made[i.slot] = sent[i.channel]
                case Copy() if i.source in made:
                    made[i.target] = made[i.source]
                case Send() if i.slot in made:
                    sent[i.channel] = made[i.slot]
                case _:
                    pass
    return found


class _Writer:
    def __init__(
        self, launches: Sequence[LaunchSpan], spans: Sequence[DeviceSpan], islands: Sequence[PhysicalIsland]
    ) -> None:
        self.launches = {la.launch: la for la in launches}
        self.islands = {i.key: (number, i) for number, i in enumerate(islands, _CONTROLLER + 1)}
        self.by_queue: dict[tuple[str, int], list[DeviceSpan]] = defaultdict(list)
        self.ends: dict[tuple[int, int], int] = {}
        """The time when a step was done on its last device, by the base of its run and its number."""
        for span in spans:
            self.by_queue[span.island, span.position].append(span)
            key = self.launches[span.launch].base, self.launches[span.launch].run.step
            self.ends[key] = max(self.ends.get(key, 0), span.end)
        self._producers: dict[int, dict[int, list[int]]] = {}

    def names(self, runs: Sequence[RunSpan]) -> Iterator[dict[str, Any]]:
        yield _named("process_name", _CONTROLLER, 0, "controller")
        for client in dict.fromkeys(r.client for r in runs):
            yield _named("thread_name", _CONTROLLER, self._client(client, runs), f"runs of {client}")
        yield _named("thread_name", _CONTROLLER, 0, "enqueuing")
        for key, (number, island) in self.islands.items():
            yield _named("process_name", number, 0, key)
            for position in range(len(island.devices)):
                yield _named("thread_name", number, 2 * position, f"device {position}")
                yield _named("thread_name", number, 2 * position + 1, f"device {position}, planned")

    def _client(self, client: str, runs: Sequence[RunSpan]) -> int:
        return 1 + list(dict.fromkeys(r.client for r in runs)).index(client)

    def controller(
        self, runs: Sequence[RunSpan], launches: Sequence[LaunchSpan], moves: Sequence[Moved]
    ) -> Iterator[dict[str, Any]]:
        for run in runs:
            thread, name = self._client(run.client, runs), f"{run.program} {run.number}"
            stages = ("waits for its turn", run.submitted, run.turn), ("enqueues", run.turn, run.enqueued)
            for what, begin, end in (*stages, ("on devices", run.enqueued, run.done)):
                if begin and end:
                    arguments = {"run": run.number, "client": run.client}
                    yield from _async(f"{name}: {what}", thread, f"{run.number}-{what}", begin, end, arguments)
        for la in launches:
            arguments = {"run": la.number, "step": la.run.step, "island": la.island, "launch": la.launch}
            yield _span(f"enqueue {la.run.name}", _CONTROLLER, 0, la.begin, la.end, arguments)
        for move in moves:
            kind = "receive" if isinstance(move.instruction, Recv) else "copy"
            arguments = {"run": move.number, "step": move.instruction.step, "to": move.island}
            yield _span(f"{kind} to {move.island}", _CONTROLLER, 0, move.begin, move.end, arguments)

    def queues(self) -> Iterator[dict[str, Any]]:
        for (island, position), spans in self.by_queue.items():
            process, thread = self.islands[island][0], 2 * position
            spans.sort(key=lambda s: s.begin)
            before = 0
            for span in spans:
                la = self.launches[span.launch]
                ready = self.ready(la)
                begin = max(span.begin, before)
                if before and begin - before > _GAP:
                    reason = _reason(before, la, ready, self._slowest(la))
                    yield _span(f"({reason})", process, thread, before, begin, {"gap": reason})
                arguments: dict[str, Any] = {
                    "run": la.number,
                    "step": la.run.step,
                    "action": la.run.action,
                    "line": str(la.run.where or ""),
                    "enqueued_us_before": (span.begin - la.end) / 1000,
                    "ready_us_before": (span.begin - ready) / 1000 if ready else None,
                }
                yield _span(la.run.name, process, thread, begin, max(span.end, begin), arguments)
                before = max(before, span.end)
        yield from self._flows()

    def _flows(self) -> Iterator[dict[str, Any]]:
        """Draws an arrow from the launch that made a value to one that reads it on another queue."""
        at = {(la.base, la.run.step): la for la in self.launches.values()}
        first = {(s.launch, s.position): s for spans in self.by_queue.values() for s in spans}
        for la in self.launches.values():
            for step in self._before(la):
                source = at.get((la.base, step))
                if source is None or (source.island, source.positions) == (la.island, la.positions):
                    continue
                a, b = first.get((source.launch, source.positions[0])), first.get((la.launch, la.positions[0]))
                if a is None or b is None:
                    continue
                identity = f"{source.launch}-{la.launch}"
                ends = ("s", source, a.end - 1), ("f", la, b.begin)
                for phase, end, when in ends:
                    process, thread = self.islands[end.island][0], 2 * end.positions[0]
                    event: dict[str, Any] = {"ph": phase, "id": identity, "name": "transfer", "cat": "transfer"}
                    yield event | {"pid": process, "tid": thread, "ts": when} | ({"bp": "e"} if phase == "f" else {})

    def _before(self, la: LaunchSpan) -> list[int]:
        plan = id(la.plan)
        if plan not in self._producers:
            self._producers[plan] = producers(la.plan)
        return self._producers[plan].get(la.run.step, [])

    def ready(self, la: LaunchSpan) -> int:
        """Returns when the last operand was made; 0: not known, or before the run."""
        return max((self.ends.get((la.base, step), 0) for step in self._before(la)), default=0)

    def _slowest(self, la: LaunchSpan) -> str:
        steps = self._before(la)
        if not steps:
            return "its operands"
        step = max(steps, key=lambda s: self.ends.get((la.base, s), 0))
        names = (x.run.name for x in self.launches.values() if x.base == la.base and x.run.step == step)
        return next(names, "its operands")

    def planned(self) -> Iterator[dict[str, Any]]:
        """Plans the same launches, each as long as usual and as early as can be, from where its run began."""
        lengths: dict[tuple[int, int], list[int]] = defaultdict(list)
        for spans in self.by_queue.values():
            for span in spans:
                la = self.launches[span.launch]
                lengths[id(la.plan), la.run.computation].append(span.end - span.begin)
        usual = {key: int(statistics.median(values)) for key, values in lengths.items()}
        free: dict[tuple[str, int], int] = defaultdict(int)
        ends: dict[tuple[int, int], int] = {}
        for la in sorted(self.launches.values(), key=lambda x: x.begin):
            length = usual.get((id(la.plan), la.run.computation))
            if length is None:
                continue
            begins = [free[la.island, p] for p in la.positions]
            begins += [ends.get((la.base, step), 0) for step in self._before(la)]
            begin = max([*begins, 0]) or la.begin
            for position in la.positions:
                free[la.island, position] = begin + length
                process = self.islands[la.island][0]
                yield _span(la.run.name, process, 2 * position + 1, begin, begin + length, {"run": la.number})
            ends[la.base, la.run.step] = begin + length


def _reason(before: int, la: LaunchSpan, ready: int, slowest: str) -> str:
    """Says why a device had nothing to do until this launch: the last thing that had to happen."""
    if la.end > max(before, ready):
        return "controller late"
    if ready > before:
        return f"waits for {slowest}"
    return "starts late"


def _named(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _span(name: str, process: int, thread: int, begin: int, end: int, arguments: dict[str, Any]) -> dict[str, Any]:
    event: dict[str, Any] = {"ph": "X", "name": name, "pid": process, "tid": thread, "ts": begin}
    return event | {"dur": (end - begin) / 1000, "args": arguments}


def _async(
    name: str, thread: int, identity: str, begin: int, end: int, arguments: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Writes a span that need not nest: runs of one client overlap."""
    for phase, when in (("b", begin), ("e", end)):
        event: dict[str, Any] = {"ph": phase, "cat": "run", "name": name, "id": identity, "ts": when}
        yield event | {"pid": _CONTROLLER, "tid": thread, "args": arguments}
