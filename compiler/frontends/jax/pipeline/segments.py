"""Separates the layers of the first and the last pipeline stage from their other operations, such as an embedding or a
head. The layers of all stages then share one computation. `assemble.py` calls it.

No data moves: both segments run on their stage's slice, one after the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pathways.compiler.frontends.jax.common_parts import LARGE
from pathways.compiler.frontends.jax.pipeline.alike import RangeHashes
from pathways.compiler.frontends.jax.pipeline.spine import Spine


@dataclass(frozen=True)
class Segment:
    """Operations of the spine from `begin` to `end`, on the slice of a stage; `name` is the name of the computation."""

    stage: int
    begin: int
    end: int
    name: str


def segments_of(spine: Spine, places: Sequence[int]) -> list[Segment]:
    """Returns the segments of a cut at `places`, in order: usually one per stage. Pure."""
    stages = [Segment(k, a, b, f"stage{k}") for k, (a, b) in enumerate(pairwise(places))]
    hashes = RangeHashes(spine.tokens)
    length = _repeated(spine, places, hashes)
    if length == 0:
        return stages
    first, last = stages[0], stages[-1]
    layers = hashes.of(first.end, first.end + length)
    start, stop = first.end - length, last.begin + length
    if stop < last.end and hashes.of(last.begin, stop) == layers:
        stages[-1:] = [replace(last, end=stop), Segment(last.stage, stop, last.end, "behind_layers")]
    if start > 0 and hashes.of(start, first.end) == layers:
        stages[:1] = [Segment(first.stage, 0, start, "before_layers"), replace(first, begin=start)]
    return stages


def _repeated(spine: Spine, places: Sequence[int], hashes: RangeHashes) -> int:
    """Returns the number of operations in each middle stage, or in the longest common part of two stages.

    Returns 0 if the stages differ, or have fewer than `LARGE` equations: an end stage then compiles fast anyway.
    """
    if len(places) < 3:
        return 0
    begin, end = places[1:3]
    if len(places) == 3:
        lengths = range(min(begin, end - begin), 0, -1)
        length = next((n for n in lengths if hashes.of(begin - n, begin) == hashes.of(begin, begin + n)), 0)
    else:
        length = end - begin if len({hashes.of(a, b) for a, b in pairwise(places[1:-1])}) == 1 else 0
    loops = {o.loop for o in spine.operations[begin : begin + length] if o.loop is not None}
    inside = sum(len(loop.eqn.params["jaxpr"].jaxpr.eqns) for loop in loops)
    return length if length + inside >= LARGE else 0
