"""The scheduler keeps the order of the line: which waiting runs may overtake others, and which may not."""

from collections.abc import Hashable
from typing import ClassVar

import pytest

from pathways.runtime.control.scheduling import Request
from pathways.runtime.control.scheduling.fifo import Fifo
from pathways.runtime.control.scheduling.memory_ledger import Ledger
from pathways.runtime.control.scheduling.scheduler import Scheduler


class Recording(Fifo):
    """Runs in the order in which they were submitted; records what it is notified of."""

    name: ClassVar[str] = "recording"

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []

    def submitted(self, request: Request) -> None:
        self.events.append(("submitted", request.number))

    def started(self, request: Request) -> None:
        self.events.append(("started", request.number))

    def ended(self, request: Request) -> None:
        self.events.append(("ended", request.number))


def scheduler(depth: int = 4, **limits: int) -> Scheduler:
    ledger = Ledger()
    for island, size in limits.items():
        ledger.limit((island, 0), size)
    return Scheduler(Recording(), ledger, depth)


def events_of(s: Scheduler) -> list[tuple[str, int]]:
    assert isinstance(s.policy, Recording)
    return s.policy.events


def request(number: int, client: str, islands: str, size: int = 0) -> Request:
    wanted: dict[Hashable, int] = {(island, 0): size for island in islands} if size else {}
    return Request(number, client, "program", frozenset(islands), bytes=wanted)


def held_by_arrays(s: Scheduler, island: str, size: int) -> None:
    assert s.hold(((island, 0),), size) == []


def test_a_run_that_waits_for_data_lets_others_enqueue_until_it_returns() -> None:
    s = scheduler()
    assert s.submit(request(0, "a", "x")) == [0] and s.submit(request(1, "b", "x")) == []
    assert s.yield_slot(0) == [1]
    assert s.pause(0) == [] and s.enqueued(1) == [0]


def test_a_run_on_no_island_never_waits() -> None:
    s = scheduler()
    assert s.submit(request(0, "a", "x")) == [0] and s.submit(request(1, "b", "x")) == []
    assert s.submit(request(2, "b", "")) == [2] and s.pause(2) == [2]
    assert s.enqueued(2) == [] and s.finished(2) == [] and s.enqueued(0) == [1]


class Last(Fifo):
    """Clients whose run started last go last."""

    def __init__(self) -> None:
        self.started_at: dict[str, int] = {}

    def rank(self, request: Request) -> tuple[float, int]:
        return float(self.started_at.get(request.client, 0)), request.number

    def started(self, request: Request) -> None:
        self.started_at[request.client] = 1 + max(self.started_at.values(), default=0)


def test_a_run_on_no_island_may_let_runs_of_other_clients_go_first() -> None:
    s = Scheduler(Last(), Ledger(), depth=4)
    assert s.submit(request(0, "c", "x")) == [0]
    assert s.submit(request(1, "a", "xy")) == s.submit(request(2, "b", "y")) == []
    assert s.submit(request(3, "a", "")) == [3, 2]  # run 1 of the same client waits behind run 2 now


def test_the_policy_is_notified_once_of_each_submission_and_each_end() -> None:
    s = scheduler()
    for number in range(4):
        s.submit(request(number, "a", "x"))
    s.enqueued(0)
    s.finished(0)
    s.finished(0)  # the thread of the run may hear late that it has ended
    s.cancel(2)  # it waits
    s.cancel(1)  # it enqueues
    policy = s.policy
    assert isinstance(policy, Recording)
    ended = [number for event, number in policy.events if event == "ended"]
    submitted = [number for event, number in policy.events if event == "submitted"]
    assert (submitted, ended) == ([0, 1, 2, 3], [0, 2, 1])
    assert [number for event, number in policy.events if event == "started"] == [0, 1, 3]


def test_a_paused_run_is_started_anew_each_time_that_its_turn_comes() -> None:
    s = scheduler()
    assert s.submit(request(0, "a", "x")) == [0] and s.pause(0) == [0] and s.pause(0) == [0]
    assert isinstance(s.policy, Recording) and s.policy.events.count(("started", 0)) == 3
    assert s.in_flight == {"x": {"a": 1}}, "it takes one place in flight"


def test_a_paused_run_is_not_overtaken_by_a_paused_run_behind_it() -> None:
    """Run 0 waits for island x. Run 1 would take island y, which run 0 needs at the same time."""
    s = scheduler()
    assert s.submit(request(0, "a", "xy")) == [0] and s.yield_slot(0) == []
    assert s.submit(request(1, "b", "y")) == [1] and s.yield_slot(1) == []
    assert s.submit(request(2, "c", "x")) == [2]
    assert s.pause(0) == [] and s.pause(1) == []
    assert s.enqueued(2) == [0]
    assert s.enqueued(0) == [1]


def test_a_paused_run_does_not_wait_for_itself() -> None:
    s = scheduler()
    s.submit(request(0, "a", "x"))
    s.yield_slot(0)
    s.submit(request(1, "b", "x"))
    s.pause(0)
    assert [r.number for r in s.goes_before(0)] == [1]


def test_a_client_with_a_full_island_waits_if_only_one_other_client_wants_it() -> None:
    s = scheduler(depth=1)
    assert s.submit(request(0, "a", "x")) == [0]
    assert s.submit(request(1, "a", "x")) == s.submit(request(2, "b", "x")) == []
    assert s.enqueued(0) == [], "one run is in flight, and another client wants the island"
    assert s.finished(0) == [1]


def test_a_run_that_fits_does_not_overtake_one_that_waits_for_memory_of_a_run() -> None:
    """Island x is busy: the memory that run 1 lacks is freed by run 0, not by arrays of clients."""
    s = scheduler(x=100, y=100)
    assert s.submit(request(0, "a", "x", 80)) == [0] and s.enqueued(0) == []
    assert s.submit(request(1, "b", "xy", 50)) == []
    assert s.submit(request(2, "c", "y", 10)) == []
    assert s.finished(0) == [1]


def test_no_memory_is_lacking_for_good_while_a_run_on_the_island_may_free_some() -> None:
    s = scheduler(x=100, y=100)
    assert s.submit(request(0, "a", "x", 80)) == [0]
    assert s.submit(request(1, "b", "xy", 50)) == []
    assert s.lacks_memory(1) is None, "run 0 is being enqueued"
    s.enqueued(0)
    assert s.lacks_memory(1) is None, "run 0 is in flight"
    held_by_arrays(s, "x", 60)
    assert s.finished(0) == []
    assert s.lacks_memory(1) == ("x", 0)


@pytest.mark.parametrize("number", [0, 9])
def test_a_run_that_does_not_wait_lacks_no_memory(number: int) -> None:
    s = scheduler(x=100)
    s.submit(request(0, "a", "x", 80))
    assert s.lacks_memory(number) is None


def test_only_the_first_in_line_lacks_memory_for_good() -> None:
    s = scheduler(x=100, y=100)
    held_by_arrays(s, "x", 60)
    held_by_arrays(s, "y", 60)
    for number, islands in enumerate(("x", "x", "y")):
        assert s.submit(request(number, "abc"[number], islands, 50)) == []
    lacking = [s.lacks_memory(number) for number in range(3)]
    assert lacking == [("x", 0), None, ("y", 0)], "run 1 waits behind run 0; run 2 is on another island"
