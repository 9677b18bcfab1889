"""Where values without a place of their own live: operations follow their data.

An operation goes to the slice that holds most bytes of its operands (tie: the first operand), on that operand's
mesh. What depends on no placed value goes to its first consumer. With no slice in the whole program everything goes
to the mesh of the `jax.set_mesh` around the program, or to an implicit slice of one device.
"""

import functools
import math
from dataclasses import dataclass

from pathways.compiler.frontend.compat import Aval, is_key
from pathways.compiler.frontend.devices import VirtualSlice
from pathways.compiler.frontend.graph import Graph, Loose, Node, Value
from pathways.compiler.frontend.meshes import SliceMesh, ambient_mesh, default_mesh


@dataclass(frozen=True)
class Homes:
    """The mesh of each value in use; a value that nothing uses has none."""

    values: dict[Value, SliceMesh]
    nodes: dict[Node, SliceMesh]


def find_homes(graph: Graph) -> Homes:
    values: dict[Value, SliceMesh] = {}
    nodes: dict[Node, SliceMesh] = {}
    settled = -1
    while settled < len(nodes):
        settled = len(nodes)
        _follow_operands(graph, values, nodes)
        _follow_consumers(graph, values, nodes)
    if any(n not in nodes for n in graph.nodes) or any(v not in values for v in graph.outputs):
        fallback = next(iter(nodes.values()), None) or ambient_mesh() or _implicit()
        for node in graph.nodes:
            home = nodes.setdefault(node, fallback)
            for value in (*node.inputs, *node.outputs):
                values.setdefault(value, home)
        for value in graph.outputs:
            values.setdefault(value, fallback)
    return Homes(values, nodes)


@functools.cache
def _implicit() -> SliceMesh:
    """The same for every program of the process."""
    return default_mesh(VirtualSlice(1, prefer=None, kind=None, island=None, topology=None, where=None))


def _settle(node: Node, home: SliceMesh, values: dict[Value, SliceMesh], nodes: dict[Node, SliceMesh]) -> None:
    nodes[node] = home
    for value in node.outputs:
        values[value] = home


def _follow_operands(graph: Graph, values: dict[Value, SliceMesh], nodes: dict[Node, SliceMesh]) -> None:
    for node in graph.nodes:
        if not isinstance(node, Loose):
            _settle(node, node.mesh, values, nodes)
        elif node not in nodes:
            home = _heaviest(node, values)
            if home is not None:
                _settle(node, home, values, nodes)


def _heaviest(node: Loose, values: dict[Value, SliceMesh]) -> SliceMesh | None:
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
    if not bytes_on:
        return None
    return largest[max(bytes_on, key=lambda n: bytes_on[n])][1]


def _follow_consumers(graph: Graph, values: dict[Value, SliceMesh], nodes: dict[Node, SliceMesh]) -> None:
    wanted: dict[Value, SliceMesh] = {}
    for node in reversed(graph.nodes):
        if node not in nodes:
            home = next((wanted[v] for v in node.outputs if v in wanted), None)
            if home is None:
                continue
            _settle(node, home, values, nodes)
        for value in node.inputs:
            if value not in values:
                wanted[value] = nodes[node]
    for value, home in wanted.items():
        values.setdefault(value, home)


def aval_bytes(aval: Aval) -> int:
    """Bytes of an array of this type; a PRNG key counts as 8."""
    itemsize = 8 if is_key(aval) else aval.dtype.itemsize
    return math.prod(aval.shape) * itemsize
