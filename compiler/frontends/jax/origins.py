"""The operations of a group in an order that is the same for every stage: by what they come of, not by names.

A program treats gradients in the order of their names, and blocks 6 to 11 of a model are 10, 11, 6, 7, 8, 9 by their
names while blocks 12 to 17 are in order. What is done with them is one computation nonetheless.
"""

from collections.abc import Sequence
from typing import TypeAlias

from pathways.compiler.frontends.jax.graph import Loose, TracedGraph, TracedValue

Origin: TypeAlias = tuple[int, int]
"""The number of a placed node, and that of one of its results."""


def first_origins(graph: TracedGraph) -> dict[TracedValue, Origin]:
    """Finds, for each value, the first result of a placed node that it comes of.

    An array comes of arrays, and of those of its own shape where there are any: a gradient that is clipped comes of a
    stage, and not of all whose norm it was divided by. What comes of none has the number behind all nodes.
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
    """Sorts the operations of a group, each by itself, by what they come of; equal ones stay as they are."""
    alone = [one for m in members for one in m.apart()]
    maker = {v: i for i, one in enumerate(alone) for v in one.outputs}

    def urgency(i: int) -> Origin:
        return min((origins[v] for v in alone[i].outputs), default=(0, 0))

    found: dict[int, Loose] = {}
    left = sorted(range(len(alone)), key=urgency)[::-1]
    while left:  # what is made of nothing stands before what reads it first
        i = left[-1]
        missing = [maker[v] for v in alone[i].inputs if v in maker and maker[v] not in found]
        if i in found or not missing:
            found.setdefault(left.pop(), alone[i])
        left += reversed(missing)
    return [*found.values()]
