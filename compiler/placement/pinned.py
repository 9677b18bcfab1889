"""Implements the placement policy `pinned`, which decides nothing itself. The user names an island for every slice, and
the slice gets the first free devices there.
"""

from typing import TYPE_CHECKING, Any

from pathways.compiler.errors import NotPinned
from pathways.compiler.placement.binding import Binding
from pathways.compiler.placement.problem import FreeDevices, Placement, SliceRequest
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.topology import Topology

if TYPE_CHECKING:
    import networkx as nx


def pinned(graph: "nx.DiGraph[Any]", topology: Topology) -> Placement:
    """Binds each slice to its `island=`. Raises PWC0306 for a slice without one, PWC0301 if there is no room."""
    slices: tuple[SliceRequest, ...] = graph.graph["slices"]
    pins = {r.symbol: r.pin or (r.bound.island if r.bound else None) for r in slices}
    for request in slices:
        if pins[request.symbol] is None and request.near is not None:
            pins[request.symbol] = pins[request.near]
    missing = [r for r in slices if pins[r.symbol] is None]
    if missing:
        names = ", ".join(f"{r.symbol} ({r.where})" if r.where else r.symbol for r in missing)
        raise PathwaysError(NotPinned(slices=names, where=missing[0].where))
    free = FreeDevices(topology, slices)
    bindings: dict[str, Binding] = {}
    for request in slices:
        island = pins[request.symbol]
        if request.bound is not None:
            bindings[request.symbol] = request.bound
            continue
        if island not in topology.names or free.count(island) < request.devices:
            raise free.refuse()
        bindings[request.symbol] = free.take(request, island)
    return Placement(bindings, {r.symbol: f"pinned to {pins[r.symbol]} by the user" for r in slices})
