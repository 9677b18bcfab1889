"""Hosts of an island hang if none of them has computed for half of the time limit."""

import pytest

from pathways.runtime.control.health import hangs, roll_of


@pytest.mark.parametrize(
    ("idle", "expected"),
    [((5.0,), True), ((4.9,), False), ((5.0, 60.0), True), ((60.0, 4.9), False), ((4.9, 60.0), False)],
)
def test_hosts_hang_if_all_are_idle_for_half_of_the_limit(idle: tuple[float, ...], expected: bool) -> None:
    assert hangs(10.0, idle) is expected


def test_each_host_is_listed_with_what_it_has_launched() -> None:
    assert roll_of({"pod/0": ["a", "b"], "pod/1": []}) == "pod/0: a\npod/0: b\npod/1: no run in flight"
