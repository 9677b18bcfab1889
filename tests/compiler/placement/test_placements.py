"""Tests placements under one cost model: they are legal, keep their guarantees, and explain their choices."""

import dataclasses
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support.processes import pwc_here
from support.random_graphs import make_graph, random_chain, random_problem
from support.random_programs import INPUTS, SHAPE, draw

import pathways as pw
from pathways.compiler.computations.flops import flops_of
from pathways.compiler.placement import POLICIES, CostModel, Placement, SliceRequest, find_placement
from pathways.compiler.placement.binding import Binding
from pathways.compiler.placement.memory import slice_memory
from pathways.compiler.placement.problem import FreeDevices, check_placement
from pathways.compiler.placement.runner_up import runners_up
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import make_context, parse
from pathways.dialect.plan.plan_file import load_plan
from pathways.dialect.topology import PRESETS, Island, Topology, parse_topology, write_topology

NAMES = ("spread", "balanced", "min-cut", "optimal")


def placed(name: str, graph: Any, topology: Topology) -> Placement:
    placement = find_placement(name)(graph, topology)
    check_placement(name, placement, graph.graph["slices"], topology)
    assert placement.reasons.keys() == placement.bindings.keys()
    return placement


def cost(placement: Placement, graph: Any, topology: Topology) -> float:
    return CostModel(graph, topology).estimate({s: b.island for s, b in placement.bindings.items()}).cost


@pytest.mark.long("more random examples of the same kind", keep=("8", "2", "4"))
@pytest.mark.parametrize("block", range(10))
def test_optimal_never_costs_more_than_other_policies(block: int) -> None:
    """Compares the costs on 200 random graphs, in blocks."""
    for seed in range(20 * block, 20 * block + 20):
        graph, topology = random_problem(seed)
        costs = {name: cost(placed(name, graph, topology), graph, topology) for name in NAMES}
        assert costs["optimal"] <= min(costs.values()) * (1 + 1e-9), (seed, costs)


def test_balanced_costs_at_most_a_tenth_more_than_optimal_on_chains() -> None:
    for seed in range(200):
        graph, topology = random_chain(seed)
        balanced, optimal = (cost(placed(n, graph, topology), graph, topology) for n in ("balanced", "optimal"))
        assert balanced <= 1.1 * optimal, seed


def test_min_cut_keeps_communicating_slices_on_one_island() -> None:
    """Each of two pairs of slices communicates. `spread`, which ignores traffic, would split both pairs."""
    slices = [SliceRequest(f"s{i}", 2) for i in range(4)]
    calls = [(f"s{i}", 1e6) for i in (0, 2, 1, 3)]
    graph = make_graph(slices, calls, {(0, 1): 1_000_000, (2, 3): 1_000_000})
    topology = Topology(tuple(Island(f"i{i}", devices=4) for i in range(2)))
    at = {s: b.island for s, b in placed("min-cut", graph, topology).bindings.items()}
    assert at["s0"] == at["s2"] != at["s1"] == at["s3"]


def test_estimates_of_two_stages_equal_values_computed_by_hand() -> None:
    """Two stages of one second each exchange a gigabyte: on two islands, and on one."""
    slices = [SliceRequest("s0", 1), SliceRequest("s1", 1)]
    graph = make_graph(slices, [("s0", 1e12), ("s1", 1e12)], {(0, 1): 10**9})
    topology = Topology(
        (Island("a", 2, flops=1e12, efficiency=1.0, ici_gbps=10.0), Island("b", 2, flops=1e12, efficiency=1.0)),
        dcn_gbps=1.0,
    )
    model = CostModel(graph, topology)
    apart, together = model.estimate({"s0": "a", "s1": "b"}), model.estimate({"s0": "a", "s1": "a"})
    assert (apart.critical_path, apart.busiest_slice, apart.busiest_link, apart.dcn_bytes) == (3.0, 1.0, 1.0, 10**9)
    assert together.critical_path == pytest.approx(2.1) and together.dcn_bytes == 0


def test_islands_with_too_little_memory_are_not_chosen() -> None:
    graph = make_graph([SliceRequest("s0", 1, memory=100), SliceRequest("s1", 1, memory=10)], [("s0", 1.0)], {})
    topology = Topology((Island("small", 2, memory=50), Island("large", 1, memory=200)))
    for name in NAMES:
        if name != "balanced":
            assert placed(name, graph, topology).bindings["s0"].island == "large"
    with pytest.raises(PathwaysError, match="at least 100 bytes") as caught:
        find_placement("spread")(graph, Topology((Island("small", 4, memory=50),)))
    assert caught.value.code == "PWC0301"


def test_policies_satisfy_the_demands_of_slices() -> None:
    slices = [
        SliceRequest("s0", 2),
        SliceRequest("s1", 1, kind="big"),
        SliceRequest("s2", 1, near="s1"),
        SliceRequest("s3", 1, pin="c"),
        SliceRequest("s4", 1, bound=Binding("a", (3,))),
    ]
    graph = make_graph(slices, [(r.symbol, 1e9) for r in slices], {(i, i + 1): 1000 for i in range(4)})
    topology = Topology((Island("a", 4), Island("b", 4, kind="big"), Island("c", 4)))
    for name in ("spread", "min-cut", "optimal"):
        placed(name, graph, topology)


def test_a_slice_is_kept_on_one_host() -> None:
    topology = Topology((Island("a", devices=4, hosts=2),))
    slices = [SliceRequest("s0", 3), SliceRequest("s1", 4), SliceRequest("s2", 1)]
    free = FreeDevices(topology, slices)
    assert [free.take(r, "a").devices for r in slices] == [(0, 1, 2), (4, 5, 6, 7), (3,)]


def test_runners_up_name_the_next_best_island_and_its_cost() -> None:
    graph = make_graph([SliceRequest("s0", 1), SliceRequest("s1", 1)], [("s0", 1e9), ("s1", 1e9)], {(0, 1): 10**9})
    topology = Topology(
        (Island("a", 2, flops=1e12, efficiency=1.0), Island("b", 2, flops=1e12, efficiency=1.0)), dcn_gbps=1.0
    )
    found = runners_up(graph, topology, placed("optimal", graph, topology))
    assert found["s0"].startswith("b: 1") and "%)" in found["s0"]
    lone = runners_up(graph, Topology(topology.islands[:1]), placed("spread", graph, Topology(topology.islands[:1])))
    assert lone["s1"] == "none: no other island can take it"
    held = [SliceRequest("s0", 1, pin="a"), SliceRequest("s1", 1), SliceRequest("s2", 1, near="s1")]
    graph = make_graph(held, [("s0", 1e9), ("s1", 1e9), ("s2", 1e9)], {})
    others = runners_up(graph, topology, placed("optimal", graph, topology))
    assert others["s0"] == "none: the user pinned it" and others["s1"] == "none: the user puts it on the island of s2"


def test_a_time_limit_marks_the_plan_as_not_reproducible() -> None:
    compiled = (
        pw.program(lambda x: x + 1).lower(jnp.ones(3)).compile("islands=2,devices=2", placement="optimal:seconds=5")
    )
    assert not compiled.plan.reproducible
    compiled = (
        pw.program(lambda x: x + 1).lower(jnp.ones(3)).compile("islands=2,devices=2", placement="optimal:nodes=5")
    )
    assert compiled.plan.reproducible and compiled.plan.placement.startswith("optimal:nodes=5")
    for options in ("hours=1", "nodes=0", "seconds=-1", "seconds=nan", "nodes=x", ""):
        with pytest.raises(PathwaysError, match="nodes=N and seconds=S"):
            find_placement(f"optimal:{options}")


@pytest.mark.long("all layouts of a model are compiled: 12 s")
def test_layouts_determine_islands_and_invalid_layouts_are_refused(root: Path, tmp_path: Path) -> None:
    sample, plan = str(root / "samples" / "train_lm.py"), tmp_path / "plan.bin"
    arguments = ("compile", sample, "--topology", "islands=2,devices=8", "-o", str(plan), "--layout")
    for layout, islands in (
        ("first_stage | last_stage", ["island0", "island1"]),
        ("first_stage*1 last_stage", ["island0", "island0"]),
        ("| first_stage last_stage", ["island1", "island1"]),
    ):
        exit_code, _, stderr = pwc_here(*arguments, layout)
        assert exit_code == 0, stderr
        assert [s.island for s in load_plan(plan).slices] == islands
    for layout in ("first_stage", "last_stage | first_stage", "first_stage*2", "a | b | c", "first_stage ; last_stage"):
        exit_code, _, stderr = pwc_here(*arguments, layout)
        assert exit_code == 3 and "error[PWC0308]" in stderr, layout
    assert pwc_here(*arguments, "first_stage | last_stage", "--placement", "spread")[0] == 2


def test_presets_have_the_sizes_of_the_papers_machines() -> None:
    sizes = {name: (len(t.islands), t.islands[0].hosts, t.size) for name, t in PRESETS.items()}
    assert sizes["paper-a"] == (1, 512, 2048) and sizes["paper-b"] == (1, 64, 512) and sizes["paper-c"] == (4, 4, 128)
    assert sizes["gpu-host"] == (1, 1, 8) and sizes["gpu-hosts-2"] == (2, 1, 16)
    assert parse_topology("paper-c") is PRESETS["paper-c"]


def test_a_written_topology_reads_back_equal(tmp_path: Path) -> None:
    path = tmp_path / "machines.toml"
    for topology in (*PRESETS.values(), Topology((Island('quo"ted', 3, kind="a b"),), dcn_gbps=0.5)):
        path.write_text(write_topology(topology))
        assert parse_topology(str(path)) == topology


def flops_of_calls(function: Any, *args: Any) -> float:
    program = ProgramIR(pw.program(function).lower(*args).module)
    return sum(flops_of(program.computations[c.callee]) for c in program.calls())


def test_flops_agree_with_xla_and_count_loop_iterations() -> None:
    x, w = jnp.ones((32, 64)), jnp.ones((64, 64))

    def mlp(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ w) @ w

    theirs: Any = jax.jit(mlp).lower(x, w).cost_analysis()
    assert flops_of_calls(mlp, x, w) == pytest.approx(theirs["flops"] + 32 * 64, rel=0.02)
    once = flops_of_calls(lambda x, w: jnp.tanh(x @ w), x, w)
    many = flops_of_calls(lambda x, w: lax.scan(lambda c, _: (jnp.tanh(c @ w), None), x, None, length=7)[0], x, w)
    assert many == pytest.approx(7 * once, rel=0.02)
    batched = flops_of_calls(lambda a, b: jnp.einsum("bij,bjk->bik", a, b), jnp.ones((3, 4, 5)), jnp.ones((3, 5, 6)))
    assert batched == 2 * 3 * 4 * 5 * 6
    image, kernel = jnp.ones((1, 8, 8, 3)), jnp.ones((3, 3, 3, 5))
    convolved = flops_of_calls(
        lambda i, k: lax.conv_general_dilated(i, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
        image,
        kernel,
    )
    assert convolved == 2 * 8 * 8 * 5 * 27


def test_the_error_of_an_illegal_placement_names_all_violations() -> None:
    slices = [dataclasses.replace(SliceRequest(f"s{i}", 2), where=None) for i in range(3)]
    bindings = {"s0": Binding("a", (0,)), "s1": Binding("nowhere", (0, 1))}
    with pytest.raises(PathwaysError) as caught:
        check_placement("mine", Placement(bindings, {}), slices, Topology((Island("a", 4),)))
    text = str(caught.value)
    assert len(caught.value.diagnostics) == 3
    assert "(slice 1 of 3)" in text and "(slice 2 of 3)" in text and "no binding for s2" in text


def test_pwc_passes_lists_every_policy() -> None:
    out = pwc_here("passes")[1]
    assert all(name in out for name in POLICIES)
    assert np.array_equal(sorted(POLICIES), sorted({"spread", "pinned", "balanced", "min-cut", "optimal"}))


@pytest.mark.long("more random examples of the same kind", keep=("0",))
@pytest.mark.parametrize("block", range(3))
def test_the_memory_estimate_of_a_slice_is_a_lower_bound(block: int) -> None:
    """Compares the estimate with the peak of the plan's buffers, on 45 random programs."""
    for seed in range(15 * block, 15 * block + 15):
        placed_program, _ = draw(seed)
        arguments = [jax.ShapeDtypeStruct(SHAPE, "float32")] * INPUTS
        lowered = pw.program(lambda *a, f=placed_program: f(*a)).lower(*arguments)
        program = ProgramIR(parse(lowered.as_text("shard", debug_info=True), make_context()))
        plan = lowered.compile().plan  # each slice has its own island
        for slice_ in plan.slices:
            peak = max((s.peak_bytes for s in plan.streams if s.island == slice_.island), default=0)
            assert slice_memory(program).get(slice_.name, 0) <= peak, seed


def with_demands(seed: int) -> tuple[Any, Topology]:
    """Returns a random problem whose slices may be pinned, kept near each other, or bound already."""
    graph, topology = random_problem(seed)
    rng = random.Random(seed)
    slices = list(graph.graph["slices"])
    for i, request in enumerate(slices):
        match rng.randrange(6):
            case 0:
                slices[i] = dataclasses.replace(request, pin=rng.choice(topology.names), memory=0)
            case 1 if i:
                slices[i] = dataclasses.replace(request, near=slices[i - 1].symbol)
            case 2 if not any(r.bound for r in slices):
                binding = Binding(topology.names[-1], tuple(range(request.devices)))
                slices[i] = dataclasses.replace(request, bound=binding, memory=0)
            case _:
                pass
    graph.graph["slices"] = tuple(slices)
    return graph, topology


@pytest.mark.parametrize("make", [random_problem, with_demands])
def test_optimal_equals_the_optimum_of_a_brute_force_search(make: Any) -> None:
    tried = 0
    for seed in range(120):
        graph, topology = make(seed)
        slices = graph.graph["slices"]
        if len(topology.islands) ** len(slices) > 300:
            continue
        model = CostModel(graph, topology)
        costs = [model.estimate(where).cost for where in legal_assignments(slices, topology)]
        if costs:
            best = placed("optimal", graph, topology)
            assert cost(best, graph, topology) == pytest.approx(min(costs), rel=1e-6), seed
            assert any("bound 0.0%" in reason for reason in best.reasons.values())
            tried += 1
    assert tried > 30


def test_optimal_places_slices_that_greedy_policies_cannot() -> None:
    """Two islands of 11 devices hold 5 + 2 + 2 + 2 and 5 + 3 + 3.

    Placing the largest slices first, or neighbors together, does not find this.
    """
    sizes = (5, 5, 3, 3, 2, 2, 2)
    graph = make_graph([SliceRequest(f"s{i}", n) for i, n in enumerate(sizes)], [("s0", 1.0)], {})
    topology = Topology((Island("a", 11), Island("b", 11)))
    for name in ("spread", "balanced"):
        with pytest.raises(PathwaysError, match="do not fit"):
            find_placement(name)(graph, topology)
    assert "by the mixed-integer program" in placed("optimal", graph, topology).reasons["s0"]


def legal_assignments(slices: tuple[SliceRequest, ...], topology: Topology) -> Iterator[dict[str, str]]:
    for islands in itertools.product(topology.islands, repeat=len(slices)):
        where = {r.symbol: i.name for r, i in zip(slices, islands, strict=True)}
        taken = dict.fromkeys(topology.names, 0)
        for request in slices:
            taken[where[request.symbol]] += request.devices
        legal = all(r.fits(i) for r, i in zip(slices, islands, strict=True))
        legal = legal and all(taken[i.name] <= i.size for i in topology.islands)
        legal = legal and all(r.near is None or where[r.near] == where[r.symbol] for r in slices)
        if legal and all(r.bound is None or r.bound.island == where[r.symbol] for r in slices):
            yield where
