"""Which piece of which source shard goes to which target device: a pure function of two shardings.

No table is stored in IR or plan: their size does not depend on the number of shards (DESIGN: one node a sharded
computation). The table is made at load and by `pwc inspect`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pathways.dialect.sharding import Box, Shape, Sharding, intersect, volume


@dataclass(frozen=True, slots=True)
class Piece:
    """`box` (of the whole array) goes from source shard `source` to target shard `target` (positions in the meshes)."""

    source: int
    target: int
    box: Box


@dataclass(frozen=True, slots=True)
class ReshardPlan:
    """All pieces, grouped by target; `source_boxes` and `target_boxes` are what each position holds."""

    pieces: tuple[Piece, ...]
    source_boxes: tuple[Box, ...]
    target_boxes: tuple[Box, ...]
    moved: int
    """Elements that change device."""

    @property
    def is_copy(self) -> bool:
        """Whether every target shard is one whole source shard, position by position."""
        return len(self.source_boxes) == len(self.target_boxes) and self.source_boxes == self.target_boxes


def plan_reshard(
    shape: Shape, source: Sharding, target: Sharding, source_ids: Sequence[int], target_ids: Sequence[int]
) -> ReshardPlan:
    """The cheapest shard-to-shard plan: every target shard gets each part that it lacks once, from one holder.

    `source_ids` and `target_ids` are the devices at each position, so that a part which already lies on the target's
    device is taken from there. Among other holders of a replicated part, the one that has sent least is taken.
    """
    source_boxes = tuple(source.boxes(shape))
    target_boxes = tuple(target.boxes(shape))
    holders: dict[Box, list[int]] = {}
    for position, box in enumerate(source_boxes):
        holders.setdefault(box, []).append(position)
    sent: Counter[int] = Counter()
    pieces: list[Piece] = []
    moved = 0
    for position, wanted in enumerate(target_boxes):
        for box, positions in holders.items():
            common = intersect(box, wanted)
            if common is None:
                continue
            here = [p for p in positions if source_ids[p] == target_ids[position]]
            chosen = here[0] if here else min(positions, key=lambda p: (sent[p], p))
            if not here:
                sent[chosen] += volume(common)
                moved += volume(common)
            pieces.append(Piece(chosen, position, common))
    return ReshardPlan(tuple(pieces), source_boxes, target_boxes, moved)
