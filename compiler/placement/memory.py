"""How much memory each slice needs at least: the peak of its live buffers in program order, from phase `shard` on."""

import math

from pathways.dialect.mlir import Value
from pathways.dialect.program import Program, array_type
from pathways.dialect.sdy import Placed
from pathways.dialect.values import value_places


def slice_memory(program: Program) -> dict[str, int]:
    """Bytes a device, by slice; everything is freed or donated as early as it could be, so that this is a lower bound.

    A value used on another slice counts there from its first to its last use.
    """
    places = value_places(program)
    spans: dict[tuple[Value, str], tuple[int, int]] = {}
    home = {v: program.slice_of(p.mesh) for v, p in places.items()}
    for value, argument in zip(program.block.arguments, program.arguments, strict=True):
        if value in places:
            stays = 0 if argument.donate else _END
            spans[value, home[value]] = (0, stays)
    for step, op in enumerate(program.nodes(), 1):
        here = program.slice_of(op.mesh)
        for value in op.operands:
            for slice_ in (here, home[value]):
                birth, death = spans.get((value, slice_), (step, step))
                spans[value, slice_] = (birth, max(death, step))
        spans.update(((r, here), (step, step)) for r in op.results)
    for value in program.returned:
        if value in home:
            spans[value, home[value]] = (spans[value, home[value]][0], _END)
    return _peaks(program, spans, places)


_END = 1 << 60
"""A step after all others."""


def _peaks(
    program: Program, spans: dict[tuple[Value, str], tuple[int, int]], places: dict[Value, Placed]
) -> dict[str, int]:
    changes: dict[str, dict[int, int]] = {}
    for (value, slice_), (birth, death) in spans.items():
        size = _bytes(program, value, places[value])
        at = changes.setdefault(slice_, {})
        at[birth] = at.get(birth, 0) + size
        # What dies at a step may give its memory to what is born there.
        at[max(death, birth + 1)] = at.get(max(death, birth + 1), 0) - size
    peaks: dict[str, int] = {}
    for slice_, at in changes.items():
        live = peak = 0
        for step in sorted(at):
            live += at[step]
            peak = max(peak, live)
        peaks[slice_] = peak
    return peaks


def _bytes(program: Program, value: Value, placed: Placed) -> int:
    type_ = array_type(value)
    return math.prod(program.sharding(placed).shard_shape(type_.shape)) * type_.shard_bytes(())
