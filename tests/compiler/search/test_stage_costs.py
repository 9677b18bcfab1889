"""Tests the costs of stages: each term equals a value computed by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pathways.compiler.frontends.jax.pipeline.spine import Spine
from pathways.compiler.machines import ASSUMED_FLOPS, Machines
from pathways.compiler.search.profile import Profile
from pathways.compiler.search.stage_costs import StageCost, stage_costs
from pathways.dialect.choice import SplitChoice
from pathways.dialect.topology import Island, Topology

TWO = Topology(
    (Island("a", 4, hosts=2, flops=1e12, ici_gbps=10.0), Island("b", 8, flops=2e12, ici_gbps=40.0)), dcn_gbps=1.0
)
MACHINES = Machines(TWO, efficiency=0.5, call_seconds=3e-5, memory_gbps=100.0)
DIGITS = StageCost(
    work=1.0,
    checkpointed=10.0,
    read=100.0,
    added=1000.0,
    added_back=1e4,
    written=0.0,
    accumulated=1e5,
    call=1e6,
    sends=1e7,
    crosses=1e7,
    parameters=1e7,
    kept=1e7,
    taken=1e7,
)
"""Every term of the time has a decimal place of its own."""


def exactly(value: float) -> Any:
    """Sees a difference of one in a billion, as a wrong unit of bytes may be."""
    return pytest.approx(value, rel=1e-10, abs=0)


def sums(*values: float) -> Any:
    return np.concatenate([[0.0], np.cumsum(np.array(values))])


def profile() -> Profile:
    """Builds the profile of four operations; each kind of figure differs for each operation."""
    crossing = np.array([8e6, 3e8, 5e8, 6e8, 7e8])
    spine = Spine(
        [],
        {},
        {},
        sums(16e9, 8e9, 24e9, 64e9),
        sums(1e9, 2e9, 3e9, 4e9),
        sums(1e6, 2e6, 4e6, 8e6),
        crossing,
        [],
    )
    return Profile(spine, sums(8e9, 4e9, 4e9, 32e9), sums(4e8, 5e8, 3e8, 2e8))


def test_the_time_of_a_stage_is_the_sum_of_its_terms() -> None:
    """Reading the parameters takes longer than the products, so their time does not count."""
    assert (DIGITS.forward, DIGITS.backward, DIGITS.both) == (1_001_100, 1_110_100, 2_111_200)
    again = replace(DIGITS, again=True)
    assert (again.forward, again.backward) == (1_001_100, 1_110_100 + 1_001_100)
    products = replace(DIGITS, read=0.25, written=0.5)
    assert (products.forward, products.backward, products.of_weights) == (1_001_001, 1_110_012, 100_001)
    assert replace(products, written=4.0).of_weights == 100_004
    assert replace(products, written=4.0, checkpointed=0.0).backward == 1_110_004.25


def test_each_term_of_three_stages_equals_its_value_by_hand() -> None:
    """Slices of eight devices, two for rows times four for parameters; only the last one is on island b."""
    choice = SplitChoice(3, 1, 2, 4, microbatches=4, islands=("a", "a", "b"))
    first, second, last = stage_costs(profile(), (0, 1, 3, 4), choice, MACHINES)
    assert [c.work for c in (first, second, last)] == [exactly(s) for s in (4e-3, 8e-3, 8e-3)]
    assert [c.checkpointed for c in (first, second, last)] == [exactly(s) for s in (2e-3, 2e-3, 4e-3)]
    assert [c.parameters for c in (first, second, last)] == [1e9, 5e9, 4e9]
    assert [c.read for c in (first, second, last)] == [exactly(s) for s in (0.01, 0.05, 0.04)]
    assert [c.written for c in (first, second, last)] == [exactly(s) for s in (0.01, 0.05, 0.04)]
    # three passes for three of four microbatches
    assert [c.accumulated for c in (first, second, last)] == [exactly(2.25 * s) for s in (0.01, 0.05, 0.04)]
    # 2 (n - 1) / n of the bytes: half of them, as rows are over two devices, around four devices
    added = [1.5 * 2e8 / 10e9, 1.5 * 4e8 / 10e9, 1.5 * 1e8 / 40e9]
    assert [c.added for c in (first, second, last)] == [exactly(s) for s in added]
    gradients = [1e9 / 10e9, 5e9 / 10e9, 4e9 / 40e9]  # around two devices
    backs = [a + g for a, g in zip(added, gradients, strict=True)]
    assert [c.added_back for c in (first, second, last)] == [exactly(s) for s in backs]
    assert [c.call for c in (first, second, last)] == [3e-5] * 3
    assert [c.sends for c in (first, second, last)] == [exactly(4 * 3e8 / 80e9), exactly(4 * 6e8 / 1e9), 0.0]
    assert [c.crosses for c in (first, second, last)] == [0.0, 4 * 6e8, 0.0]
    assert [c.kept for c in (first, second, last)] == [0.5e6, 3e6, 4e6]
    assert [c.taken for c in (first, second, last)] == [4e6, 1.5e8, 3e8]
    assert not any(c.again for c in (first, second, last))


def test_a_slice_of_one_device_adds_nothing_up_over_devices() -> None:
    (cost,) = stage_costs(profile(), (0, 4), SplitChoice(islands=("b",)), MACHINES)
    assert (cost.added, cost.added_back, cost.sends, cost.crosses) == (0.0, 0.0, 0.0, 0.0)
    assert cost.work == exactly(112e9 / 1e12)
    assert (cost.written, cost.accumulated) == (
        exactly(0.1),
        0.0,
    )  # one microbatch: no sum


def test_a_slice_larger_than_an_island_adds_up_over_the_network() -> None:
    """Without islands, its rate is that of the first one."""
    (cost,) = stage_costs(profile(), (0, 4), SplitChoice(1, 1, 8, 2), MACHINES)
    assert cost.work == exactly(112e9 / (16 * 0.5e12))
    assert cost.added == exactly(1.4e9 / 8 / 1e9)
    assert cost.added_back == exactly(1.4e9 / 8 / 1e9 + 2 * 1e10 * 7 / 8 / 1e9)


def test_chunks_of_an_interleaved_split_go_around_the_islands() -> None:
    choice = SplitChoice(2, 2, microbatches=2, islands=("a", "b"))
    costs = stage_costs(profile(), (0, 1, 2, 3, 4), choice, MACHINES)
    assert [c.work for c in costs] == [exactly(s) for s in (16e9 / 5e11, 8e9 / 1e12, 24e9 / 5e11, 64e9 / 1e12)]
    assert [c.crosses for c in costs] == [3e8, 5e8, 6e8, 0.0]


def test_neighbors_on_one_island_use_the_links_of_all_their_devices() -> None:
    costs = stage_costs(profile(), (0, 2, 4), SplitChoice(2, 1, 2, 1, 2, islands=("b", "b")), MACHINES)
    assert [c.sends for c in costs] == [exactly(5e8 / (2 * 40e9)), 0.0] and not any(c.crosses for c in costs)


def test_a_device_of_unknown_rate_has_the_assumed_one() -> None:
    machines = Machines(TWO, efficiency=0.25)
    assert machines.rate(Island("c", 1)) == 0.25 * ASSUMED_FLOPS and machines.rate(TWO.islands[1]) == 5e11
