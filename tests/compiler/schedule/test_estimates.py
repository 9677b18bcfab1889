"""Tests the estimated time of schedules: work is divided over the devices of meshes, transfers over links."""

from typing import Any

import pytest
from support.pipelines import block, pipe

from pathways.compiler.schedule.timeline import Precedence, bubble, play
from pathways.dialect.topology import Island, Topology


def seconds(p: Any, devices: int, *, dcn: float, flops: float = 1e12) -> float:
    islands = tuple(Island(f"i{n}", devices, flops=flops) for n in range(2))
    return p.lowered().compile(Topology(islands, dcn_gbps=dcn), schedule="gpipe").plan.schedule.estimated_seconds


def test_twice_the_devices_halve_the_estimated_time() -> None:
    """Transfers take almost no time here."""
    on_one_device = seconds(pipe(slices=2, microbatches=4, stage=block), 1, dcn=1e9)
    found = seconds(pipe(slices=2, microbatches=4, stage=block, devices=2), 2, dcn=1e9)
    assert found == pytest.approx(on_one_device / 2, rel=1e-3)


@pytest.mark.long("a model of another library is compiled: 1 to 60 s each")
def test_half_the_rate_doubles_the_estimated_time() -> None:
    p = pipe(slices=2, microbatches=4, stage=block)
    assert seconds(p, 1, dcn=1e9, flops=5e11) == pytest.approx(2 * seconds(p, 1, dcn=1e9), rel=1e-3)
    moves = seconds(p, 1, dcn=1e-3, flops=1e18)  # almost no work
    assert seconds(p, 1, dcn=5e-4, flops=1e18) == pytest.approx(2 * moves, rel=1e-3)


def test_the_bound_of_the_bubble_equals_a_value_computed_by_hand() -> None:
    """Two slices run three microbatches of a second each; the second slice waits for the first microbatch.

    After the last call of the first slice the second works for one more second, so each idles one second in four.
    """
    waits = [[], [0], [], [2], [], [4]]
    graph = Precedence(waits, [0, 1] * 3, [1.0] * 6)
    predecessors = [(), (), (0,), (1,), (2,), (3,)]
    found = bubble(graph, play(graph, predecessors))
    assert (found.seconds, found.fraction, found.bound) == (4.0, 0.25, 0.25)


def test_the_bound_of_the_bubble_assumes_the_best_order_of_calls() -> None:
    """Slice 0 makes two values, and a long call of slice 1 needs one of them. The bound makes that value first."""
    graph = Precedence([[], [], [0]], [0, 0, 1], [1.0, 1.0, 5.0])
    found = bubble(graph, play(graph, [(), (0,), ()]))
    assert found.seconds == 6.0 and found.bound == pytest.approx(1 - 7 / 12) == found.fraction
    late = bubble(graph, play(graph, [(1,), (), ()]))
    assert late.seconds == 7.0 and late.bound == found.bound < late.fraction
