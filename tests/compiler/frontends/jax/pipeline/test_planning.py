"""Tests what a cut knows of the machines that a program is compiled for."""

from dataclasses import replace
from typing import Any

import pytest

import pathways as pw
from pathways.compiler.frontends.jax.pipeline.planning import Target, compiling, compiling_for, demands_of
from pathways.dialect.topology import Island, Topology

FAST = Island("fast", devices=2, memory=100, flops=8.0, efficiency=1.0, ici_gbps=3.0)
SLOW = Island("slow", devices=2, memory=300, flops=2.0, efficiency=1.0, ici_gbps=5.0)
BOTH = Topology((FAST, SLOW), dcn_gbps=7.0)


def meshes(*devices: int) -> list[Any]:
    made = pw.make_virtual_device_set()
    return [made.add_slice(devices=n).mesh("data") for n in devices]


def test_without_a_target_only_the_sizes_of_slices_are_known() -> None:
    found = demands_of(meshes(1, 3, 2), 8)
    assert (found.rates, found.links) == ((1.0, 3.0, 2.0), (0.0, 0.0, 0.0))
    assert (found.memory, found.in_flight, found.split) == ((None, None, None), (8, 8, 8), (1, 3, 2))
    assert found.stages == 3


def test_rates_are_of_the_slowest_island_and_memory_of_the_largest() -> None:
    with compiling(Target(BOTH, "gpipe")):
        found = demands_of(meshes(1, 4), 8)
    assert found.rates == (2.0, 8.0)
    assert found.memory == (300, 300)
    assert found.links == (0.0, 7e9)
    assert found.in_flight == (8, 8)


def test_stages_of_one_island_are_linked_by_its_interconnect() -> None:
    with compiling(Target(Topology((SLOW,), dcn_gbps=7.0), "")):
        assert demands_of(meshes(1, 1, 1), 2).links == (0.0, 5e9, 5e9)


def test_a_slice_with_several_stages_gives_each_its_part() -> None:
    one, other = meshes(2, 2)
    with compiling(Target(BOTH, "interleaved")):
        found = demands_of([one, other, one], 8)
    assert found.rates == (2.0 * 2 / 2, 2.0 * 2, 2.0 * 2 / 2)
    assert found.memory == (150, 300, 150)


@pytest.mark.parametrize(
    ("schedule", "microbatches", "kept"),
    [
        ("1f1b", 8, (4, 3, 2, 1)),
        ("interleaved", 3, (3, 3, 2, 1)),
        ("zero-bubble", 1, (1, 1, 1, 1)),
        ("gpipe", 8, (8, 8, 8, 8)),
    ],
)
def test_a_stage_keeps_as_many_microbatches_as_its_schedule_has_in_flight(
    schedule: str, microbatches: int, kept: tuple[int, ...]
) -> None:
    with compiling(Target(BOTH, schedule)):
        assert demands_of(meshes(1, 1, 1, 1), microbatches).in_flight == kept


def test_rows_are_split_over_the_axis_of_the_batch_alone() -> None:
    made = pw.make_virtual_device_set()
    mesh: Any = made.add_slice(devices=6).mesh(("data", "model"), (3, 2))
    other: Any = made.add_slice(devices=2).mesh("model")
    found = demands_of([mesh, other], 2)
    assert (found.split, found.rates) == ((3, 1), (6.0, 2.0))


def test_rates_and_memory_are_unknown_if_one_island_does_not_say() -> None:
    unknown = Topology((FAST, replace(SLOW, flops=None, memory=None)))
    with compiling(Target(unknown, "")):
        found = demands_of(meshes(2, 2), 2)
    assert (found.rates, found.links, found.memory) == ((2.0, 2.0), (0.0, 0.0), (None, None))


def test_targets_are_equal_if_cuts_do_not_depend_on_their_difference() -> None:
    free = Topology((replace(FAST, memory=None), replace(SLOW, memory=None)))
    partly = Topology((FAST, replace(SLOW, memory=None)))
    assert Target.of(BOTH, "1f1b") == Target(BOTH, "1f1b")
    assert Target.of(partly, "1f1b") == Target(partly, "1f1b")
    assert Target.of(free, "1f1b") == Target(free, "") == Target.of(free, "gpipe")
    unknown = Topology((replace(FAST, memory=None), replace(SLOW, memory=None, flops=None)))
    assert Target.of(unknown, "1f1b") == Target() == Target.of(None, "gpipe")
    no_rates = Topology((replace(FAST, flops=None),))
    assert Target.of(no_rates, "1f1b") == Target(no_rates, "1f1b"), "its memory limits what a schedule keeps"


def test_a_target_holds_for_the_length_of_a_block_and_blocks_nest() -> None:
    with compiling(Target(BOTH, "1f1b")):
        with pytest.raises(KeyError), compiling(Target(None, "inner")):
            assert compiling_for.get() == Target(None, "inner")
            raise KeyError
        assert compiling_for.get() == Target(BOTH, "1f1b")
    assert compiling_for.get() is None
