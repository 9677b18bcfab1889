"""Tests how reasons of placements show times."""

import pytest

from pathways.compiler.placement.runner_up import seconds

SHOWN = [(2.0, "2 s"), (1.0, "1 s"), (0.5, "500 ms"), (1e-3, "1 ms"), (1e-6, "1 us"), (5e-7, "500 ns")]


@pytest.mark.parametrize(("value", "shown"), SHOWN)
def test_a_time_is_shown_in_its_largest_whole_unit(value: float, shown: str) -> None:
    assert seconds(value) == shown
