"""Groups the operations outside of the user's placed jits into computations, each of which becomes one XLA executable.
It must not add a dependency between two placed jits: such a dependency would serialize the microbatches of a pipeline.

`emit.py` calls it. Two operations may share a computation only if they have the same home mesh (homes.py) and the same
*placed ancestors*. Every result of the group then already depended on all inputs of the group, so no path between
placed calls is added. Grouping by slice alone made microbatch 1 wait for microbatch 0's backward pass, and no schedule
can repair that. Groups are connected components. Unconnected components are joined only if they also have the same
placed descendants, which lengthens no lifetime. This joins all parameters of an optimizer update, but not the slices of
all microbatches.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pathways.compiler.frontends.jax.common_parts import with_common_parts
from pathways.compiler.frontends.jax.graph import GraphNode, Loose, TracedGraph, TracedValue
from pathways.compiler.frontends.jax.groups import Group, Unit, faces
from pathways.compiler.frontends.jax.homes import Homes
from pathways.compiler.frontends.jax.meshes import SliceMesh
from pathways.compiler.frontends.jax.origins import first_origins, in_order_of_origins


class _Sets:
    """Numbers sets of placed nodes, so that numbers are compared in place of large sets. 0 is the empty set.

    A crossing of unplaced values from one home mesh to another is also a member. All values with the same set there
    share one crossing. The norm of all gradients is then a few computations, and not one per parameter. Each member is
    new, so no set that starts a crossing contains it. A value that returns to a home mesh is thus never grouped with
    values that left it.
    """

    def __init__(self) -> None:
        self._bits = [0]
        """The members of each set, as bits of an integer."""
        self._numbers = {0: 0}
        self._unions: dict[frozenset[int], int] = {}
        self._crossings: dict[tuple[SliceMesh, SliceMesh, int], int] = {}
        self._members = 0

    def _number(self, bits: int) -> int:
        number = self._numbers.setdefault(bits, len(self._bits))
        if number == len(self._bits):
            self._bits.append(bits)
        return number

    def union(self, numbers: Iterable[int]) -> int:
        key = frozenset(numbers)
        if key not in self._unions:
            bits = 0
            for number in key:
                bits |= self._bits[number]
            self._unions[key] = self._number(bits)
        return self._unions[key]

    def with_new(self, number: int) -> int:
        """Adds a new member to a set, and returns the number of the result."""
        self._members += 1
        return self._number(self._bits[number] | 1 << (self._members - 1))

    def crossed(self, number: int, there: SliceMesh, home: SliceMesh) -> int:
        """Returns the set of values with this set that moved from one home mesh to another."""
        key = there, home, number
        if key not in self._crossings:
            self._crossings[key] = self.with_new(number)
        return self._crossings[key]


def gather(graph: TracedGraph, homes: Homes) -> list[Unit]:
    """Returns placed calls, moves, control flow and groups, in no particular order (see order.py)."""
    ancestors, descendants = _Sets(), _Sets()
    before = _ancestors(graph, homes, ancestors)
    after = _descendants(graph, homes, descendants, before)
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
                    if there is home or there == home:  # most equal meshes are one object
                        parent[root(other)] = root(node)
    components: dict[Loose, list[Loose]] = {}
    for node in parent:
        components.setdefault(root(node), []).append(node)
    joined: dict[tuple[SliceMesh, int, int], _Joined] = {}
    for members in components.values():
        reach = descendants.union(map(after.__getitem__, members))
        home, depends = homes.nodes[members[0]], before[members[0]]
        group = joined.setdefault((home, depends, reach), _Joined(home, depends != 0))
        group.components.append(members)
    groups = [*joined.values()]
    users = _users(graph, parent)
    _absorb(groups, users)
    return _units(graph, [g for g in groups if g.components], users)


@dataclass(eq=False)
class _Joined:
    """Unplaced operations of one home mesh that become a group: connected ones, and others after the same calls."""

    mesh: SliceMesh
    depends: bool
    components: list[list[Loose]] = field(default_factory=list[list[Loose]])

    @property
    def members(self) -> Iterator[Loose]:
        return (m for component in self.components for m in component)


_Users: TypeAlias = dict[TracedValue, list[object]]


def _users(graph: TracedGraph, loose: Iterable[Loose]) -> _Users:
    """Finds the nodes that read each result of an unplaced operation. The graph itself reads its results."""
    users: _Users = {v: [] for node in loose for v in node.outputs}
    for reader, values in (*((node, node.inputs) for node in graph.nodes), (graph, graph.outputs)):
        for value in values:
            if value in users:
                users[value].append(reader)
    return users


def _groups(groups: Sequence[_Joined]) -> dict[object, object]:
    """Returns the group of each unplaced operation."""
    return {member: group for group in groups for member in group.members}


def _absorb(groups: Sequence[_Joined], users: _Users) -> None:
    """Moves components that depend only on arguments into their only consumer, if it is a group on the same mesh.

    The component would run just before that group. Nothing waits longer, and nothing is kept in between.
    """
    group_of = _groups(groups)
    for group in groups:
        if group.depends:
            continue
        left: list[list[Loose]] = []
        for component in group.components:
            found = {group_of.get(u, u) for m in component for v in m.outputs for u in users[v]} - {group}
            only = found.pop() if len(found) == 1 else None
            if isinstance(only, _Joined) and only.mesh == group.mesh:
                only.components.append(component)
            else:
                left.append(component)
        group.components = left


def _units(graph: TracedGraph, groups: Sequence[_Joined], users: _Users) -> list[Unit]:
    position = {node: i for i, node in enumerate(graph.nodes)}
    origins = first_origins(graph)
    group_of = _groups(groups)
    units: list[Unit] = [n for n in graph.nodes if not isinstance(n, Loose)]
    for group in groups:
        numbers = {position[m]: m for m in group.members}
        span = min(numbers), max(numbers)
        members = in_order_of_origins([numbers[i] for i in sorted(numbers)], origins)
        inputs, outputs = faces(members, lambda v, group=group: any(group_of.get(u, u) is not group for u in users[v]))
        units.append(Group(group.mesh, members, inputs, outputs, group.depends, span))
    return with_common_parts(units, origins, len(graph.nodes))


def _ancestors(graph: TracedGraph, homes: Homes, sets: _Sets) -> dict[Loose, int]:
    """Finds the placed nodes and crossings that each unplaced operation depends on."""
    of_value: dict[TracedValue, int] = {}
    of_node: dict[Loose, int] = {}
    loose: set[TracedValue] = set()
    nodes: list[GraphNode] = []

    def settle(node: GraphNode, found: Iterable[int]) -> None:
        number = sets.union(found)
        if isinstance(node, Loose):
            of_node[node] = number
            loose.update(node.outputs)
        else:
            number = sets.with_new(number)
        of_value.update(dict.fromkeys(node.outputs, number))
        nodes.append(node)

    for node in graph.nodes:
        if not isinstance(node, Loose):
            settle(node, [of_value.get(v, 0) for v in node.inputs])
            continue
        found = {v: of_value.get(v, 0) for v in node.inputs}
        home = homes.nodes[node]
        crossing = [(v, n) for v, n in found.items() if v in loose and homes.crosses(v, node)]
        found |= {v: sets.crossed(n, homes.values[v], home) for v, n in crossing}
        are_alike = len(node.each_takes([found[v] for v in node.inputs], sets.union)) == 1
        for one in [node] if are_alike else homes.apart(node):
            settle(one, [found[v] for v in one.inputs])
    graph.nodes = nodes
    return of_node


def _descendants(graph: TracedGraph, homes: Homes, sets: _Sets, before: dict[Loose, int]) -> dict[Loose, int]:
    """Finds the placed nodes and crossings that depend on each unplaced operation."""
    of_value: dict[TracedValue, int] = {}
    of_node: dict[Loose, int] = {}
    loose = {v for n in graph.nodes if isinstance(n, Loose) for v in n.outputs}
    nodes: list[GraphNode] = []

    def settle(node: GraphNode) -> None:
        number = sets.union([of_value.get(v, 0) for v in node.outputs])
        is_loose = isinstance(node, Loose)
        if isinstance(node, Loose):
            of_node[node] = number
        else:
            number = sets.with_new(number)
        united: dict[int, int] = {0: number}
        for value in node.inputs:
            known = of_value.get(value, 0)
            if is_loose and value in loose and homes.crosses(value, node):
                of_value[value] = sets.union((known, sets.crossed(number, homes.values[value], homes.nodes[node])))
                continue
            if known not in united:
                united[known] = sets.union((known, number))
            of_value[value] = united[known]
        nodes.append(node)

    for node in reversed(graph.nodes):
        ones: list[GraphNode] = [node]
        if isinstance(node, Loose) and len(node.each_makes([of_value.get(v, 0) for v in node.outputs], sets.union)) > 1:
            members = homes.apart(node)
            before.update(dict.fromkeys(members, before[node]))
            ones = [*reversed(members)]
        for one in ones:
            settle(one)
    graph.nodes = nodes[::-1]
    return of_node
