"""Nodes of traced graphs, made by hand: equations without a place, placed calls, moves."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

import pathways as pw
from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.alike import HeldBack, joined
from pathways.compiler.frontends.jax.graph import Call, Callee, Constant, ExplicitMove, GraphNode, Loose, TracedGraph
from pathways.compiler.frontends.jax.graph import TracedValue as Value
from pathways.compiler.frontends.jax.meshes import SliceMesh, default_mesh

_jax: Any = jax


def value(*shape: int, dtype: Any = jnp.float32) -> Value:
    return Value(compat.array_aval(shape, jnp.dtype(dtype)))


def constant(array: Any, name: str = "") -> Constant:
    array = jnp.asarray(array)
    return Constant(array.aval, array, name)


def meshes(count: int) -> list[SliceMesh]:
    made = pw.make_virtual_device_set()
    return [default_mesh(made.add_slice(devices=1)) for _ in range(count)]


def loose(function: Callable[..., Any], *operands: Value, scope: str = "") -> Loose:
    """Returns the node of a function of one equation."""
    jaxpr = _jax.make_jaxpr(function)(*(compat.struct(o.aval) for o in operands))
    (eqn,) = jaxpr.eqns
    names = dict(zip(jaxpr.jaxpr.invars, operands, strict=True))
    taken = [a if isinstance(a, compat.Literal) else names[a] for a in eqn.invars]
    return Loose((eqn,), taken, [Value(v.aval) for v in eqn.outvars], scope, None)


def call(mesh: SliceMesh, *inputs: Value, results: Sequence[Value] | None = None, prints: bool = False) -> Call:
    """Returns a placed call that gives a value like its first input, or these results."""

    def function(x: Any) -> Any:
        if prints:
            jax.debug.callback(lambda _: None, x)
        return x

    callee = Callee("f", _jax.make_jaxpr(function)(1.0), (), ())
    return Call(callee, mesh, [*inputs], [*results] if results else [Value(inputs[0].aval)], None)


def move(mesh: SliceMesh, source: Value) -> ExplicitMove:
    return ExplicitMove(mesh, ((),) * len(source.aval.shape), source, Value(source.aval), None)


def graph(inputs: Sequence[Value], nodes: Sequence[GraphNode], outputs: Sequence[Value]) -> TracedGraph:
    return TracedGraph([*inputs], [*nodes], [*outputs])


def names(made: TracedGraph) -> list[str]:
    """Names the nodes of a graph: their primitives, or their kinds."""
    return [
        "+".join(e.primitive.name for e in node.eqns) if isinstance(node, Loose) else type(node).__name__
        for node in made.nodes
    ]


def together(nodes: list[Loose]) -> Loose:
    """Joins nodes of one equation each into one node."""
    return joined([HeldBack(node.eqns, node.operands, node.outputs, node.scope, node.where) for node in nodes])
