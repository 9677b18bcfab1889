"""Removes additions of zero arrays from the graph of a program. Unrolled loops produce them, because their sums start
at zero. `trace.py` calls it before it chooses a mesh for each operation.
"""

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.graph import GraphNode, Loose, Operand, TracedGraph, TracedValue
from pathways.compiler.frontends.jax.sink import substitute

_ADDITIONS = frozenset({"add_any", "add"})


def drop_added_zeros(graph: TracedGraph) -> None:
    """Replaces sums with zeros by the other summand, in place. XLA would do the same inside a computation."""
    zeros: set[TracedValue] = set()
    same: dict[TracedValue, TracedValue] = {}
    nodes: list[GraphNode] = []
    for node in graph.nodes:
        if not same.keys().isdisjoint(node.inputs):
            substitute(node, same)
        if not isinstance(node, Loose) or node.follows is not None:
            nodes.append(node)
            continue
        if node.eqns[0].primitive.name == "broadcast_in_dim":
            zeros.update(made[0] for _, taken, made in node.equations() if _is_zero(taken[0]))
        if node.eqns[0].primitive.name not in _ADDITIONS or zeros.isdisjoint(node.inputs):
            nodes.append(node)
            continue
        for one in node.apart():
            found = _added_to_zeros(one, zeros)
            if found is None:
                nodes.append(one)
            else:
                same[one.outputs[0]] = found
    if same:
        graph.nodes = nodes
        graph.outputs = [same.get(v, v) for v in graph.outputs]
        graph.prune()


def _is_zero(operand: Operand) -> bool:
    return isinstance(operand, compat.Literal) and not operand.aval.shape and not operand.val


def _added_to_zeros(node: Loose, zeros: set[TracedValue]) -> TracedValue | None:
    """Returns the value that a sum equals, if the other summand is zero and the types match; otherwise None."""
    others = [v for v in node.inputs if v not in zeros]
    if len(others) != 1 or len(node.operands) != 2 or len(node.inputs) != 2:
        return None
    return others[0] if str(others[0].aval) == str(node.outputs[0].aval) else None
