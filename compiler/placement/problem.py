"""What a placement policy is given, and what it answers.

The graph is a `networkx.DiGraph` of calls: each node has `slice` (a symbol), `name` and `bytes` (of its results); each
edge has `bytes`. `graph.graph["slices"]` holds the `SliceRequest`s in program order. The answer binds each slice to
an island and to devices of it, and is checked: see `check`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import networkx as nx

from pathways.compiler.errors import BadPlacement, SliceTooLarge
from pathways.compiler.passes.base import Binding
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.dtypes import from_mlir
from pathways.dialect.mlir import Value, name_of, where_of
from pathways.dialect.program import Program
from pathways.dialect.topology import Island, Topology


@dataclass(frozen=True)
class SliceRequest:
    """A slice to bind. `bound` is a binding that already holds and must be kept."""

    symbol: str
    devices: int
    kind: str | None = None
    pin: str | None = None
    near: str | None = None
    bound: Binding | None = None
    where: Where | None = None

    def fits(self, island: Island) -> bool:
        return self.kind in (None, island.kind) and (self.pin in (None, island.name))


@dataclass(frozen=True)
class Placement:
    """Slice -> island and devices, each with the reason a person can read."""

    bindings: dict[str, Binding]
    reasons: dict[str, str]


def build_graph(program: Program, bound: dict[str, Binding]) -> "nx.DiGraph[Any]":
    """The graph of calls of a program, as policies see it."""
    graph: nx.DiGraph[Any] = nx.DiGraph()
    graph.graph["slices"] = requests(program, bound)
    makers: dict[Value, int] = {}
    for number, op in enumerate(program.nodes()):
        size = sum(from_mlir(r.type).bytes for r in op.results)
        graph.add_node(number, name=name_of(op.operation), slice=program.slice_of(op.mesh), bytes=size)
        for value in op.operands:
            if value in makers:
                moved = from_mlir(value.type).bytes
                seen: int = graph.get_edge_data(makers[value], number, {"bytes": 0})["bytes"]
                graph.add_edge(makers[value], number, bytes=seen + moved)
        makers.update((r, number) for r in op.results)
    return graph


def requests(program: Program, bound: dict[str, Binding]) -> tuple[SliceRequest, ...]:
    return tuple(
        SliceRequest(
            symbol,
            op.devices,
            kind=op.kind,
            pin=op.pin,
            near=op.near,
            bound=bound.get(symbol),
            where=where_of(op.operation),
        )
        for symbol, op in program.slices.items()
    )


class Free:
    """Which devices of each island are still free while a policy runs."""

    def __init__(self, topology: Topology, slices: Iterable[SliceRequest]) -> None:
        self.topology = topology
        self._free = {i.name: list(range(i.size)) for i in topology.islands}
        self._slices = tuple(slices)
        for request in self._slices:
            if request.bound is not None and request.bound.island in self._free:
                free = self._free[request.bound.island]
                self._free[request.bound.island] = [d for d in free if d not in request.bound.devices]

    def count(self, island: str) -> int:
        return len(self._free[island])

    def load(self, island: Island) -> float:
        return 1 - self.count(island.name) / island.size

    def take(self, request: SliceRequest, island: str) -> Binding:
        taken = tuple(self._free[island][: request.devices])
        self._free[island] = self._free[island][request.devices :]
        return Binding(island, taken)

    def refuse(self) -> PathwaysError:
        """The capacity error, with the arithmetic of all slices."""
        needs = ", ".join(
            f"{r.symbol}: {r.devices} devices"
            + (f" of kind {r.kind}" if r.kind else "")
            + (f" on {r.pin}" if r.pin else "")
            for r in self._slices
        )
        total = sum(r.devices for r in self._slices)
        where = next((r.where for r in self._slices if r.where is not None), None)
        needs += f"; {total} in all, each slice on one island, no device twice"
        return PathwaysError(SliceTooLarge(topology=f"{self.topology}", needs=needs, where=where))


def check(policy: str, placement: Placement, slices: Iterable[SliceRequest], topology: Topology) -> None:
    """Refuses an illegal answer with PWC0305, naming the policy, the decision and the rule."""

    def refuse(have: str, rule: str) -> PathwaysError:
        return PathwaysError(BadPlacement(policy=policy, have_=have, rule=rule))

    taken: dict[tuple[str, int], str] = {}
    for request in slices:
        binding = placement.bindings.get(request.symbol)
        if binding is None:
            raise refuse(f"no binding for {request.symbol}", "a binding for every slice")
        if binding.island not in topology.names:
            raise refuse(f"{request.symbol} on {binding.island}", f"an island of {', '.join(topology.names)}")
        island = topology.island(binding.island)
        if len(binding.devices) != request.devices or len(set(binding.devices)) != request.devices:
            raise refuse(f"{request.symbol} on devices {binding.devices}", f"{request.devices} different devices")
        if any(not 0 <= d < island.size for d in binding.devices):
            raise refuse(f"{request.symbol} on devices {binding.devices}", f"devices 0 to {island.size - 1}")
        if not request.fits(island):
            raise refuse(
                f"{request.symbol} on {island.name} ({island.kind})", f"kind {request.kind}, pin {request.pin}"
            )
        if request.bound is not None and binding != request.bound:
            raise refuse(f"{request.symbol} on {binding}", f"{request.bound}: the slice is bound already")
        near = placement.bindings.get(request.near) if request.near else None
        if near is not None and near.island != binding.island:
            raise refuse(f"{request.symbol} on {binding.island}", f"the island of {request.near}: {near.island}")
        for device in binding.devices:
            other = taken.setdefault((binding.island, device), request.symbol)
            if other != request.symbol:
                raise refuse(f"{binding.island} device {device} for {other} and {request.symbol}", "disjoint devices")
