"""Implements the placement policy `min-cut`: it minimizes the bytes sent between islands, by local search. It respects
memory and keeps the islands about equally full.

Each round takes the best move of a slice to another island, or the best exchange of two slices, until none reduces the
traffic. An island may hold a quarter more than its share of all requested devices, or as many as `spread` gives it.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pathways.compiler.placement.balanced import chain_order, contiguous_splits, islands_of_split
from pathways.compiler.placement.cost import CostModel
from pathways.compiler.placement.problem import FreeDevices, Placement
from pathways.compiler.placement.spread import spread
from pathways.dialect.topology import Topology

if TYPE_CHECKING:
    import networkx as nx

SLACK = 1.25


def min_cut(graph: "nx.DiGraph[Any]", topology: Topology) -> Placement:
    """Keeps slices that exchange most on one island. Raises PWC0301 if the slices do not fit."""
    model = CostModel(graph, topology)
    level = {s: b.island for s, b in spread(graph, topology).bindings.items()}
    search = _Search.of(model, level)
    order = chain_order(model)
    starts = [level, *(islands_of_split(s, order) for s in contiguous_splits(order, model))]
    ends = [search.descend(start) for start in starts if search.legal(start)]
    best = min(ends, key=lambda where: (search.crossing(where), model.estimate(where).cost))
    free = FreeDevices(topology, model.slices)
    bindings = {r.symbol: r.bound or free.take(r, best[r.symbol]) for r in model.slices}
    total = search.crossing(best)
    reasons: dict[str, str] = {}
    for symbol, island in best.items():
        kept = sum(n for pair, n in model.traffic.items() if symbol in pair and best[pair[0]] == best[pair[1]])
        out = sum(n for pair, n in model.traffic.items() if symbol in pair and best[pair[0]] != best[pair[1]])
        reasons[symbol] = f"keeps {kept:,} bytes inside {island}, {out:,} go to other islands; {total:,} in all"
    return Placement(bindings, reasons)


@dataclass(frozen=True)
class _Search:
    model: CostModel
    limits: Mapping[str, int]
    fixed: frozenset[str]

    @staticmethod
    def of(model: CostModel, level: Mapping[str, str]) -> "_Search":
        """Sets the limits of balance. `level` is a balanced placement, which must stay legal."""
        demand = sum(model.devices.values())
        total = model.topology.size
        limits = {i.name: min(i.size, math.ceil(SLACK * demand * i.size / total)) for i in model.topology.islands}
        for island in limits:
            limits[island] = max(limits[island], sum(n for s, n in model.devices.items() if level[s] == island))
        leaders = {r.near for r in model.slices if r.near}
        held = {r.symbol for r in model.slices if r.pin or r.bound or r.near or r.symbol in leaders}
        return _Search(model, limits, frozenset(held))

    def legal(self, where: Mapping[str, str]) -> bool:
        return all(n <= self.limits[i] for i, n in self.used(where).items())

    def used(self, where: Mapping[str, str]) -> dict[str, int]:
        used = dict.fromkeys(self.limits, 0)
        for symbol, island in where.items():
            used[island] += self.model.devices[symbol]
        return used

    def crossing(self, where: Mapping[str, str]) -> int:
        return sum(n for (a, b), n in self.model.traffic.items() if where[a] != where[b])

    def descend(self, where: Mapping[str, str]) -> dict[str, str]:
        """Returns the local optimum that is reached from `where`."""
        current = dict(where)
        crossing = self.crossing(current)
        while True:
            options = [(self.crossing(n), i, n) for i, n in enumerate(self._variants(current))]
            if not options or min(options)[0] >= crossing:
                return current
            crossing, _, current = min(options)

    def _variants(self, where: dict[str, str]) -> Iterator[dict[str, str]]:
        used = self.used(where)
        free = [r for r in self.model.slices if r.symbol not in self.fixed]
        for i, request in enumerate(free):
            here = where[request.symbol]
            for island in self.model.topology.islands:
                room = used[island.name] + request.devices <= self.limits[island.name]
                if island.name != here and room and request.fits(island):
                    yield where | {request.symbol: island.name}
            for other in free[i + 1 :]:
                there = where[other.symbol]
                fits = request.fits(self.model.topology.island(there)) and other.fits(self.model.topology.island(here))
                change = request.devices - other.devices
                room = used[there] + change <= self.limits[there] and used[here] - change <= self.limits[here]
                if here != there and fits and room:
                    yield where | {request.symbol: there, other.symbol: here}
