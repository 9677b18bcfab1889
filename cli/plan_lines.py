"""Formats a plan for comparison with another: a line for each instruction, without numbers that change with the order.

A value is named by the instruction that makes it, for example `2F3 block.0`, in place of its slot, and a place by its
slice, in place of the island. Lines have no step numbers and no padding. So a line is the same in both plans if an
instruction does the same, wherever it stands. Only calls of the same name are numbered in their order.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from pathways.api.summary import schedule_text
from pathways.cli.inspect import source_line
from pathways.dialect.plan.instructions import Branch, Copy, Free, Instruction, Recv, Run, Send
from pathways.dialect.plan.nouns import BufferKind, Plan, Port, Stream
from pathways.dialect.plan.order import Joined, Ordered, linearize

MAX_NAME_CHARS = 200
"""Longer names of values are cut, since many lines repeat them."""


def plan_lines(plan: Plan, path: str = "plan") -> Iterator[str]:
    """Yields the lines of a whole plan. Raises PWC0604 if its streams wait for each other."""
    yield f"program {plan.name} for {plan.platform}"
    yield f"islands {plan.topology}"
    yield f"schedule {plan.schedule.name}: {schedule_text(plan.schedule)}"
    yield from (f"slice {s.name} -> {s.island} {list(s.devices)}  {s.reason}" for s in plan.slices)
    yield from _Function(plan, "", path).lines()
    for number, body in enumerate(plan.bodies):
        yield from _Function(plan.of_body(number), f"{body.name}, ", path).lines()


class _Function:
    """The streams of the program or of one body, whose values have names."""

    def __init__(self, plan: Plan, prefix: str, path: str) -> None:
        self._plan = plan
        self._prefix = prefix
        """The name of the body; empty for the program."""
        self._shown = {kind: self._show(kind) for stream in plan.streams for kind in stream.kinds}
        """The type and place of each kind."""
        self._streams = {stream.island: stream for stream in plan.streams}
        self._names = {s.island: [_cut(g.name) for g in s.groups for _ in g.kinds] for s in plan.streams}
        """The name of each slot, by island."""
        self._origins = {island: list(names) for island, names in self._names.items()}
        """The names of values without their places."""
        self._name_values(linearize(plan, path))

    def lines(self) -> Iterator[str]:
        for port in self._plan.inputs:
            yield f"{self._prefix}input {self._port(port)}"
        for number, port in enumerate(self._plan.results):
            name = self._names[port.island][port.slot] if port.slot >= 0 else "nothing"
            yield f"{self._prefix}result {number} {self._port(port)} = {name}"
        received = {
            i.channel: self._slice(stream, i.slot)
            for stream in self._plan.streams
            for i in stream.instructions
            if isinstance(i, Recv)
        }
        for stream in self._plan.streams:
            names = self._names[stream.island]
            for instruction in stream.instructions:
                yield f"{self._prefix}{self._line(stream, names, instruction, received)}"

    def _port(self, port: Port) -> str:
        """Describes an argument or result."""
        if port.slot < 0:
            return f"{port.name} {port.dtype}{list(port.type.shape)} unused"
        made = self._made(self._streams[port.island], (port.slot,))
        return f"{port.name} {port.dtype} {made}{' donated' if port.donated else ''}"

    def _name_values(self, order: Iterable[Ordered]) -> None:
        """Names values in the order of execution, so that a value that is moved gets the name of its source."""
        sent: dict[int, str] = {}
        count: Counter[tuple[str, str]] = Counter()
        for number, instruction in order:
            stream = self._plan.streams[number]
            match instruction:
                case Run():
                    self._name_results(stream, instruction, count)
                case Joined():
                    for at, branch in instruction.parts:
                        self._name_results(self._plan.streams[at], branch, count)
                case Send():
                    sent[instruction.channel] = self._origins[stream.island][instruction.slot]
                case Recv():
                    self._name_moved(stream, instruction.slot, sent[instruction.channel])
                case Copy():
                    self._name_moved(stream, instruction.target, self._origins[stream.island][instruction.source])
                case _:
                    pass

    def _name_moved(self, stream: Stream, slot: int, origin: str) -> None:
        self._origins[stream.island][slot] = origin
        self._names[stream.island][slot] = f"{origin} on {self._slice(stream, slot)}"

    def _name_results(self, stream: Stream, made: Run | Branch, count: Counter[tuple[str, str]]) -> None:
        """Names the results of a call. Later calls of the same name are numbered."""
        name = self._name(made)
        count[stream.island, name] += 1
        many = count[stream.island, name]
        name += f" ({many})" if many > 1 else ""
        for number, slot in enumerate(made.outputs):
            shown = f"{name}.{number}" if len(made.outputs) > 1 else name
            self._names[stream.island][slot] = self._origins[stream.island][slot] = shown

    def _name(self, instruction: Run | Branch) -> str:
        return _cut(instruction.shown if isinstance(instruction, Run) else instruction.name)

    def _line(self, stream: Stream, names: Sequence[str], instruction: Instruction, received: Mapping[int, str]) -> str:
        match instruction:
            case Run():
                donated = {instruction.inputs[i] for i in instruction.donated}
                taken = _joined([names[s] + ("!" if s in donated else "") for s in instruction.inputs])
                slice_, made = self._plan.meshes[instruction.mesh].slice, self._made(stream, instruction.outputs)
                return f"{slice_}: {self._name(instruction)}: {taken} -> {made}{_at(instruction)}"
            case Branch():
                bodies = ", ".join(self._plan.bodies[b].name for b in instruction.bodies)
                taken = _joined([names[s] for s in instruction.inputs])
                made = self._made(stream, instruction.outputs)
                return f"{instruction.kind} {instruction.name} of {bodies}: {taken} -> {made}{_at(instruction)}"
            case Send():
                return f"send {names[instruction.slot]} to {received[instruction.channel]}"
            case Recv():
                return f"recv {names[instruction.slot]} -> {self._made(stream, (instruction.slot,))}"
            case Copy():
                return f"copy {names[instruction.source]} -> {self._made(stream, (instruction.target,))}"
            case Free():
                return f"free {_joined([names[s] for s in instruction.slots])}"

    def _made(self, stream: Stream, slots: Sequence[int]) -> str:
        """Describes the types and places of results. Equal ones in a row are counted."""
        kinds = map(stream.kind_of.__getitem__, slots)
        counted = [(len(list(equal)), self._shown[kind]) for kind, equal in groupby(kinds)]
        return ", ".join(kind if count == 1 else f"{count} x {kind}" for count, kind in counted) or "nothing"

    def _show(self, kind: BufferKind) -> str:
        return f"{kind.type} {self._plan.meshes[kind.layout.mesh].slice}{self._plan.sharding(kind.layout)}"

    def _slice(self, stream: Stream, slot: int) -> str:
        return self._plan.meshes[stream.kind_of[slot].layout.mesh].slice


def _cut(name: str) -> str:
    return name if len(name) <= MAX_NAME_CHARS else f"{name[:MAX_NAME_CHARS]}..."


def _at(instruction: Run | Branch) -> str:
    where = source_line(instruction.where)
    return f"  {where}" if where else ""


def _joined(names: Sequence[str]) -> str:
    """Joins names. Results of one call in a row, `f.0 f.1 f.2`, become `f.0..2`."""
    found: list[str] = []
    expected = ""
    """The name that continues the last entry of `found`."""
    for name in names:
        head, _, tail = name.rpartition(".")
        if name == expected:
            found[-1] = f"{found[-1].partition('..')[0]}..{tail}"
        else:
            found.append(name)
        expected = f"{head}.{int(tail) + 1}" if head and tail.isdecimal() and tail.isascii() else ""
    return " ".join(found)
