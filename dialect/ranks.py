"""The hosts of an island: their names, which has what device, and what goes between two of them. Pure.

The devices of an island are split evenly among its hosts, in order: the hosts are its *ranks*. An island of one host
gives its name to that; of several, rank 1 of `pod` is the host `pod/1`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pathways.dialect.reshard import Piece
from pathways.dialect.topology import Topology


@dataclass(frozen=True)
class RankTable:
    """How many hosts each island has; one, where nothing is said of it."""

    hosts: Mapping[str, int] = field(default_factory=dict[str, int])

    def count(self, island: str) -> int:
        return self.hosts.get(island, 1)

    def are_several(self, island: str) -> bool:
        return self.count(island) > 1

    def names(self, island: str) -> tuple[str, ...]:
        """The hosts of an island, by rank."""
        count = self.count(island)
        return (island,) if count == 1 else tuple(f"{island}/{rank}" for rank in range(count))

    def of_devices(self, island: str, size: int, positions: Sequence[int]) -> tuple[int, ...]:
        """The rank that has each of these devices of an island, which has so many in all."""
        each = size // self.count(island)
        return tuple(position // each for position in positions)

    @property
    def pairs(self) -> int:
        """The numbers that one value between islands takes: one for each rank that may send and each that may ask."""
        most = max(self.hosts.values(), default=1)
        return most * most

    def pair(self, edge: int, source: int, target: int) -> int:
        """The number of what goes from a rank to another of a value between islands; no two are equal."""
        return edge * self.pairs + source * max(self.hosts.values(), default=1) + target


def ranks_in(topology: Topology) -> RankTable:
    """How many hosts each island of a topology has."""
    return RankTable({island.name: island.hosts for island in topology.islands if island.hosts > 1})


ONE_EACH = RankTable()
"""Each island has one host."""


def pieces_by_pair(
    pieces: Sequence[Piece], sources: Sequence[int], targets: Sequence[int]
) -> dict[tuple[int, int], list[int]]:
    """Which pieces, by index, go from each rank to each other: both find the same, in the same order.

    `sources` and `targets` are the ranks that have the shards of both ends.
    """
    found: dict[tuple[int, int], list[int]] = {}
    for index, piece in enumerate(pieces):
        found.setdefault((sources[piece.source], targets[piece.target]), []).append(index)
    return found
