"""Tests the reports of late inbound values: one per limit while a value is missing, none after it arrived."""

import time

import pytest

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


def test_a_value_is_late_only_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    awaited = AwaitedValues(limit=10.0, run=3)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    awaited.begin("island0")
    assert awaited.late(110.0) == [] and awaited.late(110.5) == [(3, "island0")]
    assert awaited.late(120.5) == [] and awaited.late(121.0) == [(3, "island0")]


def test_equal_waits_end_one_by_one() -> None:
    awaited = AwaitedValues(limit=10.0, run=3)
    numbers = [awaited.begin("island0") for _ in range(3)]
    assert len(set(numbers)) == 3
    awaited.end(numbers[1])
    assert awaited.late(time.monotonic() + 11) == [(3, "island0")] * 2
