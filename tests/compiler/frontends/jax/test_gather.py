"""Tests which unplaced operations share a computation."""

from typing import Any

from jax import lax
from support.traced_graphs import call, graph, loose, meshes, value

from pathways.compiler.frontends.jax.gather import gather
from pathways.compiler.frontends.jax.graph import GraphNode, TracedGraph, TracedValue
from pathways.compiler.frontends.jax.groups import Group
from pathways.compiler.frontends.jax.homes import find_homes

_lax: Any = lax


def groups(made: TracedGraph) -> list[list[str]]:
    """Returns the primitives of each group of unplaced operations."""
    units = gather(made, find_homes(made))
    return [[e.primitive.name for n in unit.operations for e in n.eqns] for unit in units if isinstance(unit, Group)]


def of_one_call(sent: bool) -> TracedGraph:
    """Returns a graph of two operations on one call's result. Another mesh reads one of them if `sent`."""
    first, second = meshes(2)
    a, b = value(3), value(3)
    here, there = call(first, a), call(second, b)
    stays, leaves = loose(_lax.tanh, here.outputs[0]), loose(_lax.exp, here.outputs[0])
    nodes: list[GraphNode] = [here, there, stays, leaves]
    outputs: list[TracedValue] = [*stays.outputs, *there.outputs, *leaves.outputs]
    if sent:
        added = loose(_lax.add, there.outputs[0], leaves.outputs[0])
        nodes, outputs = [*nodes, added], [*stays.outputs, *added.outputs]
    return graph([a, b], nodes, outputs)


def test_what_another_mesh_reads_does_not_wait_for_what_stays() -> None:
    assert sorted(groups(of_one_call(sent=True))) == [["add"], ["exp"], ["tanh"]]


def test_operations_after_and_before_the_same_calls_share_a_computation() -> None:
    assert groups(of_one_call(sent=False)) == [["tanh", "exp"]]
