"""Sorts the operations inside a computation so that equal pipeline stages give equal modules. The sort key is the
operation's origin: the first result of a placed call, move or control flow from which it derives. Parameter names do
not matter. `gather.py` calls it.

A program processes gradients in the order of their names. Blocks 6 to 11 of a model are 10, 11, 6, 7, 8, 9 by name,
while blocks 12 to 17 are in order. The operations on both must still be one computation.
"""

from collections.abc import Sequence
from typing import TypeAlias

from pathways.compiler.frontends.jax.graph import Loose, TracedGraph, TracedValue

Origin: TypeAlias = tuple[int, int]
"""The number of a placed node, and the number of one of its results."""
_BEFORE_ALL: Origin = (-1, 0)
"""The sort key of operations without results, such as printing. They come first on every stage."""


def first_origins(graph: TracedGraph) -> dict[TracedValue, Origin]:
    """Finds, for each value, the first result of a placed node from which it derives.

    Arrays derive from arrays, and from arrays of their own shape if there are any. A clipped gradient thus derives from
    its stage, and not from all gradients whose norm divided it. A value without an origin has a number after all nodes.
    """
    found: dict[TracedValue, Origin] = {}
    nothing = (len(graph.nodes), 0)
    for number, node in enumerate(graph.nodes):
        if not isinstance(node, Loose):
            found.update((v, (number, i)) for i, v in enumerate(node.outputs))
            continue
        for _, taken, made in node.equations():
            shape = made[0].aval.shape if made else ()
            values = [v for v in taken if isinstance(v, TracedValue) and (v.aval.shape or not shape)]
            alike = [v for v in values if v.aval.shape == shape]
            first = min((found.get(v, nothing) for v in alike or values), default=nothing)
            found.update(dict.fromkeys(made, first))
    return found


def in_order_of_origins(members: Sequence[Loose], origins: dict[TracedValue, Origin]) -> list[Loose]:
    """Splits the operations of a group into single equations, and sorts them by origin. The sort is stable."""
    single_nodes = [one for m in members for one in m.apart()]
    maker = {v: i for i, one in enumerate(single_nodes) for v in one.outputs}

    def urgency(i: int) -> Origin:
        return min((origins[v] for v in single_nodes[i].outputs), default=_BEFORE_ALL)

    found: dict[int, Loose] = {}
    left = sorted(range(len(single_nodes)), key=urgency)[::-1]
    while left:  # operations without inputs are placed before their first reader
        i = left[-1]
        missing = [maker[v] for v in single_nodes[i].inputs if v in maker and maker[v] not in found]
        if i in found or not missing:
            found.setdefault(left.pop(), single_nodes[i])
        left += reversed(missing)
    return [*found.values()]
