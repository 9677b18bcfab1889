"""Which piece of which source shard goes to which target device: a pure function of two shardings.

No table is stored in IR or plan: their size does not depend on the number of shards (DESIGN: one node a sharded
computation). The table is made at load and by `pwc inspect`.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from pathways.dialect.sharding import Box, Shape, Sharding, intersect, volume


@dataclass(frozen=True, slots=True)
class Piece:
    """`box` (of the whole array) goes from source shard `source` to target shard `target` (positions in the meshes)."""

    source: int
    target: int
    box: Box


@dataclass(frozen=True, slots=True)
class ReshardPlan:
    """All pieces, grouped by target; `source_boxes` and `target_boxes` are the parts that each position holds."""

    pieces: tuple[Piece, ...]
    source_boxes: tuple[Box, ...]
    target_boxes: tuple[Box, ...]
    moved: int
    """Counts the elements that change device."""

    @property
    def is_copy(self) -> bool:
        """Returns whether every target shard is one whole source shard, position by position."""
        return len(self.source_boxes) == len(self.target_boxes) and self.source_boxes == self.target_boxes


def plan_reshard(
    shape: Shape, source: Sharding, target: Sharding, source_ids: Sequence[int], target_ids: Sequence[int]
) -> ReshardPlan:
    """Plans the cheapest moves between shards: every target shard gets each part that it lacks once, from one holder.

    `source_ids` and `target_ids` are the devices at each position, so that a part which already lies on the target's
    device is taken from there. Among other holders of a replicated part, the one that has sent least is taken.
    """
    source_boxes = tuple(source.boxes(shape))
    target_boxes = tuple(target.boxes(shape))
    holders: dict[Box, list[tuple[int, int]]] = {}
    """For each box a heap of (elements sent so far, position)."""
    lies: dict[tuple[Box, int], int] = {}
    for position, box in enumerate(source_boxes):
        holders.setdefault(box, []).append((0, position))
        lies.setdefault((box, source_ids[position]), position)
    grid = source.shard_shape(shape)
    pieces: list[Piece] = []
    moved = 0
    for position, wanted in enumerate(target_boxes):
        for box in _touching(wanted, grid):
            common = intersect(box, wanted)
            if common is None:
                continue
            chosen = lies.get((box, target_ids[position]))
            if chosen is None:
                sent, chosen = holders[box][0]
                heapq.heapreplace(holders[box], (sent + volume(common), chosen))
                moved += volume(common)
            pieces.append(Piece(chosen, position, common))
    return ReshardPlan(tuple(pieces), source_boxes, target_boxes, moved)


def most_pieces(shape: Shape, source: Sharding, target: Sharding) -> int:
    """Bounds the number of pieces that `plan_reshard` finds, plus the shards it looks at, without listing any."""
    touched = 1
    for length, here, there in zip(shape, source.shard_shape(shape), target.shard_shape(shape), strict=True):
        if not here:
            return source.mesh.size + target.mesh.size
        even = there % here == 0 or here % there == 0
        touched *= min(-(-there // here) + (0 if even else 1), length // here)
    return source.mesh.size + target.mesh.size * (1 + touched)


def _touching(wanted: Box, grid: Shape) -> Iterator[Box]:
    """Finds the boxes of a regular grid that `wanted` touches, without looking at the others."""
    if 0 in grid:
        return
    ranges = (range(start // n, -(-stop // n)) for (start, stop), n in zip(wanted, grid, strict=True))
    for at in product(*ranges):
        yield tuple((i * n, (i + 1) * n) for i, n in zip(at, grid, strict=True))
