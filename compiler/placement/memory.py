"""How much memory each slice needs at least: the peak of its live buffers in program order, from phase `shard` on."""

from dataclasses import dataclass
from typing import cast

from pathways.dialect import pw
from pathways.dialect.mlir import Value
from pathways.dialect.program import Program, array_type
from pathways.dialect.sdy import Placed
from pathways.dialect.values import same_place, value_places

_END = 1 << 60
"""A step after all others."""


@dataclass
class _Span:
    """From which step to which a value takes so many bytes of a device."""

    birth: int
    death: int
    size: int


def slice_memory(program: Program) -> dict[str, int]:
    """Bytes a device, by slice; everything is freed or donated as early as it could be, so that this is a lower bound.

    A value used on another slice counts there, as it is taken, from its first to its last use, and at home until it
    has left. Copies that a reshard inside a slice makes are not counted.
    """
    live = _Live(program)
    for number, op in enumerate(program.nodes(), 1):
        live.node(2 * number, op)  # between two steps what comes from elsewhere arrives
    for value in program.returned:
        if (span := live.spans.get((live.origin(value), live.home.get(value, "")))) is not None:
            span.death = _END
    return live.peaks()


class _Live:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.places = value_places(program)
        self.home = {v: program.slice_of(p.mesh) for v, p in self.places.items()}
        self.spans: dict[tuple[Value, str], _Span] = {}
        self.constants: set[Value] = set()
        """They are put where they are used, when the plan is loaded, and stay."""
        self._same: dict[Value, Value] = {}
        for value, argument in zip(program.block.arguments, program.arguments, strict=True):
            if argument.is_constant:
                self.constants.add(value)
            elif value in self.places:
                stays = 0 if argument.donate else _END
                self.spans[value, self.home[value]] = _Span(0, stays, self._size(value, self.places[value]))

    def origin(self, value: Value) -> Value:
        """The value itself, before moves that move nothing."""
        return self._same.get(value, value)

    def node(self, step: int, op: "pw.CallOp | pw.TransferOp") -> None:
        here = self.program.slice_of(op.mesh)
        if isinstance(op, pw.TransferOp):
            value, result = op.operands[0], op.results[0]
            if same_place(self.program, value, self.places[value], self.places[result]):
                self._same[result] = self.origin(value)
                return
            if self.home[value] == here:
                self._use(step, value, self.places[value], here)
        else:
            for value, wanted in zip(op.operands, cast("tuple[Placed, ...]", op.in_shardings), strict=True):
                self._use(step, value, wanted, here)
        for result in op.results:
            self.spans[result, here] = _Span(step, step, self._size(result, self.places[result]))

    def _use(self, step: int, value: Value, wanted: Placed, here: str) -> None:
        size = self._size(value, wanted)
        born, dies = (0, _END) if value in self.constants else (step - 1, step)
        span = self.spans.setdefault((self.origin(value), here), _Span(born, dies, size))
        span.death = max(span.death, dies)
        if self.home[value] != here:
            span.size = min(span.size, size)

    def _size(self, value: Value, placed: Placed) -> int:
        type_ = array_type(value)
        return type_.shard_bytes(self.program.sharding(placed).shard_shape(type_.shape))

    def peaks(self) -> dict[str, int]:
        changes: dict[str, dict[int, int]] = {}
        for (_, slice_), span in self.spans.items():
            at = changes.setdefault(slice_, {})
            at[span.birth] = at.get(span.birth, 0) + span.size
            # What dies at a step may give its memory to what is born there.
            end = max(span.death, span.birth + 1)
            at[end] = at.get(end, 0) - span.size
        found: dict[str, int] = {}
        for slice_, at in changes.items():
            live = peak = 0
            for step in sorted(at):
                live += at[step]
                peak = max(peak, live)
            found[slice_] = peak
        return found
