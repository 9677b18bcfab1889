"""Tests the lower bound of the idle time (bubble) of any order of the same work."""

import pytest

from pathways.compiler.schedule.timeline import Precedence, bubble, play


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
