"""How much memory each slice needs at least: the peak of its live buffers in program order, from phase `shard` on."""

from dataclasses import dataclass

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.flow import Node
from pathways.dialect.program import Program
from pathways.dialect.sdy import Placed
from pathways.dialect.values import same_place

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
    for node in program.flow.nodes:
        live.node(2 * node.number + 2, node)  # between two steps what comes from elsewhere arrives
    for value in program.flow.returned:
        if (span := live.spans.get((live.origin(value), live.home[value]))) is not None:
            span.death = _END
    return live.peaks()


class _Live:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.flow = program.flow
        self.home = [program.slice_of(p.mesh) if p is not None else "" for p in self.flow.places]
        self.spans: dict[tuple[int, str], _Span] = {}
        self.constants: set[int] = set()
        """They are put where they are used, when the plan is loaded, and stay."""
        self._same: dict[int, int] = {}
        self._sizes: dict[tuple[ArrayType, Placed], int] = {}
        for value, argument in enumerate(program.arguments):
            if argument.is_constant:
                self.constants.add(value)
            elif argument.sharding is not None:
                stays = 0 if argument.donate else _END
                self.spans[value, self.home[value]] = _Span(0, stays, self._size(value, argument.sharding))

    def origin(self, value: int) -> int:
        """The value itself, before moves that move nothing."""
        return self._same.get(value, value)

    def node(self, step: int, node: Node) -> None:
        here = self.program.slice_of(node.mesh)
        if not node.callee:
            (value,), (result,) = node.operands, node.results
            source, target = self.flow.place(value), self.flow.place(result)
            if same_place(self.program, self.flow.types[value], source, target):
                self._same[result] = self.origin(value)
                return
            if self.home[value] == here:
                self._use(step, value, source, here)
        else:
            for value, wanted in zip(node.operands, node.op.in_shardings, strict=True):
                self._use(step, value, wanted, here)
        for result in node.results:
            self.spans[result, here] = _Span(step, step, self._size(result, self.flow.place(result)))

    def _use(self, step: int, value: int, wanted: Placed, here: str) -> None:
        key = self.origin(value), here
        span = self.spans.get(key)
        if span is not None and self.home[value] == here:
            span.death = max(span.death, step)
            return
        size = self._size(value, wanted)
        born, dies = (0, _END) if value in self.constants else (step - 1, step)
        if span is None:
            span = self.spans[key] = _Span(born, dies, size)
        span.death = max(span.death, dies)
        if self.home[value] != here:
            span.size = min(span.size, size)

    def _size(self, value: int, placed: Placed) -> int:
        key = self.flow.types[value], placed
        if key not in self._sizes:
            self._sizes[key] = key[0].shard_bytes(self.program.sharding(placed).shard_shape(key[0].shape))
        return self._sizes[key]

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
