"""Tests the choices and reasons of placement policies on two to four slices, each against an answer found by hand."""

import dataclasses
import itertools
from typing import Any

import pytest
from support.placements import GB, LINE, PAIR, devices, graph, islands, refused, slices
from support.random_graphs import make_graph

from pathways.compiler.placement import POLICIES, CostModel, Placement, SliceRequest, optimal
from pathways.compiler.placement.binding import Binding
from pathways.compiler.placement.cost import traffic_of
from pathways.compiler.placement.find import run_policy
from pathways.compiler.placement.optimal import Optimal
from pathways.compiler.placement.problem import FreeDevices, check_placement
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.topology import Island, Topology

# ---- spread and pinned


def test_spread_takes_the_least_taken_island_and_the_first_of_equals() -> None:
    """Largest slices first: s1, s2, s0. The part of an island that is taken counts, not the number of devices."""
    topology = Topology((Island("a", 4), Island("b", 8)))
    found = POLICIES["spread"](graph(slices(1, 3, 2)), topology)
    assert islands(found) == ["b", "a", "b"] and devices(found) == [(2,), (0, 1, 2), (0, 1)]
    assert found.reasons == {
        "s1": "least loaded of 2 islands (0%)",
        "s2": "the only island with room for it",
        "s0": "least loaded of 2 islands (25%)",
    }


def test_spread_says_which_demand_decided() -> None:
    demands: Any = {
        "s0": {"near": "s1"},
        "s1": {"pin": "b"},
        "s2": {"bound": Binding("a", (1,))},
        "s3": {"kind": "any"},
    }
    found = POLICIES["spread"](graph(slices(1, 1, 1, 1, **demands)), PAIR)
    assert islands(found) == ["b", "b", "a", "a"] and devices(found) == [(1,), (0,), (1,), (0,)]
    assert found.reasons == {
        "s0": "on the island of s1, as the user asked",
        "s1": "pinned to b by the user",
        "s2": "bound by an earlier program",
        "s3": "least loaded of 2 islands (50%)",
    }


def test_slices_with_demands_choose_before_larger_ones() -> None:
    """Two devices of kind `big`; the slice that needs them is smaller than that which fits anywhere."""
    topology = Topology((Island("a", 2, kind="big"), Island("b", 2)))
    found = POLICIES["spread"](graph(slices(2, 1, s1={"kind": "big"})), topology)
    assert islands(found) == ["b", "a"]
    found = POLICIES["spread"](
        graph(slices(2, 2, 1, s1={"kind": "big"}, s2={"pin": "b"})), Topology((Island("c", 2), *topology.islands))
    )
    assert islands(found) == ["c", "a", "b"]


def test_slices_near_each_other_follow_their_leader_wherever_they_stand() -> None:
    requests = slices(2, 1, 1, s0={"near": "s1"}, s1={"near": "s2"}, s2={"pin": "b"})
    topology = Topology((Island("a", 4), Island("b", 4)))
    assert islands(POLICIES["spread"](graph(requests), topology)) == ["b"] * 3


def test_spread_packs_where_balance_leaves_no_room() -> None:
    """Balanced, s0 and s1 go to different islands, and s2 fits on neither."""
    topology = Topology((Island("a", 6), Island("b", 4)))
    found = POLICIES["spread"](graph(slices(4, 3, 3)), topology)
    assert islands(found) == ["b", "a", "a"]
    assert found.reasons["s0"] == "leaves the least room of 2 islands, so that all slices fit"


def test_pinned_binds_every_slice_to_the_island_it_names() -> None:
    requests = slices(1, 1, 1, 1, s0={"pin": "b"}, s1={"near": "s0"}, s2={"bound": Binding("a", (1,))}, s3={"pin": "a"})
    found = POLICIES["pinned"](graph(requests), PAIR)
    assert islands(found) == ["b", "b", "a", "a"] and devices(found) == [(0,), (1,), (1,), (0,)]
    assert found.reasons == {f"s{i}": f"pinned to {island} by the user" for i, island in enumerate("bbaa")}


def test_pinned_names_the_slices_without_an_island() -> None:
    error = refused("pinned", slices(1, 1, 1, s0={"pin": "a"}, s1={"where": LINE}))
    assert error.code == "PWC0306" and "s1 (model.py:7), s2" in str(error) and error.diagnostic.where == LINE


@pytest.mark.parametrize(("pin", "size"), [("c", 1), ("a", 3)])
def test_pinned_refuses_unknown_and_full_islands(pin: str, size: int) -> None:
    assert refused("pinned", slices(size, s0={"pin": pin})).code == "PWC0301"


def test_the_capacity_error_has_the_demands_of_all_slices() -> None:
    topology = Topology((Island("a", 2, memory=100), Island("b", 2)))
    requests = slices(3, 1, 2, s0={"kind": "gpu", "memory": 2000}, s1={"pin": "b", "where": LINE}, s2={"memory": 5})
    error = refused("spread", requests, topology)
    needs = (
        "s0: 3 devices of kind gpu with at least 2,000 bytes each, s1: 1 devices on b, "
        "s2: 2 devices with at least 5 bytes each; 6 in all, each slice on one island, no device twice"
    )
    assert error.code == "PWC0301" and needs in str(error) and error.diagnostic.where == LINE
    assert "a (2 x any), b (2 x any)" in str(error)
    assert "bytes" not in str(refused("spread", slices(3, s0={"memory": 5})))
    free = FreeDevices(PAIR, slices(1))
    assert "no device twice; side by side" in str(free.refuse("side by side"))


def test_free_devices_are_those_that_nothing_is_bound_to() -> None:
    bound = slices(2, 1, s0={"bound": Binding("a", (0, 2))}, s1={"bound": Binding("elsewhere", (0,))})
    free = FreeDevices(Topology((Island("a", 2, hosts=2), Island("b", 4))), bound)
    assert (free.count("a"), free.count("b"), free.load(Island("a", 2, hosts=2))) == (2, 4, 0.5)
    assert free.take(SliceRequest("s2", 1), "a") == Binding("a", (1,)) and free.count("a") == 1
    assert free.take(SliceRequest("s3", 3), "b") == Binding("b", (0, 1, 2)) and free.load(Island("b", 4)) == 0.75


# ---- balanced and min-cut


def test_balanced_cuts_a_chain_where_the_fewest_bytes_cross() -> None:
    """Two islands of two devices, three stages: s0 | s1 s2 sends one gigabyte, s0 s1 | s2 three."""
    found = POLICIES["balanced"](graph(slices(1, 1, 1), {(0, 1): GB, (1, 2): 3 * GB}), PAIR)
    assert islands(found) == ["a", "b", "b"] and devices(found) == [(0,), (0,), (1,)]
    # three seconds of work, one between the islands, and 0.3 inside; and a thousandth of the traffic
    assert found.reasons == {
        "s0": "s0 on a: 4.3 s a run, least of contiguous splits",
        "s1": "s1 to s2 on b: 4.3 s a run, least of contiguous splits",
        "s2": "s1 to s2 on b: 4.3 s a run, least of contiguous splits",
    }


def test_balanced_orders_slices_by_their_first_call_and_idle_ones_last() -> None:
    requests = slices(1, 1, 1, 1)
    calls = [("s3", 1e9), ("s1", 1e9), ("s3", 1e9), ("s2", 1e9)]
    made = make_graph(requests, calls, {(0, 1): 9 * GB, (1, 3): GB})
    found = POLICIES["balanced"](made, PAIR)
    assert found.bindings["s3"].island == found.bindings["s1"].island != found.bindings["s2"].island
    assert found.reasons["s0"].startswith("s2 to s0 on ")


def test_balanced_keeps_demands_and_refuses_what_no_split_has() -> None:
    chain = {(0, 1): GB, (1, 2): GB}
    for demands, expected in (
        ({"s0": {"pin": "b"}}, ["b", "a", "a"]),
        ({"s2": {"bound": Binding("a", (1,))}}, ["b", "a", "a"]),
        ({"s1": {"near": "s0"}}, ["a", "a", "b"]),
    ):
        found = POLICIES["balanced"](graph(slices(1, 1, 1, **demands), chain), PAIR)  # pyright: ignore
        assert islands(found) == expected
    assert POLICIES["balanced"](graph(slices(1, s0={"bound": Binding("a", (1,))})), PAIR).bindings["s0"].devices == (1,)
    error = refused("balanced", slices(1, 1, 1, s0={"pin": "a"}, s1={"pin": "b"}, s2={"pin": "a"}))
    assert error.code == "PWC0301" and "each island takes one run of consecutive slices" in str(error)


def test_min_cut_says_which_bytes_stay_and_which_cross() -> None:
    """Four slices in a ring of 1, 5, 2 and 4 gigabytes: the cut through 1 and 2 is the least."""
    edges = {(0, 1): GB, (1, 2): 5 * GB, (2, 3): 2 * GB, (0, 3): 4 * GB}
    found = POLICIES["min-cut"](graph(slices(1, 1, 1, 1), edges), PAIR)
    at = islands(found)
    assert at[1] == at[2] != at[0] == at[3]
    where = {s: b.island for s, b in found.bindings.items()}
    assert found.reasons == {
        s: f"keeps {kept},000,000,000 bytes inside {where[s]}, {out},000,000,000 go to other islands; {3 * GB:,} in all"
        for s, kept, out in (("s0", 4, 1), ("s1", 5, 1), ("s2", 5, 2), ("s3", 4, 2))
    }


def test_min_cut_fills_islands_to_a_quarter_more_than_their_share() -> None:
    """Of 8 of 16 devices, each island may take 5: all eight exchange, but only five of them may stay together."""
    requests = slices(*[1] * 8)
    edges = {(a, b): GB for a in range(8) for b in range(a + 1, 8)}
    found = POLICIES["min-cut"](graph(requests, edges), Topology((Island("a", 8), Island("b", 8))))
    assert sorted((islands(found).count("a"), islands(found).count("b"))) == [3, 5]


def test_min_cut_moves_no_slice_with_a_demand() -> None:
    """s0 and s1 exchange all, and stay apart as they are pinned; s2, which is near s1, stays with it."""
    requests = slices(1, 1, 1, s0={"pin": "a"}, s1={"pin": "b"}, s2={"near": "s1"})
    found = POLICIES["min-cut"](graph(requests, {(0, 1): 9 * GB, (0, 2): 9 * GB}), PAIR)
    assert islands(found) == ["a", "b", "b"]
    bound = slices(1, 1, s0={"bound": Binding("b", (1,))})
    assert devices(POLICIES["min-cut"](graph(bound, {(0, 1): GB}), PAIR)) == [(1,), (0,)]


# ---- optimal, and names of policies


def test_optimal_says_how_it_found_its_answer() -> None:
    """Both slices on one island: two seconds of work and 0.1 for the transfer."""
    found = POLICIES["optimal"](graph(slices(1, 1), {(0, 1): GB}), PAIR)
    assert len(set(islands(found))) == 1 and found.reproducible
    for reason in found.reasons.values():
        assert reason == "2.1 s a run, as balanced: nothing better was found; gap to the proved bound 0.0%"
    idle = POLICIES["optimal"](graph(slices(1), flops=0.0), PAIR)
    assert idle.reasons["s0"].startswith("0 ns a run, as spread") and idle.reasons["s0"].endswith("bound 0.0%")
    assert refused("optimal", slices(3)).code == "PWC0301"


@pytest.mark.parametrize(("flops", "time"), [(1e9, "3.01 s"), (1e8, "311 ms")])
def test_optimal_has_the_whole_gap_if_its_search_is_stopped_before_it_proves_a_bound(flops: float, time: str) -> None:
    chain = graph(slices(1, 1, 1), {(0, 1): GB // 100, (1, 2): GB // 100}, flops)
    for policy, gap in ((Optimal(nodes=0), "100.0%"), (Optimal(), "0.0%")):
        wanted = f"{time} a run, as balanced: nothing better was found; gap to the proved bound {gap}"
        assert set(policy(chain, PAIR).reasons.values()) == {wanted}


@pytest.mark.parametrize(
    ("sizes", "legal"),
    [((3, 2), {("a", "b", "a"), ("b", "a", "b")}), ((5, 4), {(s0, s1, s0) for s0 in "ab" for s1 in "ab"})],
)
def test_the_mixed_integer_program_allows_exactly_the_legal_placements(
    sizes: tuple[int, int], legal: set[tuple[str, ...]]
) -> None:
    """Of all ways to choose islands for s0, s1 and s2: each is on one island, which has room, and s2 is near s0."""
    pair = Topology((Island("a", sizes[0]), Island("b", sizes[1])))
    model = CostModel(graph(slices(1, 2, 1, s2={"near": "s0"})), pair)
    program = optimal._Milp(model)  # pyright: ignore[reportPrivateUsage]
    program._legal()  # pyright: ignore[reportPrivateUsage]
    allowed: set[tuple[str, ...]] = set()
    for chosen in itertools.product(("", "a", "b", "ab"), repeat=3):
        at = {k: float(island in names) for (s, island), k in program.x.items() for names in [chosen[int(s[1])]]}
        rows = [sum(factor * at[k] for k, factor in row.items()) for row in program.rows]
        if all(low <= row <= high for low, row, high in zip(program.lower, rows, program.upper, strict=True)):
            allowed.add(chosen)
    assert allowed == legal


def test_optimal_keeps_the_devices_that_a_slice_is_bound_to() -> None:
    requests = slices(1, 1, 1, s0={"bound": Binding("b", (1,))}, s2={"near": "s0", "kind": "any"})
    requests[2] = dataclasses.replace(requests[2], devices=1)
    found = POLICIES["optimal"](graph(requests, {(0, 1): GB, (1, 2): GB}), PAIR)
    assert found.bindings["s0"] == Binding("b", (1,)) and found.bindings["s2"] == Binding("b", (0,))
    assert found.bindings["s1"].island == "a"


def test_an_answer_that_is_no_placement_is_refused() -> None:
    def wrong(graph: Any, topology: Topology) -> Any:
        return {"s0": "a"}

    def failing(graph: Any, topology: Topology) -> Any:
        raise KeyError("s9")

    for policy, said in ((wrong, "a dict"), (failing, "KeyError: 's9'")):
        with pytest.raises(PathwaysError) as caught:
            run_policy("mine", policy, graph(slices(1)), PAIR)
        assert caught.value.code == "PWC0305" and said in str(caught.value)
    with pytest.raises(PathwaysError, match="PWC0301"):
        run_policy("spread", POLICIES["spread"], graph(slices(3)), PAIR)
    right = run_policy("spread", POLICIES["spread"], graph(slices(1)), PAIR)
    assert right.bindings == {"s0": Binding("a", (0,))}


# ---- legality and traffic


@pytest.mark.parametrize(
    ("binding", "demands", "have", "rule"),
    [
        (None, {}, "no binding for s0", "a binding for every slice"),
        (Binding("c", (0, 1)), {}, "s0 on c", "an island of a, b"),
        (Binding("a", (0,)), {}, "s0 on devices (0,)", "2 different devices"),
        (Binding("a", (1, 1)), {}, "s0 on devices (1, 1)", "2 different devices"),
        (Binding("a", (1, 2)), {}, "s0 on devices (1, 2)", "devices 0 to 1"),
        (Binding("a", (-1, 0)), {}, "s0 on devices (-1, 0)", "devices 0 to 1"),
        (Binding("a", (0, 1)), {"kind": "gpu"}, "s0 on a (any)", "devices of kind gpu"),
        (Binding("a", (0, 1)), {"pin": "b"}, "s0 on a", "the island it is pinned to: b"),
        (Binding("a", (0, 1)), {"near": "s1"}, "s0 on a", "the island of s1: b"),
        (Binding("a", (0, 1)), {"bound": Binding("a", (1, 0))}, "s0 on Binding", "where an earlier program bound it"),
    ],
)
def test_each_broken_rule_of_a_placement_is_named_once(
    binding: Binding | None, demands: dict[str, Any], have: str, rule: str
) -> None:
    requests = slices(2, 1, s0={"where": LINE, **demands})
    bindings = {"s1": Binding("b", (1,))} | ({} if binding is None else {"s0": binding})
    with pytest.raises(PathwaysError) as caught:
        check_placement("mine", Placement(bindings, {}), requests, PAIR)
    (found,) = caught.value.diagnostics
    assert found.text(found.have).startswith(have) and found.text(found.have).endswith("(slice 1 of 2)")
    assert rule in found.text(found.need) and found.where == LINE


def test_a_legal_placement_with_all_demands_is_accepted() -> None:
    requests = slices(2, 1, 1, s0={"pin": "a", "kind": "any"}, s1={"bound": Binding("b", (1,))}, s2={"near": "s1"})
    bindings = {"s0": Binding("a", (1, 0)), "s1": Binding("b", (1,)), "s2": Binding("b", (0,))}
    check_placement("mine", Placement(bindings, {}), requests, PAIR)
    with pytest.raises(PathwaysError, match="s1 and s2 on device 1 of b"):
        check_placement("mine", Placement(bindings | {"s2": Binding("b", (1,))}, {}), requests, PAIR)


def test_traffic_counts_edges_between_slices() -> None:
    made = make_graph(slices(1, 1), [("s0", 0.0), ("s0", 0.0), ("s1", 0.0)], {(0, 1): 5, (0, 2): 7, (1, 2): 11})
    assert traffic_of(made) == {("s0", "s1"): 18}
    made.graph["traffic"] = {("s0", "s1"): 7}
    assert traffic_of(made) == {("s0", "s1"): 7} and CostModel(made, PAIR).traffic == {("s0", "s1"): 7}
