"""Tests, with a clock that the test moves, how many executions share a token and when a launch waits."""

from typing import Any

import pytest

from pathways.runtime.host.devices import in_flight_limit
from pathways.runtime.host.devices.in_flight_limit import (
    FEW,
    QUICK_WAIT_S,
    SLOW_WAIT_S,
    TOKEN_STRIDE,
    DeviceQueue,
    Gang,
    QueueLost,
    unfinished,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Result:
    """A small result whose execution takes some seconds."""

    def __init__(self, clock: Clock, seconds: float = 0.0, *, fails: bool = False, deleted: bool = False) -> None:
        self.clock, self.seconds, self.fails = clock, seconds, fails
        self.waits = 0
        self.is_deleted = lambda: deleted

    def block_until_ready(self) -> None:
        self.waits += 1
        self.clock.now += self.seconds
        if self.fails:
            raise RuntimeError("it failed")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(in_flight_limit, "time", found)
    return found


def launch(gang: Gang, result: Result) -> bool:
    due = gang.admit()
    if due:
        gang.started((object(), result))
    return due


@pytest.mark.parametrize(("most", "stride"), [(16, 8), (9, 8), (8, 4), (3, 1), (2, 1), (1, 1)])
def test_executions_share_fewer_tokens_where_few_may_be_in_flight(most: int, stride: int) -> None:
    assert DeviceQueue(most).stride == stride and TOKEN_STRIDE == 8


def test_every_execution_has_a_token_until_waits_are_quick(clock: Clock) -> None:
    queue = DeviceQueue()
    gang = Gang([queue])
    results = [Result(clock, QUICK_WAIT_S / 2) for _ in range(200)]
    dues = [launch(gang, result) for result in results]
    assert dues[:9] == [True] * 9 and max(queue.flying, queue.since) <= 16
    assert [n for _, n in queue.tokens][-1] == 8  # eight share one in the end
    assert [r.waits for r in results[:9]] == [1] * 9


def test_no_more_executions_are_in_flight_than_the_limit(clock: Clock) -> None:
    for most in (1, 2, 3, 8, 16):
        queue = DeviceQueue(most)
        gang = Gang([queue])
        seen = 0
        for _ in range(100):
            launch(gang, Result(clock, QUICK_WAIT_S / 2))
            seen = max(seen, queue.flying)
        assert seen <= most and queue.flying == sum(n for _, n in queue.tokens) + queue.since


def test_slow_executions_each_have_a_token_again(clock: Clock) -> None:
    queue = DeviceQueue()
    gang = Gang([queue])
    for _ in range(100):
        launch(gang, Result(clock, QUICK_WAIT_S / 2))
    dues: list[bool] = []
    for _ in range(60):
        dues.append(launch(gang, Result(clock, 2 * SLOW_WAIT_S)))
    assert not all(dues[:8]) and all(dues[-8:]) and queue.moved == clock.now


@pytest.mark.parametrize("seconds", [QUICK_WAIT_S, SLOW_WAIT_S])
def test_waits_between_quick_and_slow_change_nothing(clock: Clock, seconds: float) -> None:
    clock.now = 0.0  # so that the sums below are exact
    gang = Gang([DeviceQueue()])
    results: list[Result] = []
    for _ in range(40):
        clock.now = 0.0
        results.append(Result(clock, seconds))
        assert launch(gang, results[-1])
    assert sum(r.waits for r in results) > 20


def test_a_gang_waits_for_the_fullest_of_its_devices(clock: Clock) -> None:
    shared, free = DeviceQueue(2), DeviceQueue(2)
    first = [Result(clock) for _ in range(2)]
    for result in first:
        assert launch(Gang([shared]), result)
    assert [r.waits for r in first] == [0, 0]
    last = Result(clock)
    assert launch(Gang([free, shared]), last)
    assert [r.waits for r in first] == [1, 0] and last.waits == 0 and (free.flying, shared.flying) == (1, 2)


def test_an_execution_that_failed_is_done_too(clock: Clock) -> None:
    queue = DeviceQueue(1)
    gang = Gang([queue])
    results = [Result(clock, fails=True) for _ in range(3)]
    assert [launch(gang, r) for r in results] == [True] * 3
    assert [r.waits for r in results] == [1, 1, 0] and queue.flying == 1


def test_each_device_of_a_gang_may_have_its_own_token(clock: Clock) -> None:
    queues = [DeviceQueue(), DeviceQueue()]
    gang = Gang(queues)
    assert gang.admit()
    gang.started_each([("a", None), ("b", None)])
    assert [list(q.tokens) for q in queues] == [[(("a", None), 1)], [(("b", None), 1)]]
    assert [q.since for q in queues] == [0, 0] and [q.flying for q in queues] == [1, 1]


def test_an_execution_that_is_seen_twice_counts_once() -> None:
    queue = DeviceQueue()
    gang = Gang([queue])
    for name in "ab":
        gang.admit()
        gang.started((name, None))
    oldest = queue.tokens[0]
    queue.done(oldest, 5.0)
    queue.done(oldest, 6.0)
    assert queue.flying == 1 and queue.moved == 6.0 and [t for (t, _), _ in queue.tokens] == ["b"]
    queue.done(queue.tokens[0], 7.0)
    queue.done(oldest, 8.0)
    assert queue.flying == 0


def test_a_lost_queue_admits_nothing_until_it_is_back() -> None:
    queue, other = DeviceQueue(), DeviceQueue()
    gang = Gang([queue])
    for _ in range(3):
        gang.admit()
        gang.started(("token", None))
    opened: list[Any] = []
    gate: Any = type("Opens", (), {"open": lambda self: opened.append(self)})()
    queue.waits.add(gate)
    queue.lose()
    assert opened == [gate] and queue.lost
    for lost in (gang, Gang([other, queue])):
        with pytest.raises(QueueLost):
            lost.admit()
    queue.recover()
    assert not queue.lost and not queue.tokens and (queue.flying, queue.since) == (0, 0)
    assert gang.admit() and queue.flying == 1


@pytest.mark.parametrize(("count", "kept"), [(FEW - 1, FEW - 1), (FEW, 2), (FEW + 5, 2)])
def test_many_tokens_are_reduced_to_those_in_a_queue(count: int, kept: int) -> None:
    tokens = [object() for _ in range(count)]
    queues = [DeviceQueue(), DeviceQueue()]
    for queue, token in zip(queues, tokens[3:5], strict=True):
        queue.tokens.append(((token, None), 1))
    found = unfinished(tokens, queues)
    assert list(found) == (tokens if kept == count else tokens[3:5])
