"""What a schedule is estimated to take: its work over the devices of its meshes, its transfers over their links."""

from typing import Any

import pytest
from support.pipelines import block, pipe

from pathways.compiler.schedule.timeline import Precedence, bubble, play
from pathways.dialect.topology import Island, Topology


def seconds(p: Any, devices: int, *, dcn: float, flops: float = 1e12) -> float:
    islands = tuple(Island(f"i{n}", devices, flops=flops) for n in range(2))
    return p.lowered().compile(Topology(islands, dcn_gbps=dcn), schedule="gpipe").plan.schedule.estimated_seconds


def test_twice_the_devices_take_half_the_time() -> None:
    """Where transfers take next to none."""
    alone = seconds(pipe(slices=2, microbatches=4, stage=block), 1, dcn=1e9)
    for devices in (2, 4):
        found = seconds(pipe(slices=2, microbatches=4, stage=block, devices=devices), devices, dcn=1e9)
        assert found == pytest.approx(alone / devices, rel=1e-3)


def test_half_the_rate_takes_twice_the_time() -> None:
    p = pipe(slices=2, microbatches=4, stage=block)
    assert seconds(p, 1, dcn=1e9, flops=5e11) == pytest.approx(2 * seconds(p, 1, dcn=1e9), rel=1e-3)
    moves = seconds(p, 1, dcn=1e-3, flops=1e18)  # next to no work
    assert seconds(p, 1, dcn=5e-4, flops=1e18) == pytest.approx(2 * moves, rel=1e-3)


def test_the_least_bubble_by_hand() -> None:
    """Two slices, three microbatches of a second each: the second slice cannot start before the first has made one.

    Behind the last call of the first slice somebody must still work for a second; so none has less than one in four.
    """
    waits = [[], [0], [], [2], [], [4]]
    graph = Precedence(waits, [0, 1] * 3, [1.0] * 6)
    behind = [(), (), (0,), (1,), (2,), (3,)]
    found = bubble(graph, play(graph, behind))
    assert (found.seconds, found.fraction, found.bound) == (4.0, 0.25, 0.25)


def test_the_bound_counts_what_must_follow_the_last_call_that_is_not_followed_least() -> None:
    """Slice 0 makes two values; a long tail on slice 1 hangs on one of them alone: slice 0 makes that one first."""
    graph = Precedence([[], [], [0]], [0, 0, 1], [1.0, 1.0, 5.0])
    found = bubble(graph, play(graph, [(), (0,), ()]))
    assert found.seconds == 6.0 and found.bound == pytest.approx(1 - 7 / 12) == found.fraction
    late = bubble(graph, play(graph, [(1,), (), ()]))
    assert late.seconds == 7.0 and late.bound == found.bound < late.fraction
