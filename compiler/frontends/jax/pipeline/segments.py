"""What stands before the layers of the first stage, and behind those of the last, as computations of their own.

Middle stages are layers alone, and the end stages differ from them by an embedding, say, and a head. Cut off, what is
left of the end stages is what the middle ones are: one computation for all of them, which is compiled once. Nothing
moves: both parts run on their stage's slice, one behind the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pathways.compiler.frontends.jax.common_parts import LARGE
from pathways.compiler.frontends.jax.pipeline.alike import RangeHashes
from pathways.compiler.frontends.jax.pipeline.spine import Spine


@dataclass(frozen=True)
class Segment:
    """Operations of the spine from `begin` to `end`, on the slice of a stage; `name` is its computation's."""

    stage: int
    begin: int
    end: int
    name: str


def segments_of(spine: Spine, places: Sequence[int]) -> list[Segment]:
    """The segments of a cut at `places`, in order: mostly one a stage. Pure."""
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
    """How many operations the middle stages have, all alike; of two stages, as many as both may have in common.

    0 where they differ, or are so few that an end stage compiles in no time.
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
