"""Sorts the operations inside a computation so that equal pipeline stages give equal modules. The sort key is the
operation's origin: the first result of a placed call, move or control flow from which it derives. Parameter names do
not matter. `gather.py` calls it.

A program processes gradients in the order of their names. Blocks 6 to 11 of a model are 10, 11, 6, 7, 8, 9 by name,
while blocks 12 to 17 are in order. The operations on both must still be one computation.
"""

from collections.abc import Sequence
from itertools import chain, count
from typing import TypeAlias

from pathways.compiler.frontends.jax.compat import Eqn
from pathways.compiler.frontends.jax.graph import Loose, TracedGraph, TracedValue

Origin: TypeAlias = int
"""The number of a placed node times `PER_NODE`, plus the number of one of its results."""
PER_NODE = 1 << 32
"""More than the results of any node, so that origins have the order of their nodes."""
_BEFORE_ALL: Origin = -1
"""The sort key of operations without results, such as printing. They come first on every stage."""


def first_origins(graph: TracedGraph) -> dict[TracedValue, Origin]:
    """Finds, for each value, the first result of a placed node from which it derives.

    Arrays derive from arrays, and from arrays of their own shape if there are any. A clipped gradient thus derives from
    its stage, and not from all gradients whose norm divided it. A value without an origin has a number after all nodes.
    """
    found: dict[TracedValue, Origin] = {}
    nothing, widths = len(graph.nodes) * PER_NODE, _Widths()
    for number, node in enumerate(graph.nodes):
        if not isinstance(node, Loose):
            found.update(zip(node.outputs, count(number * PER_NODE), strict=False))
            continue
        if len(node.inputs) == len(node.operands) and (width := widths.of(node.eqns)):
            firsts = [found.get(v, nothing) for v in node.operands]
            columns = [firsts[i::width] for i in range(width)]
            found.update(zip(node.outputs, map(min, *columns) if width > 1 else columns[0], strict=True))
            continue
        for _, taken, made in node.equations():
            shape = made[0].aval.shape if made else ()
            values = [v for v in taken if isinstance(v, TracedValue) and (v.aval.shape or not shape)]
            alike = [v for v in values if v.aval.shape == shape]
            first = min((found.get(v, nothing) for v in alike or values), default=nothing)
            found.update(dict.fromkeys(made, first))
    return found


class _Widths:
    """Caches the number of operands of equations. Iterations of a loop have the same equations."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], int] = {}

    def of(self, eqns: tuple[Eqn, ...]) -> int:
        """Returns the number of operands of each of these equations; 0 if they have different numbers, operands of
        other shapes than their result, or several results.
        """
        key = tuple(map(id, eqns))
        if key not in self._known:
            width = len(eqns[0].invars)
            alike = all(len(e.invars) == width and len(e.outvars) == 1 for e in eqns)
            same = alike and all(v.aval.shape == e.outvars[0].aval.shape for e in eqns for v in e.invars)
            self._known[key] = width if same else 0
        return self._known[key]


def _joined_in_order(members: Sequence[Loose], origins: dict[TracedValue, Origin]) -> Loose:
    """Joins equations in the order of their origins."""
    first = members[0]
    if len(members) == 1 and all(len(eqn.outvars) == 1 for eqn in first.eqns):  # often in order already
        urgency = list(map(origins.__getitem__, first.outputs))
        if urgency == sorted(urgency):
            return first
    parts = [(*part, member.where) for member in members for part in member.equations()]
    urgency = [min([origins[v] for v in made], default=_BEFORE_ALL) for _, _, made, _ in parts]
    order = sorted(range(len(parts)), key=urgency.__getitem__)
    eqns, operands, outputs, lines = zip(*map(parts.__getitem__, order), strict=True)
    where = next((line for line in lines if line is not None), None)
    return Loose(eqns, [*chain.from_iterable(operands)], [*chain.from_iterable(outputs)], first.scope, where)


def in_order_of_origins(members: Sequence[Loose], origins: dict[TracedValue, Origin]) -> list[Loose]:
    """Sorts the equations of a group by origin. The sort is stable.

    Returns one node if they are of one function and read no results of each other. Otherwise returns one node for each.
    """
    made = set(chain.from_iterable([m.outputs for m in members]))
    is_flat = all(made.isdisjoint(m.inputs) for m in members)
    if is_flat and len({m.scope for m in members}) == 1:
        return [_joined_in_order(members, origins)]
    single_nodes = [one for m in members for one in m.apart()]
    urgency = [min([origins[v] for v in one.outputs], default=_BEFORE_ALL) for one in single_nodes]
    order = sorted(range(len(single_nodes)), key=urgency.__getitem__)
    if is_flat:
        return list(map(single_nodes.__getitem__, order))
    maker = {v: i for i, one in enumerate(single_nodes) for v in one.outputs}
    found: dict[int, Loose] = {}
    left = order[::-1]
    while left:  # operations without inputs are placed before their first reader
        i = left[-1]
        missing = [maker[v] for v in single_nodes[i].inputs if v in maker and maker[v] not in found]
        if i in found or not missing:
            found.setdefault(left.pop(), single_nodes[i])
        left += reversed(missing)
    return [*found.values()]
