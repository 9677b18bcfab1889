"""Copies the computation of small scalars, such as a learning rate or Adam's bias corrections, to every mesh that uses
them. Only scalars that depend on nothing but program arguments are copied. `trace.py` calls it after each operation has
a mesh.

If one slice computed them, the optimizers of all others would wait for it. Each would become two computations: one
before the scalar arrives, and one that needs it.
"""

from dataclasses import dataclass, field

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.graph import Constant, GraphNode, Loose, Operand, TracedGraph, TracedValue
from pathways.compiler.frontends.jax.homes import Homes
from pathways.compiler.frontends.jax.meshes import SliceMesh
from pathways.compiler.frontends.jax.sink import substitute

MAX_OPERATIONS = 32
"""Maximum number of operations of a scalar that is computed again on each mesh."""


@dataclass
class _Scalars:
    """Scalars that can be computed anywhere: their nodes, operation counts, and copies on other meshes."""

    free: set[TracedValue]
    makers: dict[TracedValue, Loose] = field(default_factory=dict[TracedValue, Loose])
    sizes: dict[TracedValue, int] = field(default_factory=dict[TracedValue, int])
    copies: dict[tuple[TracedValue, SliceMesh], TracedValue] = field(
        default_factory=dict[tuple[TracedValue, SliceMesh], TracedValue]
    )


def copy_scalars(graph: TracedGraph, homes: Homes) -> None:
    """Copies scalars made of arguments to each home mesh whose unplaced operations use them, in place."""
    found = _Scalars({v for v in graph.inputs if not v.aval.shape})
    nodes: list[GraphNode] = []
    for node in graph.nodes:
        if not isinstance(node, Loose):
            nodes.append(node)
            continue
        if size := _size(node, found):
            found.makers[node.outputs[0]] = node
            found.sizes[node.outputs[0]] = size
        crossing = [v for v in dict.fromkeys(node.inputs) if v in found.makers and homes.crosses(v, node)]
        if crossing:
            home = homes.nodes[node]
            substitute(node, {v: _copy(v, home, found, homes, nodes) for v in crossing})
        nodes.append(node)
    if found.copies:
        graph.nodes = nodes
        graph.prune()


def _size(node: Loose, found: _Scalars) -> int:
    """Counts the operations that make this scalar from arguments; 0 if they are too many, or of another kind."""
    if len(node.eqns) != 1 or len(node.outputs) != 1 or node.outputs[0].aval.shape or node.follows is not None:
        return 0
    if not all(v in found.free or v in found.makers or _is_number(v) for v in node.inputs):
        return 0
    eqn = node.eqns[0]
    if eqn.effects or any(True for _ in compat.sub_jaxprs(eqn)):
        return 0
    size = 1 + sum(found.sizes.get(v, 0) for v in node.inputs)
    return size if size <= MAX_OPERATIONS else 0


def _is_number(value: TracedValue) -> bool:
    return isinstance(value, Constant) and not value.aval.shape


def _copy(value: TracedValue, home: SliceMesh, found: _Scalars, homes: Homes, nodes: list[GraphNode]) -> TracedValue:
    """Returns the scalar on a home mesh. Its copy is added before its first use."""
    if value not in found.makers:
        return value
    if (value, home) not in found.copies:
        original = found.makers[value]
        operands: list[Operand] = [
            _copy(o, home, found, homes, nodes) if isinstance(o, TracedValue) else o for o in original.operands
        ]
        copied = Loose(original.eqns, operands, [TracedValue(value.aval)], original.scope, original.where)
        homes.settle(copied, home)
        nodes.append(copied)
        found.copies[value, home] = copied.outputs[0]
    return found.copies[value, home]
