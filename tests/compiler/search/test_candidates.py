"""Tests which splits are tried: all that divide evenly, and none that needs more devices than an island has."""

import pytest

from pathways.compiler.search.candidates import Space, candidates
from pathways.dialect.topology import PRESETS, Island, Topology, parse_topology


@pytest.mark.parametrize("name", PRESETS)
def test_every_candidate_fits_its_preset(name: str) -> None:
    topology = PRESETS[name]
    found = list(candidates(topology, Space(64, 32)))
    assert found and len(set(map(str, found))) == len(found)
    for c in found:
        assert 64 % c.microbatches == 0 and 64 // c.microbatches % c.data == 0
        if not c.islands:  # a slice that no island can hold: listed, then dropped
            assert c.data * c.model > max(i.size for i in topology.islands)
            continue
        assert len(c.islands) == c.stages and c.stages * c.chunks <= 32
        for island in topology.islands:
            assert c.islands.count(island.name) * c.data * c.model <= island.size


def test_a_small_topology_has_all_candidates() -> None:
    found = [(c.split, c.microbatches, c.schedule) for c in candidates(parse_topology("devices=2"), Space(2, 2))]
    schedules = ("gpipe", "1f1b", "zero-bubble")
    assert found == [
        ("1 x 1 x 1", 1, "program"),
        ("1 x 1 x 1", 2, "1f1b"),
        ("2 x 1 x 1", 1, "program"),
        *(("2 x 1 x 1", 2, s) for s in schedules),
        ("1 x 1 x 2", 1, "program"),
        ("1 x 1 x 2", 2, "1f1b"),
        ("1 x 2 x 1", 1, "program"),
    ]


def test_stages_fill_the_fastest_islands_first_and_stay_together() -> None:
    topology = Topology((Island("slow", devices=2, flops=1e12), Island("fast", devices=2, flops=2e12)))
    found = {c.stages: c.islands for c in candidates(topology, Space(4, 4)) if c.data == c.model == 1}
    assert found == {1: ("fast",), 2: ("fast",) * 2, 4: ("fast", "fast", "slow", "slow")}


def test_interleaved_candidates_have_whole_rounds_of_microbatches() -> None:
    found = [c for c in candidates(parse_topology("devices=4"), Space(16, 8)) if c.schedule == "interleaved"]
    assert found and all(c.chunks > 1 and c.microbatches % c.stages == 0 for c in found)


def test_slices_on_several_islands_are_listed_once_for_each_data_and_model() -> None:
    """Such a slice has more devices than the largest island, whichever island comes first."""
    for sizes in ((4, 2), (2, 4)):
        topology = Topology(tuple(Island(f"i{n}", n) for n in sizes))
        found = list(candidates(topology, Space(12, 4, schedules=("1f1b",))))
        spans = {(c.data, c.model) for c in found if not c.islands}
        assert spans == {(6, 1), (3, 2)} and {c.stages for c in found if not c.islands} == {1}
        fits = {(c.data, c.model) for c in found if c.islands}
        assert fits == {(1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (1, 4)}
        assert {c.islands for c in found if c.model == 4} == {("i4",)}


def test_the_model_axis_has_at_most_as_many_devices_as_the_space_allows() -> None:
    def models(space: Space) -> set[int]:
        return {c.model for c in candidates(parse_topology("devices=8"), space)}

    assert models(Space(8, 8, max_model=2)) == {1, 2} and models(Space(8, 8, max_model=4)) == {1, 2, 4}
    assert models(Space(8, 8)) == {1, 2, 4, 8} and models(Space(8, 8, splits_parameters=False)) == {1}


@pytest.mark.parametrize(
    ("batch", "most", "counts"),
    [
        (34, 0, {1: {1, 2}, 2: {1, 2, 17}}),
        (64, 0, {1: {1, 2, 4, 8, 16}, 2: {1, 2, 4, 8, 16, 32}}),
        (64, 4, {1: {1, 2, 4}, 2: {1, 2, 4}}),
    ],
)
def test_a_split_has_at_most_sixteen_microbatches_a_stage(batch: int, most: int, counts: dict[int, set[int]]) -> None:
    space = Space(batch, 2, max_microbatches=most)
    found = [c for c in candidates(parse_topology("devices=2"), space) if c.data == c.model == 1]
    assert {s: {c.microbatches for c in found if c.stages == s} for s in (1, 2)} == counts


def test_every_number_of_microbatches_whose_rows_divide_over_the_devices_is_tried() -> None:
    found = [c for c in candidates(parse_topology("devices=2"), Space(6, 1)) if c.data == 2]
    assert {c.microbatches for c in found} == {1, 3}  # six rows, and two; three rows are odd


@pytest.mark.parametrize(("places", "stages"), [(1, [1]), (3, [1, 2, 3]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_stages_are_powers_of_two_and_the_most_there_can_be(places: int, stages: list[int]) -> None:
    found = candidates(parse_topology("devices=8"), Space(1, places))
    assert [c.stages for c in found if c.data == c.model == 1] == stages


def test_one_microbatch_has_one_order_whatever_the_schedules_are() -> None:
    for schedules in (("1f1b",), ("gpipe", "1f1b")):
        found = candidates(parse_topology("devices=2"), Space(2, 2, schedules=schedules))
        ones = [c.schedule for c in found if c.stages == 2 and c.microbatches == 1]
        assert ones == ["program"]


def test_interleaved_candidates_have_two_or_four_chunks_where_there_are_places() -> None:
    for places, chunks in ((3, set[int]()), (4, {2}), (8, {2, 4})):
        found = candidates(parse_topology("devices=2"), Space(4, places, schedules=("gpipe", "interleaved")))
        assert {c.chunks for c in found if c.schedule == "interleaved"} == chunks
