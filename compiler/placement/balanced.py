"""Implements the placement policy `balanced`, for chains of pipeline stages. Each island gets consecutive stages.
Dynamic programming over the cut positions minimizes the estimated time of a run.

A state is the number of placed slices and the set of islands used. For each state the Pareto front of (path, load,
fill) is kept. `path` is all work and all transfers one after the other. `load` is the busiest slice or link. `fill` is
the used fraction of the fullest island. The shared lower bound compares complete splits; it counts work that overlaps.
Of equal splits, the one that fills islands least wins.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pathways.compiler.placement.cost import CostModel
from pathways.compiler.placement.problem import FreeDevices, Placement, SliceRequest
from pathways.compiler.placement.runner_up import seconds
from pathways.dialect.topology import Island, Topology

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True)
class _Split:
    """A placement of the first slices: after run k, `cuts[k]` slices are placed, and the run is on `islands[k]`."""

    path: float = 0.0
    load: float = 0.0
    fill: float = 0.0
    cuts: tuple[int, ...] = ()
    islands: tuple[str, ...] = ()


@dataclass
class _Front:
    """A Pareto front: no split is at least as bad as another in all three measures."""

    splits: list[_Split] = field(default_factory=list[_Split])

    def add(self, new: _Split) -> None:
        if any(_no_worse(s, new) for s in self.splits):
            return
        self.splits = [s for s in self.splits if not _no_worse(new, s)]
        self.splits.append(new)


def _no_worse(a: _Split, b: _Split) -> bool:
    return a.path <= b.path and a.load <= b.load and a.fill <= b.fill


def balanced(graph: "nx.DiGraph[Any]", topology: Topology) -> Placement:
    """Cuts the slices, in the order of their first calls, into one run an island. Raises PWC0301 if none fits."""
    model = CostModel(graph, topology)
    order = chain_order(model)
    splits = contiguous_splits(order, model)
    if not splits:
        raise FreeDevices(topology, model.slices).refuse("each island takes one run of consecutive slices")
    costs = {s: model.estimate(islands_of_split(s, order)).cost for s in splits}
    best = min(splits, key=lambda s: (float(f"{costs[s]:.9g}"), s.fill, s.cuts))
    where = islands_of_split(best, order)
    free = FreeDevices(topology, model.slices)
    bindings = {r.symbol: r.bound or free.take(r, where[r.symbol]) for r in order}
    reasons: dict[str, str] = {}
    start = 0
    for stop, island in zip(best.cuts, best.islands, strict=True):
        run = order[start:stop]
        for request in run:
            which = run[0].symbol if len(run) == 1 else f"{run[0].symbol} to {run[-1].symbol}"
            reasons[request.symbol] = f"{which} on {island}: {seconds(costs[best])} a run, least of contiguous splits"
        start = stop
    return Placement(bindings, reasons)


def chain_order(model: CostModel) -> list[SliceRequest]:
    """Returns slices in the order of their first calls. Slices without calls come last."""
    first: dict[str, int] = {}
    for number, (symbol, _) in enumerate(model.calls):
        first.setdefault(symbol, number)
    return sorted(model.slices, key=lambda r: first.get(r.symbol, len(model.calls)))


def islands_of_split(split: _Split, order: Sequence[SliceRequest]) -> dict[str, str]:
    where: dict[str, str] = {}
    start = 0
    for stop, island in zip(split.cuts, split.islands, strict=True):
        where.update((r.symbol, island) for r in order[start:stop])
        start = stop
    return where


def contiguous_splits(order: Sequence[SliceRequest], model: CostModel) -> list[_Split]:
    """Returns the Pareto front of complete splits; empty if devices, kinds, memory, pins or bindings allow none."""
    classes = _classes(model, order)
    states: dict[tuple[int, tuple[int, ...]], _Front] = {(0, (0,) * len(classes)): _Front([_Split()])}
    done = _Front()
    for placed in range(len(order) + 1):
        for key in sorted(k for k in states if k[0] == placed):
            front = states.pop(key)
            if placed == len(order):
                for split in front.splits:
                    done.add(split)
                continue
            for number, members in enumerate(classes):
                used = key[1][number]
                if used < len(members):
                    after = (*key[1][:number], used + 1, *key[1][number + 1 :])
                    for stop, step in _runs(order, placed, members[used], model):
                        target = states.setdefault((stop, after), _Front())
                        for split in front.splits:
                            target.add(_extend(split, step, stop, members[used].name))
    return done.splits


def _extend(split: _Split, step: tuple[float, float, float], stop: int, island: str) -> _Split:
    path, load, fill = step
    cuts, islands = (*split.cuts, stop), (*split.islands, island)
    return _Split(split.path + path, max(split.load, load), max(split.fill, fill), cuts, islands)


def _classes(model: CostModel, order: Sequence[SliceRequest]) -> list[list[Island]]:
    """Groups islands that are alike. Within a group only the number of used islands matters."""
    named = {r.pin for r in order} | {r.bound.island for r in order if r.bound}
    groups: dict[Any, list[Island]] = {}
    for island in model.topology.islands:
        alike = (island.size, island.kind, island.memory, model.rate(island))
        groups.setdefault(island.name if island.name in named else alike, []).append(island)
    return list(groups.values())


def _runs(
    order: Sequence[SliceRequest], start: int, island: Island, model: CostModel
) -> list[tuple[int, tuple[float, float, float]]]:
    """Returns every run of slices from `start` that fits the island: its stop, and its (path, load, fill)."""
    found: list[tuple[int, tuple[float, float, float]]] = []
    symbols = [r.symbol for r in order]
    place = {s: i for i, s in enumerate(symbols)}
    near = {r.symbol: r.near for r in order if r.near}
    rate = model.rate(island)
    size, path, load = 0, 0.0, 0.0
    for stop in range(start + 1, len(order) + 1):
        request = order[stop - 1]
        size += request.devices
        bound_elsewhere = request.bound is not None and request.bound.island != island.name
        if size > island.size or not request.fits(island) or bound_elsewhere:
            break
        work = model.work[request.symbol] / rate
        path, load = path + work, max(load, work)
        members = set(symbols[start:stop])
        link = 0.0
        moved = 0.0
        for (a, b), traffic in model.traffic.items():
            if (a in members) != (b in members):
                link += model.between(traffic)
                earlier = b in members if place[a] < start else a in members and place[b] < start
                moved += model.between(traffic) if earlier else 0.0
            elif a in members:
                moved += model.inside(b, traffic)
        if all((s in members) == (n in members) for s, n in near.items() if s in members or n in members):
            found.append((stop, (path + moved, max(load, link), size / island.size)))
    return found
