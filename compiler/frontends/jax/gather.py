"""Groups the operations outside of the user's placed jits into computations, each of which becomes one XLA executable.
It must not add a dependency between two placed jits: such a dependency would serialize the microbatches of a pipeline.

`emit.py` calls it. Two operations may share a computation only if they have the same home mesh (homes.py) and the same
*placed ancestors*. Every result of the group then already depended on all inputs of the group, so no path between
placed calls is added. Grouping by slice alone made microbatch 1 wait for microbatch 0's backward pass, and no schedule
can repair that. Groups are connected components. Unconnected components are joined only if they also have the same
placed descendants, which lengthens no lifetime. This joins all parameters of an optimizer update, but not the slices of
all microbatches.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeAlias

from pathways.compiler.frontends.jax.common_parts import with_common_parts
from pathways.compiler.frontends.jax.graph import GraphNode, Loose, TracedGraph, TracedValue
from pathways.compiler.frontends.jax.groups import Group, Unit, faces
from pathways.compiler.frontends.jax.homes import Homes
from pathways.compiler.frontends.jax.meshes import SliceMesh
from pathways.compiler.frontends.jax.origins import first_origins, in_order_of_origins


@dataclass
class _Masks:
    """Sets of placed nodes, as bits of an integer.

    A crossing of unplaced values from one home mesh to another is also a bit. All values with the same set there share
    one bit. The norm of all gradients is then a few computations, and not one per parameter. Each bit is new, so no set
    that starts a crossing contains it. A value that returns to a home mesh is thus never grouped with values that left
    it.
    """

    bits: int = 0
    known: dict[tuple[SliceMesh, SliceMesh, int], int] = field(
        default_factory=dict[tuple[SliceMesh, SliceMesh, int], int]
    )

    def fresh(self) -> int:
        self.bits += 1
        return 1 << (self.bits - 1)

    def crossing(self, there: SliceMesh, home: SliceMesh, mask: int) -> int:
        """Returns the bit for values with this set that move from one home mesh to another."""
        if (there, home, mask) not in self.known:
            self.known[there, home, mask] = self.fresh()
        return self.known[there, home, mask]


def gather(graph: TracedGraph, homes: Homes) -> list[Unit]:
    """Returns placed calls, moves, control flow and groups, in no particular order (see order.py)."""
    masks = _Masks()
    before = _ancestors(graph, homes, masks)
    after = _descendants(graph, homes, _Masks(), before)
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
        reach = 0
        for member in members:
            reach |= after[member]
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


def _ancestors(graph: TracedGraph, homes: Homes, masks: _Masks) -> dict[Loose, int]:
    """Finds the placed nodes and crossings that each unplaced operation depends on."""
    of_value: dict[TracedValue, int] = {}
    of_node: dict[Loose, int] = {}
    loose: set[TracedValue] = set()
    nodes: list[GraphNode] = []

    def settle(node: GraphNode, found: Set[int]) -> None:
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
        if not isinstance(node, Loose):
            settle(node, {of_value.get(v, 0) for v in node.inputs})
            continue
        found = {v: of_value.get(v, 0) for v in node.inputs}
        home = homes.nodes[node]
        crossing = [(v, m) for v, m in found.items() if v in loose and homes.crosses(v, node)]
        found |= {v: m | masks.crossing(homes.values[v], home, m) for v, m in crossing}
        are_alike = len(node.each_takes([found[v] for v in node.inputs])) == 1
        for one in [node] if are_alike else homes.apart(node):
            settle(one, {found[v] for v in one.inputs})
    graph.nodes = nodes
    return of_node


def _descendants(graph: TracedGraph, homes: Homes, masks: _Masks, before: dict[Loose, int]) -> dict[Loose, int]:
    """Finds the placed nodes and crossings that depend on each unplaced operation."""
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
                reach |= masks.crossing(homes.values[value], homes.nodes[node], mask)
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
