"""Describes the hosts of an island that has more than one: their names, the devices of each, and the pieces of an array
that two of them exchange. Controller, hosts and clients call it. Pure functions.

The devices of an island are split evenly among its hosts, in order. Each host is a *rank* of the island. A single host
has the name of its island. If `pod` has several hosts, rank 1 is the host `pod/1`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pathways.dialect.reshard import Piece
from pathways.dialect.topology import Topology


@dataclass(frozen=True)
class RankTable:
    """The number of hosts of each island; an island that is not listed has one."""

    hosts: Mapping[str, int] = field(default_factory=dict[str, int])

    def count(self, island: str) -> int:
        return self.hosts.get(island, 1)

    def are_several(self, island: str) -> bool:
        return self.count(island) > 1

    def names(self, island: str) -> tuple[str, ...]:
        """Lists the host names of an island, by rank."""
        count = self.count(island)
        return (island,) if count == 1 else tuple(f"{island}/{rank}" for rank in range(count))

    def of_devices(self, island: str, size: int, positions: Sequence[int]) -> tuple[int, ...]:
        """Returns the rank that owns each of the given devices; `size` is the number of devices of the island."""
        each = size // self.count(island)
        return tuple(position // each for position in positions)

    @property
    def pairs(self) -> int:
        """The count of numbers reserved for one value between islands: one for each pair of sender and receiver."""
        max_hosts = max(self.hosts.values(), default=1)
        return max_hosts * max_hosts

    def pair(self, edge: int, source: int, target: int) -> int:
        """Returns the unique number of the transfer from rank `source` to rank `target` on an edge between islands."""
        return edge * self.pairs + source * max(self.hosts.values(), default=1) + target


def island_of_host(host: str) -> str:
    """Returns the island of a host by the name of the host."""
    return host.partition("/")[0]


def ranks_in(topology: Topology) -> RankTable:
    """Makes the rank table of a topology."""
    return RankTable({island.name: island.hosts for island in topology.islands if island.hosts > 1})


ONE_EACH = RankTable()
"""The rank table in which each island has one host."""


def pieces_by_pair(
    pieces: Sequence[Piece], sources: Sequence[int], targets: Sequence[int]
) -> dict[tuple[int, int], list[int]]:
    """Groups the pieces of a reshard, by index, by sender and receiver rank. Both ends compute the same order.

    `sources` and `targets` are the ranks that own the source and target shards.
    """
    found: dict[tuple[int, int], list[int]] = {}
    for index, piece in enumerate(pieces):
        found.setdefault((sources[piece.source], targets[piece.target]), []).append(index)
    return found
