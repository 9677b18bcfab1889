"""Tests layouts as text, and the slices that a layout places."""

import dataclasses
from typing import Any

import pytest
from support.placements import PAIR, devices, islands, slices
from support.random_graphs import make_graph

from pathways.compiler.placement import Placement, SliceRequest
from pathways.compiler.placement.binding import Binding
from pathways.compiler.placement.layout import LayoutPolicy, functions_by_slice, parse_layout
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.topology import Topology


def test_a_layout_has_a_list_of_stages_for_each_island() -> None:
    assert parse_layout("embed*1 block*3|block+head") == [["embed", "block", "block", "block"], ["block", "head"]]
    assert parse_layout(" | a.b<c>-d ") == [[], ["a.b<c>-d"]] and parse_layout("a*0 b") == [["b"]]
    for text, item in (("a*", "a*"), ("a b*x", "b*x"), ("a;b", "a;b"), ("*2", "*2")):
        with pytest.raises(PathwaysError, match=r"NAME or NAME\*COUNT") as caught:
            parse_layout(text)
        assert caught.value.code == "PWC0308" and item in str(caught.value)


def laid_out(text: str, requests: list[SliceRequest], topology: Topology = PAIR) -> Placement:
    """Places slices by a layout; a slice runs the function f and its number, but for s9, which runs nothing."""
    calls = [(r.symbol, 1e9) for r in requests if r.symbol != "s9"]
    return LayoutPolicy(text)(make_graph(requests, calls, {}), topology)


def test_a_layout_places_stages_and_says_in_which_part() -> None:
    found = laid_out("f0 f1 | f2", slices(1, 1, 1))
    assert islands(found) == ["a", "a", "b"] and devices(found) == [(0,), (1,), (0,)]
    assert found.reasons["s2"] == "set by the layout: f2 in part 2 of 2"
    assert islands(laid_out("| f0", slices(1))) == ["b"] and islands(laid_out("f0 |", slices(1))) == ["a"]
    bound = slices(1, 1, s0={"bound": Binding("a", (1,))})
    assert devices(laid_out("f0 f1", bound)) == [(1,), (0,)]


def test_a_slice_that_runs_nothing_gets_the_first_island_with_room() -> None:
    idle = SliceRequest("s9", 1)
    found = laid_out("f0*1 f1", [*slices(1, 1), idle])
    assert (
        found.bindings["s9"] == Binding("b", (0,)) and found.reasons["s9"] == "has no calls: the first island with room"
    )
    assert laid_out("f0", [*slices(1), idle]).bindings["s9"] == Binding("a", (1,))
    with pytest.raises(PathwaysError, match="PWC0301"):
        laid_out("f0 f1", [*slices(1, 1), SliceRequest("s9", 3)])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("f0 | f1 | f2", "3 islands in the layout"),
        ("f0 f1", "2 stages"),
        ("f0 f2 f1", "f2 for s1, which runs f1"),
    ],
)
def test_a_layout_of_other_stages_is_refused(text: str, said: str) -> None:
    with pytest.raises(PathwaysError, match="PWC0308") as caught:
        laid_out(text, slices(1, 1, 1))
    assert said in str(caught.value)
    if "f2 " not in text:
        return
    assert "f0 f1 f2" in str(caught.value)


@pytest.mark.parametrize("demands", [{"kind": "gpu"}, {"pin": "b"}, {"devices": 2}])
def test_a_layout_that_a_slice_does_not_fit_is_refused(demands: dict[str, Any]) -> None:
    requests = slices(1, 1)
    requests[1] = dataclasses.replace(requests[1], **demands)
    with pytest.raises(PathwaysError, match=r"PWC0301(.*\n)*.*the layout puts s1 \(f1\) on a"):
        laid_out("f0 f1", requests)


def test_functions_that_the_user_placed_come_before_gathered_ones() -> None:
    made = make_graph(slices(1, 1, 1), [("s0", 1.0), ("s0", 1.0), ("s0", 1.0), ("s1", 1.0)], {})
    names = [("loose", True), ("stage", False), ("loose", True), ("mixed", True)]
    for number, (name, gathered) in enumerate(names):
        made.nodes[number].update(name=name, gathered=gathered)
    made.add_node(4, name="mixed", gathered=False, slice="s1")
    made.add_node(5, name="extra", gathered=True, slice="s1")
    made.add_node(6, name="", gathered=True, slice="s2")
    made.add_node(7, name="loose", gathered=True, slice="s2")
    made.add_node(8, name="unmarked", slice="s2")
    assert functions_by_slice(made) == {
        "s0": ["stage", "loose"],
        "s1": ["mixed", "extra"],
        "s2": ["unmarked", "loose"],
    }
