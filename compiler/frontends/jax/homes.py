"""Chooses the mesh on which each operation outside of the user's placed jits runs, called its home mesh. In general, an
operation runs where most bytes of its operands are. `trace.py` calls it once the graph is complete.

An operation is placed on the slice that holds most bytes of its operands, on that operand's mesh. In a tie, the first
operand decides. An operation that depends on no placed value is placed on the mesh of its first consumer. If the whole
program names no slice, everything is placed on the mesh of the surrounding `jax.set_mesh`, or on an implicit slice of
one device.

All bodies of control flow take an operand on one mesh. In a loop it is the mesh that the loop's calls need, so that
nothing moves in every iteration. In a branch it is the mesh where the operand already is, so that nothing moves for a
body that does not run.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

from pathways.compiler.frontends.jax.compat import Aval, is_key
from pathways.compiler.frontends.jax.devices import implicit_slice
from pathways.compiler.frontends.jax.graph import ControlFlow, GraphNode, Loose, TracedGraph, TracedValue
from pathways.compiler.frontends.jax.meshes import SliceMesh, ambient_mesh, default_mesh


@dataclass(frozen=True)
class Homes:
    """The home mesh of each value in use; an unused value has none. Bodies of control flow have their own `Homes`."""

    values: dict[TracedValue, SliceMesh] = field(default_factory=dict[TracedValue, SliceMesh])
    nodes: dict[GraphNode, SliceMesh] = field(default_factory=dict[GraphNode, SliceMesh])
    bodies: "dict[TracedGraph, Homes]" = field(default_factory=dict["TracedGraph", "Homes"])

    def settle(self, node: GraphNode, home: SliceMesh) -> None:
        self.nodes[node] = home
        self.values.update(dict.fromkeys(node.outputs, home))

    def crosses(self, value: TracedValue, node: GraphNode) -> bool:
        """Whether a node reads a value whose home is another mesh."""
        home, there = self.nodes[node], self.values[value]
        return there is not home and there != home  # most equal meshes are one object

    def apart(self, node: Loose) -> list[Loose]:
        """Splits a node into its equations, and keeps its home mesh for each of them."""
        members = node.apart()
        self.nodes.update(dict.fromkeys(members, self.nodes[node]))
        return members


def find_homes(graph: TracedGraph) -> Homes:
    return _closed(graph, _discovered(graph, {}))


def _discovered(graph: TracedGraph, given: Mapping[TracedValue, SliceMesh]) -> Homes:
    """Finds the homes that follow from placed calls and from the given homes of inputs."""
    homes = Homes(dict(given))
    while True:
        settled = len(homes.nodes)
        _follow_operands(graph, homes)
        _follow_consumers(graph, homes)
        if len(homes.nodes) in (settled, len(graph.nodes)):
            return homes


def _closed(graph: TracedGraph, homes: Homes, fallback: SliceMesh | None = None) -> Homes:
    """Places everything else on the home of the first node that has one."""
    if any(n not in homes.nodes for n in graph.nodes) or any(v not in homes.values for v in graph.outputs):
        fallback = _somewhere(homes, fallback)
        for node in graph.nodes:
            home = homes.nodes.setdefault(node, fallback)
            for value in (*node.inputs, *node.outputs):
                homes.values.setdefault(value, home)
        for value in graph.outputs:
            homes.values.setdefault(value, fallback)
    return homes


def _somewhere(homes: Homes, fallback: SliceMesh | None) -> SliceMesh:
    """Returns a home for values that no data or consumer places."""
    return next(iter(homes.nodes.values()), None) or fallback or ambient_mesh() or default_mesh(implicit_slice())


def _follow_operands(graph: TracedGraph, homes: Homes) -> None:
    for node in graph.nodes:
        if isinstance(node, ControlFlow):
            if node not in homes.nodes:
                _settle_branch(node, homes)
        elif not isinstance(node, Loose):
            homes.settle(node, node.mesh)
        elif node not in homes.nodes:
            home = _heaviest(node, homes.values)
            if home is not None:
                homes.settle(node, home)


def _settle_branch(node: ControlFlow, homes: Homes) -> None:
    """Finds the homes of all values that the bodies of control flow take, make and return."""
    separate = [_discovered(body, {}) for body in node.bodies]
    first = next((h for found in separate for h in found.nodes.values()), None) or _somewhere(homes, None)
    wanted = _wanted_inside(node, separate)
    if node.kind == "while":  # the values that the test compares are placed where the body needs them
        known = [{v: w for v, w in zip(body.inputs, wanted, strict=True) if w is not None} for body in node.bodies]
        wanted = _wanted_inside(node, [_discovered(b, k) for b, k in zip(node.bodies, known, strict=True)])
    places: list[SliceMesh] = []
    for value, want in zip(node.taken, wanted, strict=True):
        known_home = homes.values.get(value)
        places.append((known_home or want or first) if node.kind == "cond" else (want or known_home or first))
    for body in node.bodies:
        given = dict(zip(body.inputs, places, strict=True))
        homes.bodies[body] = _closed(body, _discovered(body, given), first)
    homes.nodes[node] = first
    if node.kind == "cond":
        results = [homes.bodies[node.bodies[0]].values[v] for v in node.bodies[0].outputs]
    else:
        results = places[len(places) - len(node.outputs) :]
    homes.values.update(zip(node.outputs, results, strict=True))


def _wanted_inside(node: ControlFlow, found: Sequence[Homes]) -> list[SliceMesh | None]:
    """Finds the mesh on which the first body that needs one wants each value that control flow takes."""
    inside = [[h.values.get(v) for v in b.inputs] for b, h in zip(node.bodies, found, strict=True)]
    return [next((home for home in column if home is not None), None) for column in zip(*inside, strict=True)]


def _wanted(node: GraphNode, homes: Homes) -> list[SliceMesh]:
    """Finds the mesh on which a node takes each of its inputs."""
    if not isinstance(node, ControlFlow):
        return [homes.nodes[node]] * len(node.inputs)
    found = homes.bodies[node.bodies[0]].values
    decides = [homes.nodes[node]] * (len(node.inputs) - len(node.taken))
    return [*decides, *(found[v] for v in node.bodies[0].inputs)]


def _heaviest(node: Loose, values: dict[TracedValue, SliceMesh]) -> SliceMesh | None:
    homes = [home for home in map(values.get, node.inputs) if home is not None]
    if not homes or all(home is homes[0] for home in homes):
        return homes[0] if homes else None
    bytes_on: dict[int, int] = {}
    largest: dict[int, tuple[int, SliceMesh]] = {}
    for value in node.inputs:
        home = values.get(value)
        if home is None:
            continue
        number, size = home.slice.number, aval_bytes(value.aval)
        bytes_on[number] = bytes_on.get(number, 0) + size
        if number not in largest or size > largest[number][0]:
            largest[number] = size, home
    return largest[max(bytes_on, key=lambda n: bytes_on[n])][1]


def _follow_consumers(graph: TracedGraph, homes: Homes) -> None:
    wanted: dict[TracedValue, SliceMesh] = {}
    for node in reversed(graph.nodes):
        if node not in homes.nodes:
            home = next((wanted[v] for v in node.outputs if v in wanted), None)
            if home is None:
                continue
            homes.settle(node, home)
        if not all(map(homes.values.__contains__, node.inputs)):
            open_ = [value not in homes.values for value in node.inputs]
            places = zip(node.inputs, _wanted(node, homes), strict=True)
            wanted.update(compress(places, open_))
    for value, home in wanted.items():
        homes.values.setdefault(value, home)


def aval_bytes(aval: Aval) -> int:
    """Returns the bytes of an array of this type; a PRNG key counts as 8."""
    itemsize = 8 if is_key(aval) else aval.dtype.itemsize
    return math.prod(aval.shape) * itemsize
