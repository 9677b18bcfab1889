"""Values that do not come: told when they are late, and again after as long; never when they have come."""

import time

from pathways.runtime.host.run.awaited_values import AwaitedValues


def test_what_is_late_is_told_now_and_then() -> None:
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


def test_without_a_limit_nothing_is_late() -> None:
    awaited = AwaitedValues(limit=0.0)
    awaited.begin("island0")
    assert awaited.late(time.monotonic() + 1e6) == []
