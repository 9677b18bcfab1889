"""Computes a reshard: which piece of each source shard must be sent to which target device. Hosts compute it when they
load a plan. The compiler and the API use it to count the bytes that move. Pure functions.

The table must not be stored in IR or plans. Their size does not depend on the number of shards (DESIGN: one node a
sharded computation).
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from pathways.dialect.sharding import Box, Shape, Sharding, intersect, volume


@dataclass(frozen=True, slots=True)
class Piece:
    """One region (`box`, in the whole array) that shard `source` sends to shard `target` (positions in the meshes)."""

    source: int
    target: int
    box: Box


@dataclass(frozen=True, slots=True)
class ReshardPlan:
    """The pieces of a reshard, grouped by target. `source_boxes` and `target_boxes`: the region of each position."""

    pieces: tuple[Piece, ...]
    source_boxes: tuple[Box, ...]
    target_boxes: tuple[Box, ...]
    moved: int
    """The number of elements that move to another device."""

    @property
    def is_copy(self) -> bool:
        """Whether every target shard is the whole source shard at the same position."""
        return len(self.source_boxes) == len(self.target_boxes) and self.source_boxes == self.target_boxes


def plan_reshard(
    shape: Shape, source: Sharding, target: Sharding, source_ids: Sequence[int], target_ids: Sequence[int]
) -> ReshardPlan:
    """Plans the moves between shards: each target shard receives every region that it lacks once, from one holder.

    `source_ids` and `target_ids` are the devices at each position. A region that is already on the target's device is
    taken from there. Otherwise the holder that has sent the fewest elements so far sends it.
    """
    source_boxes = tuple(source.boxes(shape))
    target_boxes = tuple(target.boxes(shape))
    holders: dict[Box, list[tuple[int, int]]] = {}
    """For each box, a heap of (elements sent so far, position) of its holders."""
    sources: dict[tuple[Box, int], int] = {}
    for position, box in enumerate(source_boxes):
        holders.setdefault(box, []).append((0, position))
        sources.setdefault((box, source_ids[position]), position)
    grid = source.shard_shape(shape)
    pieces: list[Piece] = []
    moved = 0
    for position, wanted in enumerate(target_boxes):
        for box in _touching(wanted, grid):
            common = intersect(box, wanted)
            if common is None:
                continue
            chosen = sources.get((box, target_ids[position]))
            if chosen is None:
                sent, chosen = holders[box][0]
                heapq.heapreplace(holders[box], (sent + volume(common), chosen))
                moved += volume(common)
            pieces.append(Piece(chosen, position, common))
    return ReshardPlan(tuple(pieces), source_boxes, target_boxes, moved)


def max_pieces(shape: Shape, source: Sharding, target: Sharding) -> int:
    """Returns an upper bound of the pieces of `plan_reshard` plus the shards that it visits, without listing any."""
    touched = 1
    for length, here, there in zip(shape, source.shard_shape(shape), target.shard_shape(shape), strict=True):
        if not here:
            return source.mesh.size + target.mesh.size
        even = there % here == 0 or here % there == 0
        touched *= min(-(-there // here) + (0 if even else 1), length // here)
    return source.mesh.size + target.mesh.size * (1 + touched)


def _touching(wanted: Box, grid: Shape) -> Iterator[Box]:
    """Yields the boxes of a regular grid that `wanted` overlaps, without visiting the others."""
    if 0 in grid:
        return
    ranges = (range(start // n, -(-stop // n)) for (start, stop), n in zip(wanted, grid, strict=True))
    for at in product(*ranges):
        yield tuple((i * n, (i + 1) * n) for i, n in zip(at, grid, strict=True))
