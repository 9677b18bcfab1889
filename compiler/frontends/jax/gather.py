"""Loose operations become computations, without making anything wait that did not wait before.

Two operations may share a computation only if they have the same home and the same *placed ancestors*: then every
result of the group already depended on all that the group depends on, so no path between placed calls is added.
Grouping by slice alone made microbatch 1 wait for microbatch 0's backward, and no schedule repairs that. Groups are
connected components; unconnected ones are joined only if they also have the same placed descendants (all parameters
of an optimizer update, not the slices of all microbatches), which lengthens no lifetime.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pathways.compiler.frontends.jax.graph import (
    Call,
    ControlFlow,
    ExplicitMove,
    GraphNode,
    Loose,
    TracedGraph,
    TracedValue,
)
from pathways.compiler.frontends.jax.homes import Homes
from pathways.compiler.frontends.jax.meshes import SliceMesh
from pathways.dialect.diagnostics import Where


@dataclass(eq=False)
class Group:
    """Loose operations that run as one computation."""

    mesh: SliceMesh
    operations: list[Loose]
    inputs: list[TracedValue]
    outputs: list[TracedValue]
    depends: bool
    """Whether it depends on a placed call or a move."""

    @property
    def where(self) -> Where | None:
        return next((o.where for o in self.operations if o.where is not None), None)

    @property
    def name(self) -> str:
        scopes = {o.scope for o in self.operations}
        if len(scopes) == 1 and (scope := scopes.pop()):
            return scope
        kinds = list(dict.fromkeys(e.primitive.name for o in self.operations for e in o.eqns))
        return "_".join(kinds) if len(kinds) <= 2 else f"{kinds[0]}_to_{kinds[-1]}"


Unit: TypeAlias = Call | ExplicitMove | ControlFlow | Group


@dataclass
class _Masks:
    """Sets of placed nodes as bits of an integer; a loose value that crosses to another home is a bit, too."""

    bits: int = 0
    known: dict[tuple[TracedValue, SliceMesh], int] = field(default_factory=dict[tuple[TracedValue, SliceMesh], int])

    def fresh(self) -> int:
        self.bits += 1
        return 1 << (self.bits - 1)

    def crossing(self, value: TracedValue, home: SliceMesh) -> int:
        return self.known.setdefault((value, home), 0) or self._new_crossing(value, home)

    def _new_crossing(self, value: TracedValue, home: SliceMesh) -> int:
        self.known[value, home] = self.fresh()
        return self.known[value, home]


def gather(graph: TracedGraph, homes: Homes) -> list[Unit]:
    """Placed calls, moves, control flow and groups, in no particular order (see order.py)."""
    masks = _Masks()
    before = _ancestors(graph, homes, masks)
    after = _descendants(graph, homes, masks, before)
    for node in graph.nodes:
        if isinstance(node, Loose) and node.follows is not None:
            before[node], after[node] = before[node.follows], after[node.follows]
            homes.nodes[node] = homes.nodes[node.follows]
            homes.values.update((v, homes.nodes[node]) for v in node.outputs)
    parent: dict[Loose, Loose] = {}
    maker: dict[TracedValue, Loose] = {}

    def root(node: Loose) -> Loose:
        while parent[node] is not node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for node in graph.nodes:
        if isinstance(node, Loose):
            parent[node] = node
            maker.update((v, node) for v in node.outputs)
            for value in node.inputs:
                other = maker.get(value)
                if other and before[other] == before[node]:
                    home, there = homes.nodes[node], homes.nodes[other]
                    if there is home or there == home:  # most that are equal are one object
                        parent[root(other)] = root(node)
    components: dict[Loose, list[Loose]] = {}
    for node in parent:
        components.setdefault(root(node), []).append(node)
    joined: dict[tuple[SliceMesh, int, int], list[Loose]] = {}
    for members in components.values():
        reach = 0
        for member in members:
            reach |= after[member]
        joined.setdefault((homes.nodes[members[0]], before[members[0]], reach), []).extend(members)
    return _units(graph, joined, before)


def _units(
    graph: TracedGraph, joined: dict[tuple[SliceMesh, int, int], list[Loose]], before: dict[Loose, int]
) -> list[Unit]:
    position = {node: i for i, node in enumerate(graph.nodes)}
    users: dict[TracedValue, list[object]] = {v: [graph] for v in graph.outputs}
    group_of: dict[Loose, int] = {}
    for number, members in enumerate(joined.values()):
        group_of.update((m, number) for m in members)
    for node in graph.nodes:
        user = group_of[node] if isinstance(node, Loose) else node
        for value in node.inputs:
            users.setdefault(value, []).append(user)
    units: list[Unit] = [n for n in graph.nodes if not isinstance(n, Loose)]
    for number, ((mesh, _, _), members) in enumerate(joined.items()):
        members.sort(key=position.__getitem__)
        inner = {v for m in members for v in m.outputs}
        inputs = _unique(v for m in members for v in m.inputs if v not in inner)
        outputs = _unique(v for m in members for v in m.outputs if any(u != number for u in users.get(v, ())))
        units.append(Group(mesh, members, inputs, outputs, before[members[0]] != 0))
    return units


def _unique(values: Iterable[TracedValue]) -> list[TracedValue]:
    return list(dict.fromkeys(values))


def _ancestors(graph: TracedGraph, homes: Homes, masks: _Masks) -> dict[Loose, int]:
    """For each loose operation, the placed nodes and crossings that it depends on."""
    of_value: dict[TracedValue, int] = {}
    of_node: dict[Loose, int] = {}
    loose: set[TracedValue] = set()
    nodes: list[GraphNode] = []

    def settle(node: GraphNode, found: Sequence[int]) -> None:
        mask = 0
        for before in found:
            mask |= before
        if isinstance(node, Loose):
            of_node[node] = mask
            loose.update(node.outputs)
        else:
            mask |= masks.fresh()
        of_value.update(dict.fromkeys(node.outputs, mask))
        nodes.append(node)

    for node in graph.nodes:
        found = {v: of_value.get(v, 0) for v in node.inputs}
        ones: list[GraphNode] = [node]
        if isinstance(node, Loose):
            home = homes.nodes[node]
            found |= {v: m | masks.crossing(v, home) for v, m in found.items() if v in loose and homes.crosses(v, node)}
            if len(node.each_takes([found[v] for v in node.inputs])) > 1:
                ones = [*homes.apart(node)]
        for one in ones:
            settle(one, [found[v] for v in one.inputs])
    graph.nodes = nodes
    return of_node


def _descendants(graph: TracedGraph, homes: Homes, masks: _Masks, before: dict[Loose, int]) -> dict[Loose, int]:
    """For each loose operation, the placed nodes and crossings that depend on it."""
    of_value: dict[TracedValue, int] = {}
    of_node: dict[Loose, int] = {}
    loose = {v for n in graph.nodes if isinstance(n, Loose) for v in n.outputs}
    nodes: list[GraphNode] = []

    def settle(node: GraphNode) -> None:
        mask = 0
        for value in node.outputs:
            mask |= of_value.get(value, 0)
        is_loose = isinstance(node, Loose)
        if isinstance(node, Loose):
            of_node[node] = mask
        else:
            mask |= masks.fresh()
        for value in node.inputs:
            reach = mask
            if is_loose and value in loose and homes.crosses(value, node):
                reach |= masks.crossing(value, homes.nodes[node])
            known = of_value.get(value)
            of_value[value] = reach if known is None else known | reach
        nodes.append(node)

    for node in reversed(graph.nodes):
        ones: list[GraphNode] = [node]
        if isinstance(node, Loose) and len(node.each_makes([of_value.get(v, 0) for v in node.outputs])) > 1:
            members = homes.apart(node)
            before.update(dict.fromkeys(members, before[node]))
            ones = [*reversed(members)]
        for one in ones:
            settle(one)
    graph.nodes = nodes[::-1]
    return of_node
