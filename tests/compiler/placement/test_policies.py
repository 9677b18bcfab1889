"""Tests topology files, placement policies and the limit of executions in flight, all without waiting."""

from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pathways.compiler.placement import POLICIES
from pathways.compiler.placement.binding import Binding
from pathways.compiler.placement.problem import Placement, SliceRequest, check_placement
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.topology import Island, Topology, parse_topology
from pathways.runtime.host.devices.in_flight_limit import TOKEN_STRIDE, DeviceQueue, Gang


def test_topologies_are_read_from_specs_and_files(tmp_path: Path) -> None:
    spec = parse_topology("islands=2,hosts=2,devices=4,kind=h100,memory=80GiB")
    assert spec.islands == tuple(
        Island(f"island{i}", devices=4, hosts=2, kind="h100", memory=80 * 2**30) for i in range(2)
    )
    assert spec.size == 16 and parse_topology("devices=3").size == 3
    path = tmp_path / "machines.toml"
    path.write_text('dcn_gbps = 25\n[[island]]\nname = "pod"\ndevices = 8\nflops = 1e14\n[[island]]\ndevices = 2\n')
    loaded = parse_topology(str(path))
    assert loaded.names == ("pod", "island1") and loaded.dcn_gbps == 25 and loaded.island("pod").flops == 1e14
    path.write_text('[[island]]\nname = "a"\ndevices = 1\n[[island]]\nname = "a"\ndevices = 1\n')
    with pytest.raises(PathwaysError, match="same name"):
        parse_topology(str(path))
    with pytest.raises(PathwaysError, match="devices= is given twice"):
        parse_topology("devices=4,devices=5")


def graph_of(*slices: SliceRequest) -> "nx.DiGraph[Any]":
    graph: nx.DiGraph[Any] = nx.DiGraph()
    graph.graph["slices"] = slices
    return graph


@given(st.lists(st.integers(1, 4), max_size=6), st.lists(st.integers(1, 8), min_size=1, max_size=4))
def test_spread_places_legally_or_refuses_slices_that_do_not_fit(wanted: list[int], islands: list[int]) -> None:
    slices = [SliceRequest(f"s{i}", n) for i, n in enumerate(wanted)]
    topology = Topology(tuple(Island(f"i{i}", devices=n) for i, n in enumerate(islands)))
    try:
        placement = POLICIES["spread"](graph_of(*slices), topology)
    except PathwaysError as error:
        assert error.code == "PWC0301" and not fits_largest_first(wanted, islands)
    else:
        check_placement("spread", placement, slices, topology)
        assert placement.reasons.keys() == placement.bindings.keys() == {f"s{i}" for i in range(len(wanted))}


def fits_largest_first(wanted: list[int], islands: list[int]) -> bool:
    """Tells whether all slices fit, largest first, each on the island that it leaves the least room on."""
    free = [*islands]
    for size in sorted(wanted, reverse=True):
        room = [i for i in range(len(free)) if free[i] >= size]
        if not room:
            return False
        free[min(room, key=lambda i: free[i])] -= size
    return True


@given(st.lists(st.integers(1, 4), max_size=6), st.lists(st.integers(1, 8), min_size=1, max_size=4))
def test_slices_larger_than_an_island_or_than_all_islands_are_refused(wanted: list[int], islands: list[int]) -> None:
    assume(wanted and (max(wanted) > max(islands) or sum(wanted) > sum(islands)))
    topology = Topology(tuple(Island(f"i{i}", devices=n) for i, n in enumerate(islands)))
    with pytest.raises(PathwaysError, match="PWC0301"):
        POLICIES["spread"](graph_of(*(SliceRequest(f"s{i}", n) for i, n in enumerate(wanted))), topology)


def test_spread_packs_slices_if_a_balanced_placement_does_not_fit() -> None:
    topology = Topology((Island("a", devices=6), Island("b", devices=4)))
    slices = [SliceRequest(f"s{i}", n) for i, n in enumerate((4, 3, 3))]
    check_placement("spread", POLICIES["spread"](graph_of(*slices), topology), slices, topology)


def test_spread_balances_and_keeps_constraints() -> None:
    topology = Topology((Island("a", devices=4), Island("b", devices=4, kind="big"), Island("c", devices=4)))
    placement = POLICIES["spread"](
        graph_of(
            SliceRequest("s0", 2),
            SliceRequest("s1", 2),
            SliceRequest("s2", 1, kind="big"),
            SliceRequest("s3", 1, pin="c"),
            SliceRequest("s4", 1, near="s3"),
            SliceRequest("s5", 1, bound=Binding("a", (3,))),
        ),
        topology,
    )
    at = {s: b.island for s, b in placement.bindings.items()}
    assert at["s2"] == "b" and at["s3"] == "c" and at["s4"] == "c"
    assert placement.bindings["s5"] == Binding("a", (3,))
    assert {at["s0"], at["s1"]} <= {"a", "b", "c"} and at["s0"] != at["s1"]


@pytest.mark.parametrize(
    "binding",
    [
        None,
        Binding("nowhere", (0, 1)),
        Binding("a", (0,)),
        Binding("a", (0, 0)),
        Binding("a", (0, 9)),
        Binding("b", (0, 1)),
    ],
)
def test_illegal_placements_are_refused(binding: Binding | None) -> None:
    slices = [SliceRequest("s0", 2, kind="big"), SliceRequest("s1", 1)]
    topology = Topology((Island("a", devices=4, kind="big"), Island("b", devices=4)))
    bindings = {"s1": Binding("b", (3,))} | ({} if binding is None else {"s0": binding})
    with pytest.raises(PathwaysError) as caught:
        check_placement("mine", Placement(bindings, {}), slices, topology)
    assert caught.value.code == "PWC0305" and "mine" in str(caught.value)


def test_two_slices_on_one_device_are_refused() -> None:
    slices = [SliceRequest("s0", 1), SliceRequest("s1", 1)]
    both = Placement({"s0": Binding("a", (0,)), "s1": Binding("a", (0,))}, {})
    with pytest.raises(PathwaysError, match="disjoint"):
        check_placement("mine", both, slices, Topology((Island("a", devices=2),)))


class Token:
    """An execution that completes when its result is waited for."""

    def __init__(self, running: list["Token"]) -> None:
        self.running = running
        running.append(self)

    def block_until_ready(self) -> None:
        while self in self.running:  # a device runs executions in order
            self.running.pop(0)


@given(st.lists(st.sampled_from(["first", "second", "both"]), max_size=200))
def test_executions_in_flight_never_exceed_the_limit(launches: list[str]) -> None:
    devices = {"first": DeviceQueue(), "second": DeviceQueue()}
    gangs = {n: Gang([devices[n]]) for n in devices} | {"both": Gang(list(devices.values()))}
    running: dict[str, list[Token]] = {"first": [], "second": []}
    for name in launches:
        due = gangs[name].admit()
        members = ["first", "second"] if name == "both" else [name]
        tokens = [Token(running[m]) for m in members]
        assert all(len(running[m]) <= 16 for m in running)
        if due:
            gangs[name].started((GangToken(tokens), None))


def in_flight(most: int, launches: int) -> list[int]:
    """Returns how many short executions are in flight on one device after each launch."""
    gang, running = Gang([DeviceQueue(most)]), list[Token]()
    found: list[int] = []
    for _ in range(launches):
        due = gang.admit()
        token = Token(running)
        if due:
            gang.started((token, None))
        found.append(len(running))
    return found


@pytest.mark.parametrize("most", [16, 32])
def test_executions_in_flight_reach_the_limit(most: int) -> None:
    """First each execution has its own token, with room left for executions without one; later eight share one."""
    found = in_flight(most, 100)
    assert found[: most - TOKEN_STRIDE + 1] == list(range(1, most - TOKEN_STRIDE + 2))
    assert max(found) == most and min(found[50:]) == most - TOKEN_STRIDE


class GangToken:
    """The token of a gang: it completes when the execution completes on every device."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens

    def block_until_ready(self) -> None:
        for token in self.tokens:
            token.block_until_ready()


def test_the_limit_of_executions_in_flight_is_from_two_strides_to_16() -> None:
    """Below two strides, executions that have no token yet would exceed the limit."""
    assert 2 * TOKEN_STRIDE <= DeviceQueue().limit <= 16
