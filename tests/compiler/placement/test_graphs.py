"""Tests what placement policies are given: the graph of calls, the memory of slices, and the topology without any."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.compiler.driver import Compilation
from pathways.compiler.passes.base import Session
from pathways.compiler.placement.binding import Binding
from pathways.compiler.placement.calls import ValueSource, placed_calls
from pathways.compiler.placement.default import default_topology, kind_of_made
from pathways.compiler.placement.memory import slice_memory
from pathways.compiler.placement.problem import build_graph, requests
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.records import shown_name
from pathways.dialect.phases import Phase
from pathways.dialect.topology import Island

jit: Any = jax.jit
X = np.ones(256, np.float32)
SIZE = 1024
"""Bytes of X."""


def on(function: Callable[..., Any], devices: int, slices: Any = None, spec: P | None = None, **demands: Any) -> Any:
    """Jits a function on a new slice, its arrays split over the devices."""
    mesh = (slices or pw.make_virtual_device_set()).add_slice(devices=devices, **demands).mesh("x")
    split = NamedSharding(mesh, P("x") if spec is None else spec)
    return jit(function, in_shardings=split, out_shardings=split)


def double(x: Any) -> Any:
    return 2 * x


def less(x: Any) -> Any:
    return x - 1


def power(x: Any, y: Any) -> Any:
    return x**y


def sharded(function: Callable[..., Any], *arguments: Any, **options: Any) -> ProgramIR:
    """Compiles a program until all its shardings are known."""
    lowered = pw.program(function, **options).lower(*(arguments or (X,)))
    compilation = Compilation(ProgramIR(lowered.module), lowered.constants, Session(None))
    compilation.advance(Phase.SHARD)
    return compilation.program


def test_each_call_is_a_node_with_its_slice_work_and_line() -> None:
    """Every operation is one flop for each of 256 numbers; what is between two calls runs where its operand is."""
    f, g = on(double, 2), on(less, 1)
    graph = build_graph(sharded(lambda x: g(f(x) * 3)), {})
    nodes = [graph.nodes[n] for n in sorted(graph.nodes)]
    assert [(n["name"], n["slice"], n["devices"], n["gathered"]) for n in nodes] == [
        ("double", "s0", 2, False),
        ("mul", "s0", 2, True),
        ("less", "s1", 1, False),
    ]
    assert [n["bytes"] for n in nodes] == [SIZE] * 3 and [n["flops"] for n in nodes] == [256.0] * 3
    assert all(n["where"].file.endswith("test_graphs.py") for n in nodes)
    assert sorted(graph.edges(data="bytes")) == [(0, 1, SIZE), (1, 2, SIZE)]
    assert graph.graph["traffic"] == {("s0", "s1"): SIZE}


def test_an_edge_has_the_bytes_of_all_values_that_a_call_takes_from_another() -> None:
    """A value is taken twice by one call, and both results of the first call by another."""
    f, g = on(lambda x: (x + 1, x[:128]), 1), on(lambda a, b: a[:128] * b, 1)
    made = build_graph(sharded(lambda x: g(*f(x))), {})
    assert list(made.edges(data="bytes")) == [(0, 1, SIZE + SIZE // 2)] and made.nodes[0]["bytes"] == SIZE + SIZE // 2
    assert made.graph["traffic"] == {("s0", "s1"): SIZE + SIZE // 2}


def test_an_argument_moves_to_each_other_slice_that_takes_it_once() -> None:
    """It lives where it is taken first; its three takers elsewhere are on two slices. Constants do not move."""
    f, g, h = on(double, 1), on(less, 1), on(lambda x: x + np.arange(256, dtype=np.float32), 1)
    made = build_graph(sharded(lambda x: (f(x), g(x), h(x), g(x))), {})
    assert made.graph["traffic"] == {("s0", "s1"): SIZE, ("s0", "s2"): SIZE} and not made.edges


def test_a_value_behind_a_branch_may_be_of_either_body() -> None:
    f, g, h = on(double, 1), on(less, 1), on(jnp.tanh, 1)
    program = sharded(lambda x, n: h(lax.cond(n > 0, f, g, x)), X, np.int32(1))
    made = build_graph(program, {})
    at = {data["name"]: n for n, data in made.nodes(data=True) if not data["gathered"]}
    assert sorted(at) == ["double", "less", "tanh"]
    before = {made.nodes[n]["slice"] for n in made.predecessors(at["tanh"])}
    assert len(before) >= 1 and all(d["bytes"] == SIZE for *_, d in made.edges(data=True))
    symbols = {name: made.nodes[n]["slice"] for name, n in at.items()}
    traffic = {pair: size for pair, size in made.graph["traffic"].items() if pair[1] == symbols["tanh"]}
    assert sum(traffic.values()) == 2 * SIZE  # whichever it is, each body counts


def test_the_results_of_a_loop_are_made_by_its_body_and_not_by_its_condition() -> None:
    f, g, h = on(double, 1), on(less, 1), on(jnp.tanh, 1)
    program = sharded(lambda x: h(lax.while_loop(lambda c: g(c)[0] < 3, f, x)))
    made = build_graph(program, {})
    at = {data["name"]: n for n, data in made.nodes(data=True)}

    def reached(node: int) -> set[int]:
        return {node}.union(*(reached(p) for p in made.predecessors(node)))

    assert at["double"] in reached(at["tanh"]) and at["less"] not in reached(at["tanh"])
    assert [c.number for c in placed_calls(program)] == list(range(len(made.nodes)))


def origins(program: ProgramIR) -> dict[str, list[set[ValueSource]]]:
    """Returns the possible origins of each operand of each call, by the name of the call."""
    return {shown_name(c.node.op): [set(s) for s in c.sources] for c in placed_calls(program)}


def test_an_operand_comes_from_a_call_or_from_an_argument_of_a_slice() -> None:
    """Call 0 makes two results. Arguments have the number -1; the second one is taken by the other slice alone."""

    def f(x: Any) -> Any:
        return x + 1, x[:128]

    def g(a: Any, b: Any, y: Any) -> Any:
        return a[:128] * b * y

    first, second = on(f, 1), on(g, 1)
    found = origins(sharded(lambda x, y: second(*first(x), y), X, X[:128]))
    half = SIZE // 2
    assert found == {
        "f": [{(-1, 0, "s0", SIZE)}],
        "g": [{(0, 0, "s0", SIZE)}, {(0, 1, "s0", half)}, {(-1, 1, "s1", half)}],
    }


def test_constants_have_no_slice_and_no_bytes_in_a_body() -> None:
    """Each slice that needs a constant has a copy of it."""
    f, g = on(double, 1), on(power, 1, spec=P())
    program = sharded(lambda x: lax.while_loop(lambda carry: carry[0] < 3, lambda v: g(f(v), 3.0), x))
    found = origins(program)
    (number,) = {c.number for c in placed_calls(program) if shown_name(c.node.op) == "double"}
    assert found["double"] == [{(-1, 0, "s0", SIZE)}]
    assert found["power"] == [{(number, 0, "s0", SIZE)}, {(-1, -1, "", 0)}]


def test_requests_have_the_demands_of_slices() -> None:
    slices = pw.make_virtual_device_set()
    first = slices.add_slice(devices=2, island="pod")
    near = slices.add_slice(devices=1, island=first)
    f, g = (jit(double, in_shardings=NamedSharding(s.mesh("x"), P())) for s in (first, near))
    program = sharded(lambda x: g(f(x)))
    found = requests(program, {"s1": Binding("pod", (2,))})
    assert [(r.symbol, r.devices, r.pin, r.near, r.bound) for r in found] == [
        ("s0", 2, "pod", None, None),
        ("s1", 1, None, "s0", Binding("pod", (2,))),
    ]
    assert [r.memory for r in found] == [SIZE, SIZE] and all(r.where for r in found)


# ---- memory


def test_arguments_and_results_need_memory_on_their_devices() -> None:
    """The argument is split over two devices, the result over four."""
    f, g = on(double, 2), on(less, 4)
    assert slice_memory(sharded(lambda x: g(f(x)))) == {"s0": SIZE // 2, "s1": SIZE // 4}
    whole, half = on(double, 2, spec=P()), on(less, 2)
    assert slice_memory(sharded(lambda x: half(whole(x)))) == {"s0": SIZE, "s1": SIZE // 2}


@pytest.mark.parametrize(("donate", "needed"), [((), 2 * SIZE), ((0,), SIZE)])
def test_a_donated_argument_makes_room_for_results(donate: tuple[int, ...], needed: int) -> None:
    f = on(double, 1)
    assert slice_memory(sharded(lambda x: f(x), donate_argnums=donate)) == {"s0": needed}


def test_the_memory_of_a_slice_is_that_before_or_after_a_run() -> None:
    """Two donated arguments, one result of half the size: what is there before is more."""
    f = on(lambda x, y: (x + y)[:128], 1)
    assert slice_memory(sharded(lambda x, y: f(x, y), X, X, donate_argnums=(0, 1))) == {"s0": 2 * SIZE}
    assert slice_memory(sharded(lambda x, y: f(x, y), X, X, donate_argnums=(0,))) == {"s0": 2 * SIZE}
    assert slice_memory(sharded(lambda x, y: f(x, y), X, X)) == {"s0": 2 * SIZE + SIZE // 2}


def test_an_argument_or_a_result_that_is_returned_twice_counts_once() -> None:
    f = on(double, 1)
    assert slice_memory(sharded(lambda x: (x, f(x)))) == {"s0": 2 * SIZE}
    assert slice_memory(sharded(lambda x: (x, f(x)), donate_argnums=(0,))) == {"s0": 2 * SIZE}

    def twice(x: Any) -> Any:
        made = f(x)
        return made, made

    assert slice_memory(sharded(twice)) == {"s0": 2 * SIZE}


# ---- topologies of no name


def test_without_a_topology_each_slice_has_an_island_of_its_own() -> None:
    f, g = on(double, 2), on(less, 4)
    kind = kind_of_made("cpu")
    found = default_topology(sharded(lambda x: g(f(x))))
    assert found.islands == (Island("island0", 2, kind=kind), Island("island1", 4, kind=kind))


def test_slices_that_share_an_island_make_a_larger_one() -> None:
    """A name that the user gives an island is not given to another."""
    slices = pw.make_virtual_device_set()
    first = slices.add_slice(devices=2)
    made = [first, slices.add_slice(devices=1, island="island0"), slices.add_slice(devices=4, island=first)]
    f, g, h = (jit(double, in_shardings=NamedSharding(s.mesh("x"), P())) for s in made)
    found = default_topology(sharded(lambda x: h(g(f(x)))))
    assert {i.name: i.size for i in found.islands} == {"island1": 6, "island0": 1}


def test_devices_that_are_not_made_at_will_have_any_kind() -> None:
    assert kind_of_made("tpu") == "any" != kind_of_made("cpu")
