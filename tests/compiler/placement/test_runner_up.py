"""Tests what placements would have cost otherwise, and how their reasons show times."""

import pytest
from support.placements import PAIR, graph, slices
from support.random_graphs import make_graph

from pathways.compiler.placement import Placement
from pathways.compiler.placement.binding import Binding
from pathways.compiler.placement.runner_up import runners_up, seconds
from pathways.dialect.topology import Island, Topology

SHOWN = [
    (12345.6, "12,346 s"),
    (1000.0, "1,000 s"),
    (999.6, "1,000 s"),
    (999.4, "999 s"),
    (2.0, "2 s"),
    (1.0, "1 s"),
    (0.9996, "1 s"),
    (0.5, "500 ms"),
    (1e-3, "1 ms"),
    (9.996e-4, "1 ms"),
    (1e-6, "1 us"),
    (5e-7, "500 ns"),
    (0.0, "0 ns"),
]


@pytest.mark.parametrize(("value", "shown"), SHOWN)
def test_a_time_is_shown_in_its_largest_whole_unit(value: float, shown: str) -> None:
    assert seconds(value) == shown


def test_a_runner_up_is_the_cheapest_other_island() -> None:
    """Alone on the slow island a call takes ten times as long; the middle one doubles its time."""
    topology = Topology(
        (
            Island("fast", 1, flops=1e9, efficiency=1.0),
            Island("slow", 1, flops=1e8, efficiency=1.0),
            Island("middle", 1, flops=5e8, efficiency=1.0),
        )
    )
    placement = Placement({"s0": Binding("fast", (0,))}, {})
    assert runners_up(graph(slices(1)), topology, placement) == {"s0": "middle: 2 s a run (+100%)"}
    worse = Placement({"s0": Binding("slow", (0,))}, {})
    assert runners_up(graph(slices(1)), topology, worse) == {"s0": "fast: 1 s a run (-90%)"}


def test_a_runner_up_as_fast_is_called_the_same_and_none_is_compared_with_no_time() -> None:
    placement = Placement({"s0": Binding("a", (0,))}, {})
    assert runners_up(graph(slices(1)), PAIR, placement) == {"s0": "b: 1 s a run (the same)"}
    assert runners_up(graph(slices(1), flops=0.0), PAIR, placement) == {"s0": "b: 0 ns a run"}
    for flops, said in ((0.996e9, "(the same)"), (0.99e9, "(+1%)")):
        topology = Topology((Island("a", 1, flops=1e9, efficiency=1.0), Island("b", 1, flops=flops, efficiency=1.0)))
        assert runners_up(graph(slices(1)), topology, placement)["s0"].endswith(said)


def test_a_full_island_takes_a_slice_in_exchange_for_another() -> None:
    topology = Topology((Island("a", 1, flops=1e9, efficiency=1.0), Island("b", 1, flops=5e8, efficiency=1.0)))
    placement = Placement({"s0": Binding("a", (0,)), "s1": Binding("b", (0,))}, {})
    found = runners_up(graph(slices(1, 1)), topology, placement)
    assert found == {
        "s0": "b, in exchange for s1: 2 s a run (the same)",
        "s1": "a, in exchange for s0: 2 s a run (the same)",
    }
    pinned = runners_up(graph(slices(1, 1, s1={"pin": "b"})), topology, placement)
    assert pinned == {"s0": "none: no other island can take it", "s1": "none: the user pinned it"}
    bound = runners_up(graph(slices(1, 1, s1={"bound": Binding("b", (0,))})), topology, placement)
    assert bound == {
        "s0": "none: no other island can take it",
        "s1": "none: an earlier program of the process bound it",
    }


@pytest.mark.parametrize(
    ("sizes", "room", "exchanged"),
    [((2, 1), (2, 2), True), ((2, 1), (2, 1), False), ((1, 2), (2, 2), True), ((1, 2), (1, 2), False)],
)
def test_an_exchange_needs_room_on_both_islands(sizes: tuple[int, int], room: tuple[int, int], exchanged: bool) -> None:
    topology = Topology(
        (Island("a", room[0], flops=1e9, efficiency=1.0), Island("b", room[1], flops=1e9, efficiency=1.0))
    )
    placement = Placement({"s0": Binding("a", tuple(range(sizes[0]))), "s1": Binding("b", tuple(range(sizes[1])))}, {})
    found = runners_up(graph(slices(*sizes)), topology, placement)
    larger = "s0" if sizes[0] == 2 else "s1"
    assert ("in exchange for" in found[larger]) is exchanged


def test_slices_that_the_user_keeps_together_have_no_runner_up() -> None:
    requests = slices(1, 1, 2, s1={"near": "s0"})
    placement = Placement(
        {s: Binding("a", (i,)) for i, s in enumerate(("s0", "s1"))} | {"s2": Binding("b", (0, 1))}, {}
    )
    assert runners_up(graph(requests), PAIR, placement) == {
        "s0": "none: the user puts it on the island of s1",
        "s1": "none: the user puts it on the island of s0",
        "s2": "none: no other island can take it",
    }


def test_large_programs_are_only_estimated_where_that_is_asked_for() -> None:
    """Two slices, two islands and two calls are eight estimates of a call."""
    made, placement = graph(slices(1, 1)), Placement({s: Binding("a", (i,)) for i, s in enumerate(("s0", "s1"))}, {})
    for limit, estimated in ((8, True), (7, False), (None, True)):
        found = runners_up(made, PAIR, placement, limit)
        assert found.keys() == {"s0", "s1"} and (found["s0"].startswith("b: ")) is estimated
    assert runners_up(made, PAIR, placement, 7)["s1"] == "not estimated for 2 calls; --explain estimates it"


def test_slices_that_are_kept_together_are_not_exchanged() -> None:
    """Each of the two would fit where s0 is, but not without the other."""
    topology = Topology((Island("a", 1), Island("b", 2)))
    placement = Placement({"s0": Binding("a", (0,)), "s1": Binding("b", (0,)), "s2": Binding("b", (1,))}, {})
    assert "in exchange for" in runners_up(graph(slices(1, 1, 1)), topology, placement)["s0"]
    found = runners_up(graph(slices(1, 1, 1, s2={"near": "s1"})), topology, placement)
    assert found["s0"] == "none: no other island can take it"


def test_a_program_without_calls_counts_as_one_call() -> None:
    made, placement = make_graph(slices(1), [], {}), Placement({"s0": Binding("a", (0,))}, {})
    for limit, estimated in ((2, True), (1, False)):
        assert runners_up(made, PAIR, placement, limit)["s0"].startswith("b: ") is estimated
