"""Tests each term of the cost model against values computed by hand, and placements that fill islands."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.random_graphs import make_graph

import pathways as pw
from pathways.compiler.driver import Compilation
from pathways.compiler.passes.base import Session
from pathways.compiler.placement import POLICIES, CostModel, SliceRequest
from pathways.compiler.placement.cost import DCN_TIEBREAK_WEIGHT
from pathways.compiler.placement.problem import FreeDevices, build_graph
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.phases import Phase
from pathways.dialect.topology import Island, Topology, parse_topology

GB = 10**9
PAIR = Topology(
    (
        Island("a", 8, flops=1e12, efficiency=1.0, ici_gbps=10.0),
        Island("b", 8, flops=1e12, efficiency=1.0, ici_gbps=40.0),
    ),
    dcn_gbps=1.0,
)


def pair(first: int, second: int, size: int = GB) -> CostModel:
    """Returns the model of two stages without work, and a transfer from one to the other."""
    slices = [SliceRequest("s0", first), SliceRequest("s1", second)]
    return CostModel(make_graph(slices, [("s0", 0.0), ("s1", 0.0)], {(0, 1): size}), PAIR)


@pytest.mark.parametrize(("first", "second", "lanes"), [(1, 1, 1), (2, 4, 4), (4, 2, 2), (1, 8, 8), (4, 4, 4)])
def test_a_transfer_inside_an_island_takes_all_links_that_it_reaches(first: int, second: int, lanes: int) -> None:
    for island, rate in (("a", 10e9), ("b", 40e9)):
        found = pair(first, second).estimate({"s0": island, "s1": island})
        assert found.critical_path == pytest.approx(GB / (rate * lanes))
        assert (found.dcn_bytes, found.busiest_link) == (0, 0.0)


def test_a_transfer_between_islands_has_the_rate_of_the_network() -> None:
    for first, second in ((1, 1), (4, 8)):
        found = pair(first, second).estimate({"s0": "a", "s1": "b"})
        assert found.critical_path == found.busiest_link == found.dcn_seconds == pytest.approx(1.0)


def test_a_link_carries_inbound_and_outbound_bytes() -> None:
    """The middle one of three islands receives a gigabyte and sends two."""
    slices = [SliceRequest(f"s{i}", 1) for i in range(3)]
    graph = make_graph(slices, [(s.symbol, 0.0) for s in slices], {(0, 1): GB, (1, 2): 2 * GB})
    topology = Topology(tuple(Island(f"i{n}", 1) for n in range(3)), dcn_gbps=1.0)
    found = CostModel(graph, topology).estimate({f"s{n}": f"i{n}" for n in range(3)})
    assert (found.busiest_link, found.dcn_bytes, found.critical_path) == (3.0, 3 * GB, 3.0)
    model = CostModel(graph, topology)
    assert model.estimate({"s0": "i0", "s1": "i1", "s2": "i1"}).busiest_link == 1.0


def test_traffic_between_islands_adds_a_thousandth_to_the_cost() -> None:
    """The cost adds a thousandth of all traffic between islands, even if other work takes longer."""
    slices = [SliceRequest("s0", 1), SliceRequest("s1", 1)]
    graph = make_graph(slices, [("s0", 1e14), ("s1", 0.0)], {(1, 0): GB})
    model = CostModel(graph, PAIR)
    apart, together = model.estimate({"s0": "a", "s1": "b"}), model.estimate({"s0": "a", "s1": "a"})
    assert (
        apart.seconds - together.seconds == pytest.approx(1.0 - 0.1)
        and apart.cost == apart.seconds + DCN_TIEBREAK_WEIGHT
    )
    assert together.cost == together.seconds


def test_calls_on_one_slice_run_one_after_another() -> None:
    slices = [SliceRequest("s0", 2)]
    graph = make_graph(slices, [("s0", 4e12), ("s0", 2e12)], {})
    found = CostModel(graph, PAIR).estimate({"s0": "a"})
    assert (found.critical_path, found.busiest_slice, found.seconds) == (2.0, 3.0, 3.0)


@pytest.mark.parametrize("values", [1, 2])
def test_a_value_with_many_consumers_is_transferred_once(values: int) -> None:
    made = pw.make_virtual_device_set()
    here, there = (NamedSharding(made.add_slice(devices=1).mesh("x"), P()) for _ in range(2))
    jit: Any = jax.jit
    f, *takers = jit(jnp.sin, in_shardings=here), *(jit(t, in_shardings=there) for t in (jnp.cos, jnp.tanh, jnp.exp))
    program = pw.program(lambda x: [[t(y) for t in takers] for y in [f(x + i) for i in range(values)]])
    lowered = program.lower(np.ones(256, np.float32))
    compilation = Compilation(ProgramIR(lowered.module), lowered.constants, Session(parse_topology("devices=2")))
    compilation.advance(Phase.SHARD)
    assert build_graph(compilation.program, {}).graph["traffic"] == {("s0", "s1"): values * 1024}


def test_a_slice_fits_an_island_with_exactly_enough_memory() -> None:
    for have, fits in ((100, True), (99, False), (None, True)):
        assert SliceRequest("s0", 1, memory=100).fits(Island("a", 1, memory=have)) is fits


def test_a_slice_goes_to_the_fullest_host_that_has_room() -> None:
    """This leaves emptier hosts for larger slices."""
    free = FreeDevices(Topology((Island("a", devices=4, hosts=2),)), [])
    assert free.take(SliceRequest("s0", 3), "a").devices == (0, 1, 2)
    assert free.take(SliceRequest("s1", 1), "a").devices == (3,)
    assert free.take(SliceRequest("s2", 1), "a").devices == (4,)
    assert free.take(SliceRequest("s3", 3), "a").devices == (5, 6, 7)
    free = FreeDevices(Topology((Island("a", devices=4, hosts=3),)), [])
    for taken in (3, 2):
        free.take(SliceRequest("s", taken), "a")
    assert free.take(SliceRequest("s", 2), "a").devices == (6, 7)  # the hosts have 1, 2 and 4 free devices


@pytest.mark.parametrize("name", ["spread", "balanced", "min-cut", "optimal"])
def test_slices_that_fill_an_island_to_the_last_device_fit(name: str) -> None:
    slices = [SliceRequest("s0", 4), SliceRequest("s1", 4)]
    graph = make_graph(slices, [("s0", 1e9), ("s1", 1e9)], {(0, 1): GB})
    whole = POLICIES[name](graph, Topology((Island("a", devices=8),)))
    assert {b.island for b in whole.bindings.values()} == {"a"}
    split = POLICIES[name](graph, Topology((Island("a", devices=4), Island("b", devices=4))))
    assert {b.island for b in split.bindings.values()} == {"a", "b"}


def test_min_cut_fills_an_island_to_its_limit() -> None:
    """The last slice joins the slices that it communicates with only as the third slice of their island."""
    slices = [SliceRequest(symbol, devices) for symbol, devices in (("a", 1), ("b", 1), ("c", 2), ("d", 1))]
    graph = make_graph(slices, [(s.symbol, 0.0) for s in slices], {(0, 3): GB, (1, 3): GB})
    found = POLICIES["min-cut"](graph, Topology((Island("i0", devices=3), Island("i1", devices=3))))
    assert len({found.bindings[s].island for s in "abd"}) == 1


def test_balanced_compares_the_busiest_slices_of_splits() -> None:
    """Slices of one island are different devices, so their work is not added up."""
    slices = [SliceRequest(f"s{i}", 1) for i in range(5)]
    calls = [("s0", 4e9), *((f"s{i}", 1e9) for i in range(1, 5))]
    graph = make_graph(slices, calls, {(0, 1): GB, (0, 2): 2 * GB, (1, 2): 4 * GB, (1, 3): 2 * GB})
    islands = (
        Island("fast", 2, flops=2e9, efficiency=1.0, ici_gbps=10.0),
        Island("roomy", 4, flops=1e9, efficiency=1.0, ici_gbps=10.0),
    )
    found = POLICIES["balanced"](graph, Topology(islands, dcn_gbps=1.0))
    assert [found.bindings[s.symbol].island for s in slices] == ["fast", *["roomy"] * 4]


def test_balanced_counts_transfers_of_backward_calls() -> None:
    """Forward sends nothing. Backward, s2 sends s1 four seconds of bytes, so both are on one island."""
    slices = [SliceRequest(f"s{i}", 1) for i in range(3)]
    forward = [("s0", 1e9), ("s1", 2e9), ("s2", 4e9)]
    graph = make_graph(slices, [*forward, ("s2", 4e9), ("s1", 4e9), ("s0", 4e9)], {(3, 4): 4 * GB})
    islands = tuple(Island(f"i{n}", 3, flops=2e9, efficiency=1.0, ici_gbps=10.0) for n in range(2))
    found = POLICIES["balanced"](graph, Topology(islands, dcn_gbps=1.0))
    assert [found.bindings[s.symbol].island for s in slices] == ["i0", "i1", "i1"]


def test_balanced_chooses_the_largest_island_among_equal_costs() -> None:
    slices = [SliceRequest("s0", 1), SliceRequest("s1", 1)]
    graph = make_graph(slices, [("s0", 0.0), ("s1", 0.0)], {})
    for islands in ((Island("small", 2), Island("large", 8)), (Island("large", 8), Island("small", 2))):
        placement = POLICIES["balanced"](graph, Topology(islands))
        assert {b.island for b in placement.bindings.values()} == {"large"}
