"""Tests the traced graph: what is in use, what is dropped, nodes of several equations, and the order of groups."""

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any

import jax
import pytest
from jax import lax
from support.traced_graphs import call, constant, graph, loose, meshes, move, names, together, value

from pathways.compiler.frontends.jax.graph import ControlFlow, GraphNode, Loose, TracedValue, has_effects
from pathways.compiler.frontends.jax.groups import Group, Unit, faces
from pathways.compiler.frontends.jax.order import order
from pathways.dialect.diagnostics import InternalError, Where

_lax: Any = lax


def printing(x: Any) -> Any:
    jax.debug.callback(lambda _: None, x)


def test_a_node_of_several_equations_gives_each_its_operands_and_results() -> None:
    a, b, c = value(3), value(3), value(3)
    parts = [loose(_lax.add, a, b), loose(_lax.tanh, c), loose(lambda x: x * 2.0, c)]
    node = together(parts)
    assert names(graph([], [node], [])) == ["add+tanh+mul"]
    assert node.inputs == [a, b, c, c] and len(node.operands) == 5
    assert [(taken, made) for _, taken, made in node.equations()] == [(p.operands, p.outputs) for p in parts]
    apart = node.apart()
    assert [(n.eqns, n.operands, n.outputs) for n in apart] == [(p.eqns, p.operands, p.outputs) for p in parts]
    assert parts[0].apart() == [parts[0]]


def united(sets: Iterable[int]) -> int:
    """Unites sets that are bits of integers."""
    return reduce(or_, sets, 0)


@pytest.mark.parametrize(
    ("found", "takes"),
    [
        ([1, 2], {1, 2}),
        ([4, 4], {4}),
    ],
)
def test_each_equation_takes_the_union_of_its_operands(found: list[int], takes: set[int]) -> None:
    a, b = value(3), value(3)
    same = together([loose(_lax.tanh, a), loose(_lax.tanh, b)])
    assert same.each_takes(found, united) == takes
    assert same.each_makes(found, united) == takes
    single = loose(_lax.add, a, b)
    assert single.each_takes(found, united) == {found[0] | found[1]}


def test_equations_of_other_widths_take_the_union_of_theirs() -> None:
    a, b, c, d = (value(3) for _ in range(4))
    pairs = together([loose(_lax.add, a, b), loose(_lax.add, c, d)])
    assert pairs.each_takes([1, 2, 4, 8], united) == {3, 12}
    assert pairs.each_takes([1, 2, 1, 2], united) == {3}
    assert pairs.each_takes([1, 2, 1, 4], united) == {3, 5}
    mixed = together([loose(_lax.add, a, b), loose(_lax.tanh, c)])
    assert mixed.each_takes([1, 2, 4], united) == {3, 4}
    literal = together([loose(lambda x: x * 2.0, a), loose(_lax.add, c, d)])
    assert literal.each_takes([1, 2, 4], united) == {1, 6} and literal.each_takes([1, 2, 1], united) == {1, 3}
    several = together([loose(lambda x: _lax.top_k(x, 2), a), loose(_lax.tanh, b)])
    assert several.each_makes([1, 2, 4], united) == {3, 4}
    assert loose(lambda x: _lax.top_k(x, 2), a).each_makes([1, 2], united) == {3}


def test_constants_are_found_once_in_order_of_first_use() -> None:
    first, second, third = constant([1.0], "a"), constant([2.0], "b"), constant([3.0], "c")
    one = loose(_lax.add, second, first)
    made = graph([], [one, loose(_lax.add, first, one.outputs[0])], [third, second])
    assert [c.name for c in made.constants()] == ["b", "a", "c"]
    assert made.used() == {second, first, one.outputs[0], third}


def test_what_no_result_needs_is_dropped() -> None:
    (mesh,) = meshes(1)
    a = value(3)
    used, unused = loose(_lax.tanh, a), loose(_lax.exp, a)
    behind = call(mesh, used.outputs[0])
    also_unused = call(mesh, unused.outputs[0])
    made = graph([a], [used, unused, also_unused, behind], behind.outputs)
    made.prune()
    assert made.nodes == [used, behind]


def test_what_a_move_takes_is_needed() -> None:
    (mesh,) = meshes(1)
    a = value(3)
    made = loose(_lax.tanh, a)
    moved = move(mesh, made.outputs[0])
    one = graph([a], [made, moved], moved.outputs)
    one.prune()
    assert one.nodes == [made, moved] and one.used() == {a, *made.outputs, *moved.outputs}


def test_calls_of_one_traced_function_have_the_same_key() -> None:
    (mesh,) = meshes(1)
    one, other = call(mesh, value(3)).callee, call(mesh, value(3)).callee
    assert replace(one).key == one.key != other.key
    assert replace(one, name="g").key != one.key != replace(one, in_shardings=(None,)).key
    assert replace(one, out_shardings=(None,)).key not in (one.key, replace(one, in_shardings=(None,)).key)


def test_equations_that_are_not_needed_are_taken_out_of_their_node() -> None:
    a, b = value(3), value(3)
    parts = [loose(_lax.tanh, a), loose(_lax.exp, a), loose(_lax.sin, b)]
    whole = together(parts)
    made = graph([a, b], [whole], whole.outputs)
    made.prune()
    assert made.nodes == [whole]
    made.outputs = [whole.outputs[2], whole.outputs[0]]
    made.prune()
    assert names(made) == ["tanh", "sin"]


def test_nodes_with_effects_stay() -> None:
    (mesh,) = meshes(1)
    a = value(3)
    prints, calls, quiet = loose(printing, a), call(mesh, a, prints=True), call(mesh, a)
    inside = ControlFlow("while", [graph([a], [quiet], []), graph([a], [quiet, prints], [])], [a], [], None)
    silent = ControlFlow("while", [graph([a], [quiet], [])], [a], [], None)
    nodes: list[GraphNode] = [prints, quiet, calls, move(mesh, a), inside, silent, loose(_lax.tanh, a)]
    assert [has_effects(n) for n in nodes] == [True, False, True, False, True, False, False]
    assert has_effects(together([loose(_lax.tanh, a), loose(printing, a)]))
    made = graph([a], nodes, [])
    made.prune()
    assert made.nodes == [prints, calls, inside]


def test_the_bodies_of_a_choice_take_all_but_its_number() -> None:
    a, b = value(), value(3)
    assert ControlFlow("cond", [], [a, b], [], None).taken == [b]
    assert ControlFlow("while", [], [a, b], [], None).taken == [a, b]


def group(mesh: Any, *operations: Loose, depends: bool = False, span: tuple[int, int] = (0, 0)) -> Group:
    inputs, outputs = faces(operations, lambda _: True)
    return Group(mesh, [*operations], inputs, outputs, depends, span)


def test_the_faces_of_a_group_are_what_it_reads_of_others_and_what_is_taken() -> None:
    a, b = value(3), value(3)
    first = loose(_lax.add, b, a)
    second = loose(_lax.add, first.outputs[0], b)
    assert faces([first, second], lambda _: True) == ([b, a], [first.outputs[0], second.outputs[0]])
    assert faces([first, second], second.outputs.__contains__) == ([b, a], second.outputs)


def test_a_group_is_named_by_its_scope_or_by_its_operations() -> None:
    (mesh,) = meshes(1)
    a = value(3)
    assert group(mesh, loose(_lax.tanh, a, scope="net"), loose(_lax.exp, a, scope="net")).name == "net"
    assert group(mesh, loose(_lax.tanh, a, scope="net"), loose(_lax.exp, a)).name == "tanh_exp"
    assert group(mesh, loose(_lax.tanh, a), loose(_lax.tanh, a)).name == "tanh"
    assert group(mesh, loose(_lax.tanh, a), loose(_lax.exp, a), loose(_lax.sin, a)).name == "tanh_to_sin"
    line = Where("m.py", 3)
    with_line = loose(_lax.tanh, a)
    with_line.where = line
    assert group(mesh, loose(_lax.tanh, a)).where is None
    assert group(mesh, loose(_lax.tanh, a), with_line).where == line


def of(x: TracedValue, function: Any = _lax.tanh) -> Loose:
    return loose(function, x)


def test_calls_stay_in_the_order_of_the_program() -> None:
    (mesh,) = meshes(1)
    a, b = value(3), value(3)
    calls = [call(mesh, a), call(mesh, b), call(mesh, a)]
    made = graph([a, b], calls, [])
    assert order(made, [calls[2], calls[0], calls[1]]) == calls


def test_a_group_that_depends_on_a_call_runs_as_soon_as_its_last_input_is_there() -> None:
    (mesh,) = meshes(1)
    a = value(3)
    calls = [call(mesh, a) for _ in range(4)]
    operation = loose(_lax.add, calls[0].outputs[0], calls[1].outputs[0])
    made = graph([a], [*calls, operation], [])
    added = group(mesh, operation, depends=True, span=(4, 4))
    assert order(made, [*calls, added]) == [calls[0], calls[1], added, calls[2], calls[3]]
    behind = of(operation.outputs[0])
    made.nodes.append(behind)
    other = group(mesh, behind, depends=True, span=(5, 5))
    assert order(made, [other, added, *calls])[-1] is other, "the span of a group is where its input is made"


def test_a_group_of_arguments_runs_just_before_its_first_consumer() -> None:
    (mesh,) = meshes(1)
    a = value(3)
    operation = of(a)
    first = call(mesh, a)
    second, third = call(mesh, operation.outputs[0]), call(mesh, operation.outputs[0])
    made = graph([a], [operation, first, second, third], [])
    cut = group(mesh, operation, span=(0, 0))
    assert order(made, [cut, first, second, third]) == [first, cut, second, third]
    deeper = of(operation.outputs[0])
    last = call(mesh, deeper.outputs[0])
    chain = graph([a], [operation, deeper, first, last], [])
    two = group(mesh, deeper, span=(1, 1))
    assert order(chain, [cut, two, first, last]) == [first, cut, two, last]


def test_a_group_of_arguments_without_consumers_runs_where_the_program_has_it() -> None:
    (mesh,) = meshes(1)
    a = value(3)
    calls = [call(mesh, a), call(mesh, a)]
    operation = of(a)
    made = graph([a], [calls[0], operation, calls[1]], [])
    alone = group(mesh, operation, span=(1, 1))
    units: list[Unit] = [*calls, alone]
    assert order(made, units) == [calls[0], alone, calls[1]]


def test_groups_that_need_each_other_are_an_internal_error() -> None:
    (mesh,) = meshes(1)
    a, b = value(3), value(3)
    one, other = of(a), of(b)
    one.outputs, other.outputs = [b], [a]
    made = graph([], [one, other], [])
    with pytest.raises(InternalError):
        order(made, [group(mesh, one), group(mesh, other)])
