"""Tests what is made of numbers: zeros that are added, what is copied to its consumers, and where values come from."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support.traced_graphs import call, graph, loose, meshes, move, names, together, value

from pathways.compiler.frontends.jax.constants import read_constant
from pathways.compiler.frontends.jax.graph import Loose, TracedGraph, TracedValue
from pathways.compiler.frontends.jax.homes import Homes, find_homes
from pathways.compiler.frontends.jax.origins import PER_NODE, first_origins, in_order_of_origins
from pathways.compiler.frontends.jax.scalars import MAX_OPERATIONS, copy_scalars
from pathways.compiler.frontends.jax.sink import LARGEST_COPIED, sink, substitute
from pathways.compiler.frontends.jax.zeros import drop_added_zeros
from pathways.dialect.dtypes import ArrayType

_lax: Any = lax


def filled(number: float, *shape: int) -> Loose:
    return loose(lambda: _lax.broadcast(number, shape))


@pytest.mark.parametrize("first", [True, False])
def test_what_is_added_to_zeros_is_read_in_place_of_the_sum(first: bool) -> None:
    a = value(3)
    zero = filled(0.0, 3)
    pair = (zero.outputs[0], a) if first else (a, zero.outputs[0])
    added = loose(_lax.add, *pair)
    behind = loose(_lax.tanh, added.outputs[0])
    made = graph([a], [zero, added, behind], [behind.outputs[0], added.outputs[0]])
    drop_added_zeros(made)
    assert made.nodes == [behind] and behind.operands == [a]
    assert made.outputs == [behind.outputs[0], a]


def test_a_chain_of_sums_that_begins_with_zeros_is_the_first_addend() -> None:
    a, b = value(3), value(3)
    zero = filled(0.0, 3)
    first = loose(_lax.add, zero.outputs[0], a)
    second = loose(_lax.add, first.outputs[0], b)
    made = graph([a, b], [zero, first, second], second.outputs)
    drop_added_zeros(made)
    assert made.nodes == [second] and second.operands == [a, b]


@pytest.mark.parametrize(
    ("start", "function"), [(1.0, _lax.add), (0.0, _lax.sub), (0.0, _lax.mul)], ids=["ones", "sub", "mul"]
)
def test_other_operations_and_numbers_stay(start: float, function: Any) -> None:
    a = value(3)
    zero = filled(start, 3)
    made = loose(function, zero.outputs[0], a)
    nodes = [zero, made]
    one = graph([a], nodes, made.outputs)
    drop_added_zeros(one)
    assert one.nodes == nodes and one.outputs == made.outputs


def test_sums_of_zeros_alone_and_of_zeros_that_are_copies_stay() -> None:
    a = value(3)
    zero, other = filled(0.0, 3), filled(0.0, 3)
    both = loose(_lax.add, zero.outputs[0], other.outputs[0])
    made = graph([], [zero, other, both], both.outputs)
    drop_added_zeros(made)
    assert names(made) == ["broadcast_in_dim", "broadcast_in_dim", "add"]
    doubled = loose(_lax.add, a, a)
    plain = graph([a], [zero, doubled], [*doubled.outputs, *zero.outputs])
    drop_added_zeros(plain)
    assert names(plain) == ["broadcast_in_dim", "add"]
    follower = filled(0.0, 3)
    added = loose(_lax.add, follower.outputs[0], a)
    follower.follows = added
    kept = graph([a], [follower, added], added.outputs)
    drop_added_zeros(kept)
    assert kept.nodes == [follower, added]


def test_a_sum_of_another_type_than_its_addend_stays() -> None:
    """A number of no type of its own makes no sum of its own type."""
    a = TracedValue(value(3).aval.update(weak_type=True))
    zero = filled(0.0, 3)
    added = loose(_lax.add, zero.outputs[0], value(3))
    added.read([zero.outputs[0], a])
    made = graph([a], [zero, added], added.outputs)
    drop_added_zeros(made)
    assert made.nodes == [zero, added]


def test_of_joined_sums_those_with_zeros_are_dropped() -> None:
    (mesh,) = meshes(1)
    a, b, c = value(3), value(3), value(3)
    zeros = together([filled(0.0, 3), filled(1.0, 3)])
    sums = together([loose(_lax.add, zeros.outputs[0], a), loose(_lax.add, zeros.outputs[1], b)])
    after = call(mesh, sums.outputs[0])
    made = graph([a, b, c], [zeros, sums, after, loose(_lax.tanh, c)], [*after.outputs, sums.outputs[1]])
    drop_added_zeros(made)
    assert names(made) == ["broadcast_in_dim", "add", "Call"]
    assert after.inputs == [a] and made.outputs == [*after.outputs, sums.outputs[1]]


def test_what_is_made_of_nothing_is_copied_to_each_consumer() -> None:
    (mesh,) = meshes(1)
    a = value(3)
    ones = filled(1.0, 3)
    scaled = loose(lambda x: x * 2.0, ones.outputs[0])
    adding = loose(_lax.add, a, scaled.outputs[0])
    taking = call(mesh, scaled.outputs[0], ones.outputs[0])
    made = graph([a], [ones, scaled, adding, taking], [*adding.outputs, *taking.outputs])
    sink(made)
    assert names(made) == ["broadcast_in_dim", "mul", "add", "broadcast_in_dim", "mul", "Call"]
    follows = [n.follows for n in made.nodes if isinstance(n, Loose)]
    assert follows == [adding, adding, None, None, None]
    first = made.nodes[0]
    assert first.outputs[0] is not ones.outputs[0] and adding.operands == [a, made.nodes[1].outputs[0]]
    assert taking.inputs == [made.nodes[4].outputs[0], made.nodes[3].outputs[0]], "one copy for both"


def test_operations_of_arguments_and_costly_ones_are_not_copied() -> None:
    a = value(3)
    ones = filled(1.0, 3)
    costly = loose(_lax.tanh, ones.outputs[0])
    mixed = loose(_lax.add, ones.outputs[0], a)
    uses = [loose(_lax.exp, v.outputs[0]) for v in (costly, mixed, costly, mixed)]
    made = graph([a], [ones, costly, mixed, *uses], [u.outputs[0] for u in uses])
    sink(made)
    assert names(made) == ["broadcast_in_dim", "tanh", "broadcast_in_dim", "add"] + ["exp"] * 4


def chain(start: Loose, length: int) -> list[Loose]:
    nodes = [start]
    while len(nodes) < length:
        nodes.append(loose(_lax.neg, nodes[-1].outputs[0]))
    return nodes


@pytest.mark.parametrize(("length", "copies"), [(LARGEST_COPIED, 2), (LARGEST_COPIED + 1, 1)])
def test_expressions_of_up_to_eight_operations_are_copied(length: int, copies: int) -> None:
    nodes = chain(filled(1.0, 3), length)
    uses = [loose(_lax.exp, nodes[-1].outputs[0]) for _ in range(2)]
    made = graph([], [*nodes, *uses], [u.outputs[0] for u in uses])
    sink(made)
    assert names(made).count("broadcast_in_dim") == copies
    assert LARGEST_COPIED == 8


def test_joined_equations_that_read_a_copy_are_taken_apart() -> None:
    a = value(3)
    ones = filled(1.0, 3)
    both = together([loose(_lax.tanh, a), loose(_lax.exp, ones.outputs[0])])
    other = together([loose(_lax.tanh, a), loose(_lax.exp, a)])
    made = graph([a], [ones, both, other], [*both.outputs, *other.outputs])
    sink(made)
    assert names(made) == ["tanh", "broadcast_in_dim", "exp", "tanh+exp"]


def test_every_kind_of_node_reads_the_values_that_are_put_in_place_of_others() -> None:
    (mesh,) = meshes(1)
    a, b, c = value(3), value(3), value(3)
    operation, calling, moving = loose(lambda x, y: _lax.add(x, y), a, b), call(mesh, a, b), move(mesh, a)
    for node in (operation, calling, moving):
        substitute(node, {a: c})
    assert (operation.inputs, operation.operands, calling.inputs, moving.source) == ([c, b], [c, b], [c, b], c)
    substitute(moving, {a: b})
    assert moving.source is c


def test_an_array_comes_of_the_first_call_that_made_an_array_of_its_shape() -> None:
    (mesh,) = meshes(1)
    a, other = value(3), value(2)
    early = call(mesh, a, results=[value(2), value(3)])
    late = call(mesh, a, results=[value(3)])
    norm = loose(lambda x: _lax.reduce_sum_p.bind(x, axes=(0,), out_sharding=None), early.outputs[0])
    plain = loose(_lax.tanh, late.outputs[0])
    scaled = loose(_lax.mul, late.outputs[0], early.outputs[1])
    sliced = loose(lambda x: _lax.slice(x, (0,), (2,)), late.outputs[0])
    free = loose(_lax.tanh, other)
    nodes = [early, late, norm, plain, scaled, sliced, free, filled(1.0, 3)]
    found = {v: divmod(origin, PER_NODE) for v, origin in first_origins(graph([a, other], nodes, [])).items()}
    assert [found[v] for v in early.outputs] == [(0, 0), (0, 1)] and found[late.outputs[0]] == (1, 0)
    assert [found[n.outputs[0]] for n in nodes[2:]] == [(0, 0), (1, 0), (0, 1), (1, 0), (8, 0), (8, 0)]


def test_numbers_do_not_say_what_an_array_comes_of() -> None:
    (mesh,) = meshes(1)
    a = value(3)
    early, late = call(mesh, a, results=[value()]), call(mesh, a, results=[value(3)])
    spread = loose(lambda x, y: _lax.clamp(x, y, 5.0), early.outputs[0], late.outputs[0])
    number = loose(_lax.tanh, early.outputs[0])
    found = first_origins(graph([a], [early, late, spread, number], []))
    assert (found[spread.outputs[0]], found[number.outputs[0]]) == (PER_NODE, 0)


def test_operations_are_sorted_by_what_they_come_of() -> None:
    (mesh,) = meshes(1)
    a = value(3)
    calls = [call(mesh, a) for _ in range(3)]
    ones = filled(1.0, 3)
    members = [loose(_lax.mul, calls[k].outputs[0], ones.outputs[0]) for k in (1, 0)]
    again = loose(_lax.tanh, calls[0].outputs[0])
    origins = first_origins(graph([a], [*calls, ones, *members, again], []))
    assert in_order_of_origins([ones, *members, again], origins) == [ones, members[1], again, members[0]]
    assert in_order_of_origins([*members, again, ones], origins) == [ones, members[1], again, members[0]]


def test_operations_without_results_come_first_on_every_stage() -> None:
    """Computations of equal stages then have the same order and the same name."""
    (mesh,) = meshes(1)
    a = value(3)
    calls = [call(mesh, a) for _ in range(3)]
    for made in calls:
        operation = loose(_lax.tanh, made.outputs[0])
        printed = loose(lambda x: jax.debug.callback(lambda _: None, x), made.outputs[0])
        origins = first_origins(graph([a], [*calls, operation, printed], []))
        (one,) = in_order_of_origins([operation, printed], origins)
        assert one.eqns == (*printed.eqns, *operation.eqns) and one.outputs == operation.outputs


def learning_rate(steps: int) -> tuple[TracedGraph, Any]:
    """Returns a graph in which a number made of an argument, in so many steps, is used on two slices."""
    first, second = meshes(2)
    count, a = value(), value(3)
    nodes = [loose(_lax.neg, count)]
    while len(nodes) < steps:
        nodes.append(loose(_lax.neg, nodes[-1].outputs[0]))
    rate = nodes[-1].outputs[0]
    calls = [call(first, a), call(second, a)]
    uses = [loose(lambda r, x: _lax.clamp(r, x, 5.0), rate, c.outputs[0]) for c in calls]
    return graph([count, a], [*nodes, *calls, *uses], [u.outputs[0] for u in uses]), uses


@pytest.mark.parametrize(
    ("steps", "copied"), [(1, True), (3, True), (MAX_OPERATIONS, True), (MAX_OPERATIONS + 1, False)]
)
def test_a_number_made_of_arguments_is_computed_where_it_is_used(steps: int, copied: bool) -> None:
    made, uses = learning_rate(steps)
    homes = find_homes(made)
    copy_scalars(made, homes)
    assert names(made).count("neg") == (2 if copied else 1) * steps
    assert names(made).count("Call") == 2
    assert (uses[0].operands[0] is not uses[1].operands[0]) == copied
    assert [homes.crosses(u.inputs[0], u) for u in uses].count(True) == (0 if copied else 1)
    assert MAX_OPERATIONS == 32


def test_an_operation_goes_where_most_of_its_bytes_are() -> None:
    first, second = meshes(2)
    small, large = value(2), value(3)
    on = [call(first, small, results=[value(3)]), call(second, large, results=[value(3), value(3)])]
    most = loose(lambda a, b, c: _lax.clamp(a, b, c), on[0].outputs[0], *on[1].outputs)
    tie = loose(_lax.add, on[0].outputs[0], on[1].outputs[0])
    other = loose(_lax.add, on[1].outputs[0], on[0].outputs[0])
    found = find_homes(
        graph([small, large], [*on, most, tie, other], [most.outputs[0], tie.outputs[0], other.outputs[0]])
    )
    assert [found.nodes[n] for n in (most, tie, other)] == [second, first, second]


def test_what_depends_on_no_placed_value_goes_to_its_first_consumer() -> None:
    first, second = meshes(2)
    a = value(3)
    operation = loose(_lax.tanh, a)
    early, late = call(second, operation.outputs[0]), call(first, operation.outputs[0])
    found = find_homes(graph([a], [operation, early, late], [*early.outputs, *late.outputs]))
    assert found.nodes[operation] == second and found.values[a] == second


def test_equal_meshes_are_one_home() -> None:
    (mesh,) = meshes(1)
    (other,) = meshes(1)
    a = value(3)
    node = loose(_lax.tanh, a)
    homes = Homes()
    homes.settle(node, mesh)
    for there, crosses in ((mesh, False), (type(mesh)(mesh.slice, mesh.spec), False), (other, True)):
        homes.values[a] = there
        assert homes.crosses(a, node) == crosses
    both = together([loose(_lax.tanh, a), loose(_lax.exp, a)])
    homes.settle(both, other)
    assert [homes.nodes[m] for m in homes.apart(both)] == [other, other]


def test_a_constant_is_read_in_its_stored_form() -> None:
    stored = ArrayType((2, 3), "float32")
    for array in (np.arange(6.0).reshape(3, 2).T, jnp.arange(6).reshape(2, 3), np.float64(np.ones((2, 3)))):
        found = read_constant(array, stored)
        assert (found.shape, found.dtype, found.flags.c_contiguous) == ((2, 3), np.float32, True)
        np.testing.assert_array_equal(found, np.asarray(array))
    key: Any = jax.random.key(7)
    np.testing.assert_array_equal(read_constant(key, ArrayType((2,), "uint32")), jax.random.key_data(key))
    assert read_constant(3, ArrayType((), "float32")).shape == ()
