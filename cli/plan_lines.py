"""Formats a plan for comparison with another: a line for each instruction, without numbers that change with the order.

A value is named by the instruction that makes it, for example `2F3 block.0`, in place of its slot, and a place by its
slice, in place of the island. Lines have no step numbers and no padding. So a line is the same in both plans if an
instruction does the same, wherever it stands.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby

from pathways.api.summary import schedule_text
from pathways.cli.inspect import source_line
from pathways.dialect.plan.instructions import Branch, Copy, Free, Instruction, Recv, Run, Send
from pathways.dialect.plan.nouns import BufferKind, Plan, Port, Stream


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yields the lines of a whole plan."""
    yield f"program {plan.name} for {plan.platform}"
    yield f"islands {plan.topology}"
    yield f"schedule {plan.schedule.name}: {schedule_text(plan.schedule)}"
    yield from (f"slice {s.name} -> {s.island} {list(s.devices)}  {s.reason}" for s in plan.slices)
    yield from _Function(plan, "").lines()
    for number, body in enumerate(plan.bodies):
        yield from _Function(plan.of_body(number), f"{body.name}, ").lines()


class _Function:
    """The streams of the program or of one body, whose values have names."""

    def __init__(self, plan: Plan, where: str) -> None:
        self._plan = plan
        self._where = where
        """The name of the body; empty for the program."""
        self._streams = {stream.island: stream for stream in plan.streams}
        instructions = [(s, i) for s in plan.streams for i in s.instructions]
        self._sent = {(s.island, i.channel): i.slot for s, i in instructions if isinstance(i, Send)}
        self._received = {(i.source, i.channel): (s.island, i.slot) for s, i in instructions if isinstance(i, Recv)}
        self._kinds = {s.island: [n for group in s.groups for n in group.kinds] for s in plan.streams}
        """The number of the kind of each slot, by island."""
        self._shown = {s.island: [self._show(kind) for kind in s.kinds] for s in plan.streams}
        """The type and place of each kind, by island."""

    def lines(self) -> Iterator[str]:
        for what, ports in (("input", self._plan.inputs), ("result", self._plan.results)):
            yield from (f"{self._where}{what} {self._port(port)}" for port in ports)
        for stream in self._plan.streams:
            names = self._names[stream.island]
            for instruction in stream.instructions:
                yield f"{self._where}{self._line(stream, names, instruction)}"

    def _port(self, port: Port) -> str:
        """Describes an argument or result."""
        if port.slot < 0:
            return f"{port.name} {port.dtype}{list(port.type.shape)} unused"
        made = self._made(port.island, (port.slot,))
        return f"{port.name} {port.dtype} {made}{' donated' if port.donated else ''}"

    @cached_property
    def _names(self) -> dict[str, list[str]]:
        """The name of each slot, by island."""
        own = {island: self._made_here(stream) for island, stream in self._streams.items()}
        names = {island: [""] * len(made) for island, made in own.items()}
        for island, found in names.items():
            for slot in range(len(found)):
                places: list[str] = []
                at, of = island, slot
                while isinstance(made := own[at][of], tuple):  # it comes from another island, or is a copy
                    places.append(self._slice(at, of))
                    at, of = made
                found[slot] = " on ".join([made, *reversed(places)])
        return names

    def _made_here(self, stream: Stream) -> list[str | tuple[str, int]]:
        """Returns the names of values that are made here, and for others from which island and slot they come."""
        found: list[str | tuple[str, int]] = [group.name for group in stream.groups for _ in group.kinds]
        count: Counter[str] = Counter()
        for instruction in stream.instructions:
            match instruction:
                case Run() | Branch():
                    name = self._name(instruction)
                    count[name] += 1
                    name += f" ({count[name]})" if count[name] > 1 else ""
                    for number, slot in enumerate(instruction.outputs):
                        found[slot] = f"{name}.{number}" if len(instruction.outputs) > 1 else name
                case Recv():
                    found[instruction.slot] = instruction.source, self._sent[instruction.source, instruction.channel]
                case Copy():
                    found[instruction.target] = stream.island, instruction.source
                case Send() | Free():
                    pass
        return found

    def _name(self, instruction: Run | Branch) -> str:
        action = instruction.action if isinstance(instruction, Run) else ""
        return f"{action} {instruction.name}".strip()

    def _line(self, stream: Stream, names: Sequence[str], instruction: Instruction) -> str:
        match instruction:
            case Run():
                donated = {instruction.inputs[i] for i in instruction.donated}
                taken = _joined([names[s] + ("!" if s in donated else "") for s in instruction.inputs])
                slice_, made = self._plan.meshes[instruction.mesh].slice, self._made(stream.island, instruction.outputs)
                return f"{slice_}: {self._name(instruction)}: {taken} -> {made}{_at(instruction)}"
            case Branch():
                bodies = ", ".join(self._plan.bodies[b].name for b in instruction.bodies)
                taken = _joined([names[s] for s in instruction.inputs])
                made = self._made(stream.island, instruction.outputs)
                return f"{instruction.kind} {instruction.name} of {bodies}: {taken} -> {made}{_at(instruction)}"
            case Send():
                there = self._slice(*self._received[stream.island, instruction.channel])
                return f"send {names[instruction.slot]} to {there}"
            case Recv():
                return f"recv {names[instruction.slot]} -> {self._made(stream.island, (instruction.slot,))}"
            case Copy():
                return f"copy {names[instruction.source]} -> {self._made(stream.island, (instruction.target,))}"
            case Free():
                return f"free {_joined([names[s] for s in instruction.slots])}"

    def _made(self, island: str, slots: Sequence[int]) -> str:
        """Describes the types and places of results. Equal ones in a row are counted."""
        shown = self._shown[island]
        counted = [
            (len(list(equal)), shown[kind]) for kind, equal in groupby(map(self._kinds[island].__getitem__, slots))
        ]
        return ", ".join(kind if count == 1 else f"{count} x {kind}" for count, kind in counted) or "nothing"

    def _show(self, kind: BufferKind) -> str:
        return f"{kind.type} {self._plan.meshes[kind.layout.mesh].slice}{self._plan.sharding(kind.layout)}"

    def _slice(self, island: str, slot: int) -> str:
        return self._plan.meshes[self._streams[island].kind_of[slot].layout.mesh].slice


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
