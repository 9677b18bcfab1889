"""Implements the placement policy `spread`, the default. It balances the load over islands, as the first policy of the
Pathways paper does (section 4.1).

Each virtual device becomes one physical device.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pathways.compiler.placement.binding import Binding
from pathways.compiler.placement.problem import FreeDevices, Placement, SliceRequest
from pathways.dialect.topology import Topology

if TYPE_CHECKING:
    import networkx as nx


def spread(graph: "nx.DiGraph[Any]", topology: Topology) -> Placement:
    """Puts each slice, largest first, on the island that is least taken (tie: the first). Raises PWC0301.

    If balance leaves no room for a later slice, each slice goes to the island where it leaves least room instead.
    """
    slices: tuple[SliceRequest, ...] = graph.graph["slices"]
    for tight in (False, True):
        placement = _greedy(slices, topology, tight)
        if placement is not None:
            return placement
    raise FreeDevices(topology, slices).refuse()


def _greedy(slices: Sequence[SliceRequest], topology: Topology, tight: bool) -> Placement | None:
    free = FreeDevices(topology, slices)
    bindings: dict[str, Binding] = {}
    reasons: dict[str, str] = {}
    for request in _order(slices):
        if request.bound is not None:
            bindings[request.symbol], reasons[request.symbol] = request.bound, "bound by an earlier program"
            continue
        near = bindings[request.near].island if request.near else None
        candidates = [
            i
            for i in topology.islands
            if request.fits(i) and free.count(i.name) >= request.devices and near in (None, i.name)
        ]
        if not candidates:
            return None
        chosen = min(candidates, key=lambda i: free.count(i.name)) if tight else min(candidates, key=free.load)
        reasons[request.symbol] = _reason(request, free.load(chosen), len(candidates), tight)
        bindings[request.symbol] = free.take(request, chosen.name)
    return Placement(bindings, reasons)


def _order(slices: Sequence[SliceRequest]) -> list[SliceRequest]:
    """Orders slices: constrained ones first, then large ones, since small ones fit in what is left.

    A slice with `near` follows the slice that it names.
    """
    ranked = sorted(slices, key=lambda r: (r.bound is None, r.pin is None, r.kind is None, -r.devices))
    ordered: dict[str, SliceRequest] = {}
    by_symbol = {r.symbol: r for r in slices}
    for request in ranked:
        chain = [request]
        while (near := chain[-1].near) is not None and near not in ordered:
            chain.append(by_symbol[near])
        for link in reversed(chain):
            ordered[link.symbol] = link
    return list(ordered.values())


def _reason(request: SliceRequest, load: float, candidates: int, tight: bool) -> str:
    if request.pin is not None:
        return f"pinned to {request.pin} by the user"
    if request.near is not None:
        return f"on the island of {request.near}, as the user asked"
    if candidates == 1:
        return "the only island with room for it"
    if tight:
        return f"leaves the least room of {candidates} islands, so that all slices fit"
    return f"least loaded of {candidates} islands ({load:.0%})"
