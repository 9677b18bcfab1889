"""Estimates the best alternative to a placement: for each slice of virtual devices, the best other island. The pass
`place` stores it in the plan, where `pwc why` shows it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pathways.compiler.placement.binding import Binding
from pathways.compiler.placement.cost import CostModel
from pathways.compiler.placement.problem import Placement, SliceRequest
from pathways.dialect.topology import Topology

if TYPE_CHECKING:
    import networkx as nx

LIMIT = 200_000
"""Maximum slices x islands x calls to estimate. Beyond it, estimating takes longer than compiling."""


def runners_up(
    graph: "nx.DiGraph[Any]", topology: Topology, placement: Placement, limit: int | None = LIMIT
) -> dict[str, str]:
    """Returns the runner-up of each slice and its cost. Without `limit` it estimates regardless of the time."""
    model = CostModel(graph, topology)
    where = {s: b.island for s, b in placement.bindings.items()}
    size = len(model.slices) * len(topology.islands) * max(len(model.calls), 1)
    if limit is not None and size > limit:
        return dict.fromkeys(where, f"not estimated for {len(model.calls)} calls; --explain estimates it")
    chosen = model.estimate(where).cost
    found: dict[str, str] = {}
    for request in model.slices:
        if held := _held(request, model):
            found[request.symbol] = f"none: {held}"
            continue
        options = [(model.estimate(changed).cost, what) for changed, what in _changes(request, model, placement)]
        if not options:
            found[request.symbol] = "none: no other island can take it"
            continue
        cost, what = min(options)
        found[request.symbol] = f"{what}: {seconds(cost)} a run{_compared(cost, chosen)}"
    return found


def _held(request: SliceRequest, model: CostModel) -> str:
    """Returns why a slice alone has no alternative; empty if it has one."""
    if request.pin is not None:
        return "the user pinned it"
    if request.bound is not None:
        return "an earlier program of the process bound it"
    together = request.near or next((r.symbol for r in model.slices if r.near == request.symbol), None)
    return "" if together is None else f"the user puts it on the island of {together}"


def _changes(request: SliceRequest, model: CostModel, placement: Placement) -> Iterator[tuple[dict[str, str], str]]:
    """Yields every island that could take the slice instead: in free room, or in exchange for another slice."""
    where = {s: b.island for s, b in placement.bindings.items()}
    here = where[request.symbol]
    free = free_after(model, placement.bindings)
    followers = {r.symbol for r in model.slices if r.near is not None}
    leaders = {r.near for r in model.slices if r.near is not None}
    for island in model.topology.islands:
        if island.name == here or not request.fits(island):
            continue
        if free[island.name] >= request.devices:
            yield where | {request.symbol: island.name}, island.name
            continue
        for other in model.slices:
            fixed = other.pin or other.bound or other.symbol in followers | leaders
            room = free[here] + request.devices >= other.devices
            room = room and free[island.name] + other.devices >= request.devices
            if where[other.symbol] == island.name and not fixed and room and other.fits(model.topology.island(here)):
                swapped = where | {request.symbol: island.name, other.symbol: here}
                yield swapped, f"{island.name}, in exchange for {other.symbol}"


def free_after(model: CostModel, bindings: dict[str, Binding]) -> dict[str, int]:
    """Returns the devices of each island that a placement leaves free."""
    free = {i.name: i.size for i in model.topology.islands}
    for binding in bindings.values():
        free[binding.island] -= len(binding.devices)
    return free


def seconds(value: float) -> str:
    """Formats a time with a readable unit."""
    rounded = float(f"{value:.3g}")  # first, since 999.6 ms are 1 s
    if rounded >= 1000:
        return f"{value:,.0f} s"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if rounded >= scale:
            return f"{rounded / scale:.3g} {unit}"
    return f"{rounded / 1e-9:.3g} ns"


def _compared(cost: float, chosen: float) -> str:
    if chosen <= 0:
        return ""
    change = cost / chosen - 1
    return f" ({change:+.0%})" if abs(change) >= 0.005 else " (the same)"
