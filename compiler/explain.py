"""What decided what: a record of every slice, call, transfer and reshard of a compiled program.

Read off the IR of phase `plan`: slices and transfers carry the reason and the runner-up that their passes wrote; a call
is where its shardings or its data are. Equal decisions at several steps (microbatches) are one record.
"""

from collections.abc import Iterator
from dataclasses import replace

from pathways.dialect import pw
from pathways.dialect.mlir import Value, name_of, where_of
from pathways.dialect.plan import Decision
from pathways.dialect.program import Program, array_type
from pathways.dialect.values import value_places


def explain(program: Program) -> tuple[Decision, ...]:
    """All decisions, slices first, then in program order."""
    merged: dict[Decision, list[int]] = {}
    for decision in (*_slices(program), *_nodes(program)):
        merged.setdefault(replace(decision, steps=()), []).extend(decision.steps)
    return tuple(replace(d, steps=tuple(steps)) for d, steps in merged.items())


def _slices(program: Program) -> Iterator[Decision]:
    for symbol, op in program.slices.items():
        chosen = f"{op.island} {_range(op.device_ids or ())}"
        reason, other = op.reason or "", op.runner_up or ""
        yield Decision("slice", symbol, chosen, reason, other, (), 0, where_of(op.operation))


def _range(devices: tuple[int, ...]) -> str:
    if len(devices) > 2 and devices == tuple(range(devices[0], devices[0] + len(devices))):
        return f"[{devices[0]}..{devices[-1]}]"
    return str(list(devices))


def _nodes(program: Program) -> Iterator[Decision]:
    sources = _Sources(program)
    for op in program.nodes():
        where = where_of(op.operation)
        steps = () if op.step is None else (op.step,)
        if isinstance(op, pw.CallOp):
            slice_ = program.slice_of(op.mesh)
            chosen = f"{slice_} on {op.island}, mesh {program.mesh(op.mesh)}"
            reason, other = sources.call(op)
            yield Decision("call", name_of(op.operation), chosen, reason, other, steps, 0, where)
            continue
        kind = "transfer" if sources.slice_of(op.operands[0]) != program.slice_of(op.mesh) else "reshard"
        chosen = f"{sources.place(op.operands[0])} -> {sources.place(op.results[0])} by {op.route}"
        name = sources.names.get(op.operands[0], "")
        yield Decision(kind, name, chosen, op.reason or "", op.runner_up or "", steps, op.bytes or 0, where)


class _Sources:
    """Where each value was before transfers moved it."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.places = value_places(program)
        self.origin: dict[Value, Value] = {}
        self.names: dict[Value, str] = {}
        for value, argument in zip(program.block.arguments, program.arguments, strict=True):
            self.names[value] = argument.name
        for op in program.nodes():
            for result in op.results:
                self.names[result] = name_of(op.operation)
            if isinstance(op, pw.TransferOp):
                (source,) = op.operands
                self.origin[op.results[0]] = self.origin.get(source, source)
                self.names[op.results[0]] = self.names[source]

    def slice_of(self, value: Value) -> str:
        return self.program.slice_of(self.places[value].mesh)

    def place(self, value: Value) -> str:
        placed = self.places[value]
        return f"{self.program.slice_of(placed.mesh)}{self.program.sharding(placed)}"

    def call(self, call: pw.CallOp) -> tuple[str, str]:
        """What put a call where it is, and where else its operands would have drawn it."""
        here = self.program.slice_of(call.mesh)
        held: dict[str, int] = {}
        for value in call.operands:
            origin = self.origin.get(value, value)
            home = self.slice_of(origin)
            held[home] = held.get(home, 0) + array_type(value).bytes
        drawn = ", ".join(f"{size:,} bytes on {home}" for home, size in held.items()) or "none"
        if not call.gathered:
            reason = f"placed by the user: its own shardings, or a mesh inside, name {here}"
        else:
            reason = f"loose operations follow their data; operands: {drawn}"
        others = {home: size for home, size in held.items() if home != here}
        if not others:
            return reason, "none: no other slice holds an operand"
        total = sum(held.values())
        second = max(others, key=lambda home: others[home])
        moving = f"{total - held[second]:,} bytes in instead of {total - held.get(here, 0):,}"
        return reason, f"{second}: would move {moving}"
