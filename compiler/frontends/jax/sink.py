"""Copies cheap constant operations, such as `jnp.zeros` or an iota, into each computation that uses their result.
`trace.py` and `branches.py` call it on the graph of a program.

`jnp.zeros`, an iota or a scaled iota is cheaper to compute again than to keep or to move. A shared one would also make
two calls depend on one group. Each copy *follows* its consumer: it joins that consumer's group (gather.py).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pathways.compiler.frontends.jax.graph import (
    Call,
    ControlFlow,
    ExplicitMove,
    GraphNode,
    Loose,
    Operand,
    TracedGraph,
    TracedValue,
)

NEGLIGIBLE = frozenset(
    {
        "add",
        "broadcast_in_dim",
        "convert_element_type",
        "copy",
        "div",
        "full",
        "integer_pow",
        "iota",
        "mul",
        "neg",
        "reshape",
        "select_n",
        "square",
        "squeeze",
        "sub",
    }
)

LARGEST_COPIED = 8
"""Maximum number of operations of an expression that is copied."""


@dataclass(frozen=True)
class _Expression:
    """A negligible operation, and the number of operations that its value takes."""

    node: Loose
    size: int


_Made: TypeAlias = dict[TracedValue, _Expression]


def sink(graph: TracedGraph) -> None:
    """Copies negligible operations to their consumers, in place, and prunes unused originals."""
    made: _Made = {}
    nodes: list[GraphNode] = []
    for node in _readers_apart(graph, made):
        if isinstance(node, Loose) and (size := _size(node, made)):
            made.update((v, _Expression(node, size)) for v in node.outputs)
            nodes.append(node)
            continue
        copies: dict[TracedValue, TracedValue] = {}
        done: dict[TracedValue, TracedValue] = {}
        follows = node if isinstance(node, Loose) else None
        for value in node.inputs:
            if value in made:
                copies[value] = _copy(value, made, follows, nodes, done)
        if copies:
            substitute(node, copies)
        nodes.append(node)
    graph.nodes = nodes
    graph.prune()


def _readers_apart(graph: TracedGraph, made: _Made) -> Iterator[GraphNode]:
    """Yields the nodes of a graph. Splits joined equations that read a copied value: each needs its own copies."""
    for node in graph.nodes:
        if isinstance(node, Loose) and len(node.eqns) > 1 and not made.keys().isdisjoint(node.inputs):
            yield from node.apart()
        else:
            yield node


def _size(node: Loose, made: _Made) -> int:
    """Counts the operations that make this value from literals; 0 if they are too many, or of another kind."""
    if node.eqns[0].primitive.name not in NEGLIGIBLE or any(v not in made for v in node.inputs):
        return 0
    size = 1 + sum(made[v].size for v in node.inputs)
    return size if size <= LARGEST_COPIED else 0


def _copy(
    value: TracedValue, made: _Made, follows: Loose | None, nodes: list[GraphNode], done: dict[TracedValue, TracedValue]
) -> TracedValue:
    """Adds copies of all operations that `value` is made of, and returns its copy."""
    if value in done:
        return done[value]
    original = made[value].node
    operands: list[Operand] = [
        _copy(o, made, follows, nodes, done) if isinstance(o, TracedValue) else o for o in original.operands
    ]
    outputs = [TracedValue(v.aval) for v in original.outputs]
    nodes.append(Loose(original.eqns, operands, outputs, original.scope, original.where, follows))
    done.update(zip(original.outputs, outputs, strict=True))
    return done[value]


def substitute(node: GraphNode, copies: Mapping[TracedValue, TracedValue]) -> None:
    """Replaces some of the values that a node reads."""
    match node:
        case Loose():
            node.read([copies.get(o, o) if isinstance(o, TracedValue) else o for o in node.operands])
        case ExplicitMove():
            node.source = copies.get(node.source, node.source)
        case Call() | ControlFlow():
            node.inputs = [copies.get(v, v) for v in node.inputs]
