"""Tests the reports of late inbound values: one per limit while a value is missing, none after it arrived."""

import time

from pathways.runtime.host.run.awaited_values import AwaitedValues


def test_late_values_are_reported_once_per_limit() -> None:
    awaited = AwaitedValues(limit=10.0, run=3)
    first, second = awaited.begin("island0"), awaited.begin("island1")
    now = time.monotonic()
    assert awaited.late(now + 5) == []
    assert awaited.late(now + 11) == [(3, "island0"), (3, "island1")]
    assert awaited.late(now + 12) == []
    awaited.end(second)
    assert awaited.late(now + 22) == [(3, "island0")]
    awaited.end(first)
    awaited.end(first)
    awaited.run = 4
    awaited.begin("island0")
    assert awaited.late(now + 5) == []
    assert awaited.late(now + 40) == [(4, "island0")]


def test_without_a_limit_no_value_is_late() -> None:
    awaited = AwaitedValues(limit=0.0)
    awaited.begin("island0")
    assert awaited.late(time.monotonic() + 1e6) == []
