"""Writes recorded runs as one file for the Perfetto viewer. Each island is a process, each device is a thread, and
arrows show transfers. `pw.trace` calls it at its end. Pure functions.

Each launch has four times: enqueued (by the controller or the island's host), ready (its last operand was made), start
and end. A gap before a launch shows its reason. Next to each device's queue is the planned schedule. It has the same
launches in order, each with its usual duration, and as early as its operands allow.
"""

import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pathways.dialect.plan.instructions import Copy, Recv, Run, Send
from pathways.dialect.plan.nouns import Plan
from pathways.runtime.host.devices.islands import PhysicalIsland

_CONTROLLER = 1
_MIN_GAP_NS = 20_000
"""Shorter gaps are not drawn."""


@dataclass(eq=False)
class RunSpan:
    """The times of one run; 0 until they are known."""

    number: int
    program: str
    client: str
    submitted: int
    scheduled: int = 0
    enqueued: int = 0
    done: int = 0


@dataclass(frozen=True, eq=False)
class LaunchSpan:
    """A computation was enqueued between two times, under a launch id that is unique on its island.

    `base` is the same number for all launches of a run, or of one run of a body.
    """

    launch: int
    number: int
    base: int
    island: str
    positions: tuple[int, ...]
    run: Run
    plan: Plan
    begin: int
    end: int

    @property
    def key(self) -> tuple[str, int]:
        return self.island, self.launch


@dataclass(frozen=True)
class Moved:
    """A transfer to an island was enqueued between two times."""

    number: int
    island: str
    kind: Literal["receive", "copy"]
    step: int
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


@dataclass(frozen=True)
class Recording:
    """The recorded events. All times are of one clock."""

    runs: Sequence[RunSpan] = ()
    launches: Sequence[LaunchSpan] = ()
    moves: Sequence[Moved] = ()
    spans: Sequence[DeviceSpan] = ()


def write(found: Recording, islands: Sequence[PhysicalIsland], *, hosts: bool = False) -> str:
    """Writes the file as JSON. `hosts`: each island is a process of its own, which enqueues its launches."""
    writer = _Writer(found, islands, hosts)
    events = [*writer.names(), *writer.runs(), *writer.enqueuing(), *writer.queues(), *writer.planned()]
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


@dataclass(eq=False)
class _Writer:
    found: Recording
    of: Sequence[PhysicalIsland]
    hosts: bool
    by_queue: dict[tuple[str, int], list[DeviceSpan]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    """The time when a step was done on its last device, by the base of its run and its number."""
    _producers: dict[int, dict[int, list[int]]] = field(default_factory=dict[int, dict[int, list[int]]])

    def __post_init__(self) -> None:
        self.launches = {la.key: la for la in self.found.launches}
        self.islands = {i.key: (number, i) for number, i in enumerate(self.of, _CONTROLLER + 1)}
        self.clients = list(dict.fromkeys(r.client for r in self.found.runs))
        for span in self.found.spans:
            self.by_queue[span.island, span.position].append(span)
            la = self.launches[span.island, span.launch]
            key = la.base, la.run.step
            self.ends[key] = max(self.ends.get(key, 0), span.end)

    def names(self) -> Iterator[dict[str, Any]]:
        yield _named("process_name", _CONTROLLER, 0, "controller")
        for number, client in enumerate(self.clients, 1):
            yield _named("thread_name", _CONTROLLER, number, f"runs of {client}")
        for process, thread in dict.fromkeys(self._enqueuer(key) for key in self.islands):
            yield _named("thread_name", process, thread, "enqueuing")
        for key, (number, island) in self.islands.items():
            yield _named("process_name", number, 0, key)
            for position in range(len(island.devices)):
                yield _named("thread_name", number, 2 * position, f"device {position}")
                yield _named("thread_name", number, 2 * position + 1, f"device {position}, planned")

    def _enqueuer(self, island: str) -> tuple[int, int]:
        """Returns the process and the thread that enqueue the launches of an island."""
        if not self.hosts:
            return _CONTROLLER, 0
        process, physical = self.islands[island]
        return process, 2 * len(physical.devices)

    def runs(self) -> Iterator[dict[str, Any]]:
        for run in self.found.runs:
            thread, name = 1 + self.clients.index(run.client), f"{run.program} {run.number}"
            stages = ("waits in the queue", run.submitted, run.scheduled), ("enqueues", run.scheduled, run.enqueued)
            for what, begin, end in (*stages, ("on devices", run.enqueued, run.done)):
                if begin and end:
                    arguments = {"run": run.number, "client": run.client}
                    yield from _async(f"{name}: {what}", thread, f"{run.number}-{what}", begin, end, arguments)

    def enqueuing(self) -> Iterator[dict[str, Any]]:
        for la in self.found.launches:
            arguments = {"run": la.number, "step": la.run.step, "island": la.island, "launch": la.launch}
            yield _span(f"enqueue {la.run.name}", *self._enqueuer(la.island), la.begin, la.end, arguments)
        for move in self.found.moves:
            arguments = {"run": move.number, "step": move.step, "to": move.island}
            place = self._enqueuer(move.island)
            yield _span(f"{move.kind} to {move.island}", *place, move.begin, move.end, arguments)

    def queues(self) -> Iterator[dict[str, Any]]:
        for (island, position), spans in self.by_queue.items():
            process, thread = self.islands[island][0], 2 * position
            spans.sort(key=lambda s: s.begin)
            before = 0
            for span in spans:
                la = self.launches[span.island, span.launch]
                ready = self.ready(la)
                begin = max(span.begin, before)
                if before and begin - before > _MIN_GAP_NS:
                    reason = self._reason(before, la, ready)
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
        first = {(s.island, s.launch, s.position): s for spans in self.by_queue.values() for s in spans}
        for la in self.launches.values():
            for step in self._before(la):
                source = at.get((la.base, step))
                if source is None or (source.island, source.positions) == (la.island, la.positions):
                    continue
                a, b = (first.get((*x.key, x.positions[0])) for x in (source, la))
                if a is None or b is None:
                    continue
                identity = f"{source.island} {source.launch}-{la.island} {la.launch}"
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
        """Returns the time at which the last operand was made; 0: not known, or before the run."""
        return max((self.ends.get((la.base, step), 0) for step in self._before(la)), default=0)

    def _reason(self, before: int, la: LaunchSpan, ready: int) -> str:
        """Returns the reason for which a device was idle until this launch: the last event that had to happen."""
        slowest = self._slowest(la)
        if la.end > max(before, ready):
            if not self.hosts:
                return "controller late"
            if slowest is None or slowest.island == la.island:
                return "host late"
            return f"waits for the transfer of {slowest.run.name}"
        if ready > before:
            return f"waits for {'its operands' if slowest is None else slowest.run.name}"
        return "starts late"

    def _slowest(self, la: LaunchSpan) -> LaunchSpan | None:
        """Returns the launch that makes the last operand."""
        steps = self._before(la)
        if not steps:
            return None
        step = max(steps, key=lambda s: self.ends.get((la.base, s), 0))
        return next((x for x in self.launches.values() if x.base == la.base and x.run.step == step), None)

    def planned(self) -> Iterator[dict[str, Any]]:
        """Plans the same launches from the start of each run, each with its usual duration and as early as possible."""
        lengths: dict[tuple[int, int], list[int]] = defaultdict(list)
        for spans in self.by_queue.values():
            for span in spans:
                la = self.launches[span.island, span.launch]
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
                arguments = {"run": la.number, "step": la.run.step, "action": la.run.action}
                yield _span(la.run.name, process, 2 * position + 1, begin, begin + length, arguments)
            ends[la.base, la.run.step] = begin + length


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
