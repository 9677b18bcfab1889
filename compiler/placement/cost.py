"""Estimates the time of one run for a given placement, from flops and bytes. All placement policies share it. The
estimate is a lower bound, simple enough for a linear program.

`seconds` is the largest of three bounds. They are the critical path of calls and transfers; the work of the busiest
slice, whose devices do one thing at a time; and the traffic of the busiest island's link to the others. `cost` adds a
thousandth of all traffic between islands: of two equally fast placements, the one with less traffic wins.

Seconds are those of `compiler/machines.py`, as in a simulation. Left out are latencies, the time of hosts and of the
controller, and what later passes reduce: the overhead of calls, and the traffic of device memory. Figures that a
topology does not state are assumed, and the summary says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pathways.compiler.machines import Machines
from pathways.compiler.placement.problem import SliceRequest
from pathways.dialect.late_imports import import_late
from pathways.dialect.topology import Island, Topology

if TYPE_CHECKING:
    import networkx as nx

DCN_TIEBREAK_WEIGHT = 1e-3
"""Cost of a second of traffic between islands, relative to a second of run time."""


@dataclass(frozen=True)
class Estimate:
    """The estimated seconds of one run of a placed program. `dcn_bytes` cross between islands."""

    critical_path: float
    busiest_slice: float
    busiest_link: float
    dcn_bytes: int
    dcn_seconds: float

    @property
    def seconds(self) -> float:
        return max(self.critical_path, self.busiest_slice, self.busiest_link)

    @property
    def cost(self) -> float:
        return self.seconds + DCN_TIEBREAK_WEIGHT * self.dcn_seconds


class CostModel:
    """The costs of a graph on a topology. Slices are identified by symbol, calls by their number in program order."""

    def __init__(self, graph: "nx.DiGraph[Any]", topology: Topology) -> None:
        self.topology = topology
        self.machines = Machines(topology)
        self.slices: tuple[SliceRequest, ...] = graph.graph["slices"]
        self.devices = {r.symbol: r.devices for r in self.slices}
        self.calls: list[tuple[str, float]] = []
        """Slice and flops on one device of each call, in topological order."""
        self.operands: list[list[tuple[int, int]]] = []
        """For each call, the calls whose results it takes, and the number of bytes."""
        numbers: dict[Any, int] = {}
        # Numbers in program order are already the order that the sort would find.
        are_in_order = all(before < after for before, after in graph.edges)
        for node in sorted(graph) if are_in_order else import_late("networkx").lexicographical_topological_sort(graph):
            here = graph.nodes[node]
            share = float(here.get("flops", 0.0)) / here.get("devices", self.devices[here["slice"]])
            self.operands.append([(numbers[p], edge["bytes"]) for p, edge in graph.pred[node].items()])
            numbers[node] = len(self.calls)
            self.calls.append((here["slice"], share))
        self.traffic = traffic_of(graph)
        self._fastest = max(topology.islands, key=lambda i: i.ici_gbps)

    @cached_property
    def work(self) -> dict[str, float]:
        """Flops of each slice in one run, on one of its devices."""
        work = dict.fromkeys(self.devices, 0.0)
        for symbol, flops in self.calls:
            work[symbol] += flops
        return work

    def rate(self, island: Island) -> float:
        """Returns the flop/s that a device of an island reaches."""
        return self.machines.rate(island)

    def inside(self, there: str, size: int, island: Island | None = None) -> float:
        """Returns the seconds to move bytes to a slice of the same island; without it, those on the fastest island."""
        return self.machines.inside(island or self._fastest, size, self.devices[there])

    def between(self, size: int) -> float:
        """Returns the seconds to move bytes between islands."""
        return self.machines.between(size)

    def estimate(self, where: Mapping[str, str]) -> Estimate:
        """Estimates a run with each slice on the island that `where` gives."""
        islands = {i.name: i for i in self.topology.islands}
        rates = {name: self.rate(island) for name, island in islands.items()}
        ends: list[float] = []
        for (symbol, flops), operands in zip(self.calls, self.operands, strict=True):
            start = 0.0
            for producer, size in operands:
                other = self.calls[producer][0]
                arrives = ends[producer]
                if other != symbol:
                    here = where[symbol]
                    same = where[other] == here
                    arrives += self.inside(symbol, size, islands[here]) if same else self.between(size)
                start = max(start, arrives)
            ends.append(start + flops / rates[where[symbol]])
        links = dict.fromkeys(rates, 0.0)
        crossing = 0
        for (a, b), size in self.traffic.items():
            if where[a] != where[b]:
                crossing += size
                for symbol in (a, b):
                    links[where[symbol]] += self.between(size)
        return Estimate(
            critical_path=max(ends, default=0.0),
            busiest_slice=max((w / rates[where[s]] for s, w in self.work.items()), default=0.0),
            busiest_link=max(links.values(), default=0.0),
            dcn_bytes=crossing,
            dcn_seconds=self.between(crossing),
        )


def traffic_of(graph: "nx.DiGraph[Any]") -> dict[tuple[str, str], int]:
    """Returns the bytes from slice to slice in a run. A value that many calls of a slice take counts once."""
    if "traffic" in graph.graph:
        return graph.graph["traffic"]
    traffic: dict[tuple[str, str], int] = {}
    for here, there, edge in graph.edges(data=True):
        a, b = graph.nodes[here]["slice"], graph.nodes[there]["slice"]
        if a != b:
            traffic[a, b] = traffic.get((a, b), 0) + edge["bytes"]
    return traffic
