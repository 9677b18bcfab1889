"""Numbers made of arguments alone are computed wherever they are used: a learning rate, corrections by Adam's count.

Were they computed on one slice, the optimizers of all others would wait for it, and so be two computations each: what
can be done before the number comes, and what needs it.
"""

from dataclasses import dataclass, field

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.graph import Constant, GraphNode, Loose, Operand, TracedGraph, TracedValue
from pathways.compiler.frontends.jax.homes import Homes
from pathways.compiler.frontends.jax.meshes import SliceMesh
from pathways.compiler.frontends.jax.sink import substitute

MOST_OPERATIONS = 32
"""Operations in one number that is still worth computing again."""


@dataclass
class _Scalars:
    """Numbers that can be made anywhere: how, of how many operations; and their copies elsewhere."""

    free: set[TracedValue]
    makers: dict[TracedValue, Loose] = field(default_factory=dict[TracedValue, Loose])
    sizes: dict[TracedValue, int] = field(default_factory=dict[TracedValue, int])
    copies: dict[tuple[TracedValue, SliceMesh], TracedValue] = field(
        default_factory=dict[tuple[TracedValue, SliceMesh], TracedValue]
    )


def copy_scalars(graph: TracedGraph, homes: Homes) -> None:
    """Copies numbers made of arguments to each home whose loose operations use them, in place."""
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
    """How many operations make this number of arguments; 0: too many, or something else."""
    if len(node.eqns) != 1 or len(node.outputs) != 1 or node.outputs[0].aval.shape or node.follows is not None:
        return 0
    if not all(v in found.free or v in found.makers or _is_number(v) for v in node.inputs):
        return 0
    eqn = node.eqns[0]
    if eqn.effects or any(True for _ in compat.sub_jaxprs(eqn)):
        return 0
    size = 1 + sum(found.sizes.get(v, 0) for v in node.inputs)
    return size if size <= MOST_OPERATIONS else 0


def _is_number(value: TracedValue) -> bool:
    return isinstance(value, Constant) and not value.aval.shape


def _copy(value: TracedValue, home: SliceMesh, found: _Scalars, homes: Homes, nodes: list[GraphNode]) -> TracedValue:
    """The number at a home: its copy, which is added where it is used first."""
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
