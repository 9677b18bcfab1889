"""Puts the calls, moves and computations of a traced program in order. The user's calls keep the order of the program.
Computations between them go where they need the least memory. `emit.py` calls it.

A group that depends on placed calls runs as soon as its last input is available: a gradient is added when it appears. A
group that depends only on arguments runs just before its first consumer: a microbatch is sliced when it is needed.
"""

import heapq

from pathways.compiler.frontends.jax.graph import GraphNode, TracedGraph, TracedValue
from pathways.compiler.frontends.jax.groups import Group, Unit
from pathways.dialect.diagnostics import InternalError


def order(graph: TracedGraph, units: list[Unit]) -> list[Unit]:
    """Returns a topological order of the units, as close as possible to the order of the program."""
    position: dict[GraphNode, int] = {node: i for i, node in enumerate(graph.nodes)}
    maker: dict[TracedValue, Unit] = {v: u for u in units for v in u.outputs}
    consumers: dict[Unit, list[Unit]] = {u: [] for u in units}
    waiting: dict[Unit, int] = {}
    wanted: dict[Unit, float] = {}
    for unit in units:
        found = dict.fromkeys(map(maker.get, unit.inputs))
        producers = [producer for producer in found if producer is not None]
        waiting[unit] = len(producers)
        for producer in producers:
            consumers[producer].append(unit)
        wanted[unit] = _wish(unit, position, producers)
    for unit in sorted(units, key=wanted.__getitem__, reverse=True):
        if isinstance(unit, Group) and not unit.depends and consumers[unit]:
            wanted[unit] = min(wanted[c] for c in consumers[unit]) - 0.25
    numbers = {u: i for i, u in enumerate(units)}
    ready = [(wanted[u], numbers[u], u) for u in units if not waiting[u]]
    heapq.heapify(ready)
    ordered: list[Unit] = []
    while ready:
        _, _, unit = heapq.heappop(ready)
        ordered.append(unit)
        for consumer in consumers[unit]:
            waiting[consumer] -= 1
            if not waiting[consumer]:
                heapq.heappush(ready, (wanted[consumer], numbers[consumer], consumer))
    if len(ordered) != len(units):
        raise InternalError("gathering made a cycle")
    return ordered


def _wish(unit: Unit, position: dict[GraphNode, int], producers: list[Unit]) -> float:
    if not isinstance(unit, Group):
        return position[unit]
    if not unit.depends:
        return unit.span[0]
    return max((p.span[1] if isinstance(p, Group) else position[p] for p in producers), default=0) + 0.5
