"""Defines what a placement policy receives and returns: a graph of calls with flops and bytes, and the devices chosen
for each slice. The pass `place` builds the graph and checks the answer.

The graph is a `networkx.DiGraph` of calls in program order. Each node has `slice` (a symbol), `name`, `flops` (over all
its `devices`) and `bytes` (of its results). It also has `gathered` (made of loose operations) and `where` (the user's
line). Each edge has `bytes`. `graph.graph["slices"]` holds the `SliceRequest`s in program order.
`graph.graph["traffic"]` holds the bytes from slice to slice in a run. The answer binds each slice to an island and to
devices of it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from pathways.compiler.computations.flops import flops_of
from pathways.compiler.errors import BadPlacement, SliceTooLarge
from pathways.compiler.placement.binding import Binding
from pathways.compiler.placement.calls import PlacedCall, ValueSource, placed_calls
from pathways.compiler.placement.memory import slice_memory
from pathways.dialect.diagnostics import Diagnostic, PathwaysError, Where
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.records import shown_name
from pathways.dialect.late_imports import import_late
from pathways.dialect.mlir import where_of
from pathways.dialect.topology import Island, Topology

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True)
class SliceRequest:
    """A slice to bind. `bound` is a binding that already holds and must be kept.

    `memory` is the minimum bytes a device, before and after a run (memory.py).
    """

    symbol: str
    devices: int
    kind: str | None = None
    pin: str | None = None
    near: str | None = None
    bound: Binding | None = None
    where: Where | None = None
    memory: int = 0

    def fits(self, island: Island) -> bool:
        """Whether kind, pin and memory allow the island, regardless of its free devices."""
        allowed = self.kind in (None, island.kind) and self.pin in (None, island.name)
        return allowed and (island.memory is None or self.memory <= island.memory)


@dataclass(frozen=True)
class Placement:
    """The island and devices of each slice, and a readable reason.

    `reproducible` is False if the answer depends on the speed of the machine.
    """

    bindings: dict[str, Binding]
    reasons: dict[str, str]
    reproducible: bool = True


def build_graph(program: ProgramIR, bound: dict[str, Binding]) -> "nx.DiGraph[Any]":
    """Builds the graph of calls of a program, which policies receive."""
    graph: nx.DiGraph[Any] = import_late("networkx").DiGraph()  # imported late: it takes 0.1 s
    graph.graph["slices"] = requests(program, bound)
    calls = list(placed_calls(program))
    graph.graph["traffic"] = _slice_traffic(program, calls)
    work: dict[str, float] = {}
    for call in calls:
        node, flow = call.node, call.function.flow
        if node.callee and node.callee not in work:
            work[node.callee] = flops_of(call.function.computations[node.callee])
        graph.add_node(
            call.number,
            name=shown_name(node.op),
            slice=program.slice_of(node.mesh),
            devices=program.mesh(node.mesh).size,
            bytes=sum(flow.sizes[node.results.start : node.results.stop]),
            flops=work.get(node.callee, 0.0),
            gathered=not node.callee or bool(node.op.gathered),
            where=where_of(node.op),
        )
        moved: defaultdict[int, int] = defaultdict(int)
        for maker, _, _, size in chain.from_iterable(call.sources):
            moved[maker] += size
        moved.pop(-1, None)
        graph.add_edges_from((maker, call.number, {"bytes": size}) for maker, size in moved.items())
    return graph


def _slice_traffic(program: ProgramIR, calls: Iterable[PlacedCall]) -> dict[tuple[str, str], int]:
    """Returns the bytes from slice to slice in a run: a value once for each slice that takes it, no constants."""
    traffic: dict[tuple[str, str], int] = {}
    arrived: set[tuple[ValueSource, str]] = set()
    for call in calls:
        here = program.slice_of(call.node.mesh)
        for source in chain.from_iterable(call.sources):
            home = source[2]
            if home and home != here and (source, here) not in arrived:
                arrived.add((source, here))
                traffic[home, here] = traffic.get((home, here), 0) + source[3]
    return traffic


def requests(program: ProgramIR, bound: dict[str, Binding]) -> tuple[SliceRequest, ...]:
    memory = slice_memory(program)
    return tuple(
        SliceRequest(
            symbol,
            op.devices,
            kind=op.kind,
            pin=op.pin,
            near=op.near,
            bound=bound.get(symbol),
            where=where_of(op.operation),
            memory=memory.get(symbol, 0),
        )
        for symbol, op in program.slices.items()
    )


class FreeDevices:
    """The devices of each island that are still free while a policy runs."""

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
        """Takes free devices on the fullest host that has room for all; without such a host, the first free ones."""
        free = self._free[island]
        per_host = self.topology.island(island).devices
        hosts: dict[int, list[int]] = {}
        for device in free:
            hosts.setdefault(device // per_host, []).append(device)
        fitting = [h for h in hosts.values() if len(h) >= request.devices]
        taken = (min(fitting, key=len) if fitting else free)[: request.devices]
        self._free[island] = [d for d in free if d not in taken]
        return Binding(island, tuple(taken))

    def refuse(self, how: str = "") -> PathwaysError:
        """Returns the capacity error with the needs of all slices. `how` states an additional demand."""
        stated = any(i.memory is not None for i in self.topology.islands)
        needs = ", ".join(
            f"{r.symbol}: {r.devices} devices"
            + (f" of kind {r.kind}" if r.kind else "")
            + (f" on {r.pin}" if r.pin else "")
            + (f" with at least {r.memory:,} bytes each" if stated and r.memory else "")
            for r in self._slices
        )
        total = sum(r.devices for r in self._slices)
        where = next((r.where for r in self._slices if r.where is not None), None)
        needs += f"; {total} in all, each slice on one island, no device twice"
        needs += f"; {how}" if how else ""
        return PathwaysError(SliceTooLarge(topology=f"{self.topology}", needs=needs, where=where))


def check_placement(policy: str, placement: Placement, slices: Iterable[SliceRequest], topology: Topology) -> None:
    """Raises PWC0305 for an illegal answer: every broken rule, with the policy, the decision and the user's line."""
    requested = tuple(slices)
    taken: dict[tuple[str, int], str] = {}
    broken: list[Diagnostic] = []
    for number, request in enumerate(requested, 1):
        for have, rule in _broken(request, placement, topology, taken):
            decision = f"{have} (slice {number} of {len(requested)})"
            broken.append(BadPlacement(policy=policy, have_=decision, rule=rule, where=request.where))
    if broken:
        raise PathwaysError(*broken)


def _broken(
    request: SliceRequest, placement: Placement, topology: Topology, taken: dict[tuple[str, int], str]
) -> Iterator[tuple[str, str]]:
    """Yields each fault of the binding of one slice, and the rule. `taken` are the devices of earlier slices."""
    binding = placement.bindings.get(request.symbol)
    if binding is None:
        yield f"no binding for {request.symbol}", "a binding for every slice"
        return
    if binding.island not in topology.names:
        yield f"{request.symbol} on {binding.island}", f"an island of {', '.join(topology.names)}"
        return
    island = topology.island(binding.island)
    if len(binding.devices) != request.devices or len(set(binding.devices)) != request.devices:
        yield f"{request.symbol} on devices {binding.devices}", f"{request.devices} different devices"
    if any(not 0 <= d < island.size for d in binding.devices):
        yield f"{request.symbol} on devices {binding.devices}", f"devices 0 to {island.size - 1}"
    if request.kind not in (None, island.kind):
        yield f"{request.symbol} on {island.name} ({island.kind})", f"devices of kind {request.kind}"
    if request.pin not in (None, island.name):
        yield f"{request.symbol} on {island.name}", f"the island it is pinned to: {request.pin}"
    if request.bound is not None and binding != request.bound:
        yield f"{request.symbol} on {binding}", f"{request.bound}, where an earlier program bound it"
    near = placement.bindings.get(request.near) if request.near else None
    if near is not None and near.island != binding.island:
        yield f"{request.symbol} on {binding.island}", f"the island of {request.near}: {near.island}"
    for device in binding.devices:
        other = taken.setdefault((binding.island, device), request.symbol)
        if other != request.symbol:
            yield f"{other} and {request.symbol} on device {device} of {binding.island}", "disjoint devices"
