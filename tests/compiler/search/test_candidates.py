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
