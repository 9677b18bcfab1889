"""A client owns the islands that only it uses: its launches there ask nobody, and a rival waits for at most one."""

import threading
from collections.abc import Callable

import pytest

from pathways.runtime.control.scheduling import Request
from pathways.runtime.control.scheduling.fifo import Fifo
from pathways.runtime.control.scheduling.ownership import Ownership
from pathways.runtime.control.scheduling.scheduler import Scheduler


class Recording(Fifo):
    """Records the runs that it is notified of."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def submitted(self, request: Request) -> None:
        self.seen.append(request.number)


def request(number: int, client: str, islands: str) -> Request:
    return Request(number, client, "program", frozenset(islands))


class Launch:
    """A launch of an owner, in the steps between which other threads may run."""

    def __init__(self, scheduler: Scheduler, owned: Ownership, client: str = "a") -> None:
        self.scheduler, self.owned, self.client = scheduler, owned, client
        self.is_launching = self.is_scheduler_busy = False
        self.started: list[int] = []
        """The runs that its end has started."""

    def takes_the_lock(self) -> bool:
        return self.owned.lock.acquire(False)

    def begins(self) -> bool:
        may_ask = not self.is_scheduler_busy  # else `RunQueue.own` refuses
        is_owner = self.owned.client == self.client
        self.is_launching = is_owner or (may_ask and self.scheduler.own(self.owned, self.client))
        return self.is_launching

    def releases(self) -> None:
        self.is_launching = False
        self.owned.lock.release()

    def settles(self) -> None:
        if self.owned.client != self.client:
            self.started += self.scheduler.settle(self.owned)

    def runs(self) -> bool:
        """Runs all steps; returns whether it has launched."""
        launched = self.takes_the_lock() and self.begins()
        self.releases()
        self.settles()
        return launched


def world(islands: str = "x") -> tuple[Scheduler, Ownership]:
    return Scheduler(Recording()), Ownership(frozenset(islands))


def test_launches_of_the_only_client_are_not_seen_by_the_policy() -> None:
    s, owned = world("xy")
    assert all(Launch(s, owned).runs() for _ in range(3))
    assert not s.active and not s.entries and isinstance(s.policy, Recording) and not s.policy.seen


STEPS: list[Callable[[Launch], object]] = [Launch.takes_the_lock, Launch.begins, Launch.releases, Launch.settles]


@pytest.mark.parametrize("at", range(len(STEPS) + 1))
@pytest.mark.parametrize("is_owned", [True, False])
def test_a_rival_at_any_moment_waits_only_while_a_launch_goes_on(at: int, is_owned: bool) -> None:
    s, owned = world()
    assert not is_owned or Launch(s, owned).runs()
    launch, begun = Launch(s, owned), list[int]()
    for number, step in enumerate(STEPS):
        if number == at:
            begun = s.submit(request(7, "b", "x"))
            assert not (begun and launch.is_launching)
        if step(launch) is False:
            assert at in (0, 1), "the ownership has ended before the launch"
    if at == len(STEPS):
        begun = s.submit(request(7, "b", "x"))
    assert begun + launch.started == [7] and s.active == {"x": 7}
    assert not Launch(s, owned).runs() and s.enqueued(7) == s.finished(7) == []
    assert Launch(s, owned).runs() and not s.active


class Watched:
    """A lock that calls `when_asked` before it says whether it is held: another thread may run there."""

    def __init__(self, when_asked: Callable[[], object]) -> None:
        self._lock, self._when_asked = threading.Lock(), when_asked
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def locked(self) -> bool:
        when_asked, self._when_asked = self._when_asked, lambda: None
        when_asked()
        return self._lock.locked()


@pytest.mark.parametrize("steps", range(1, len(STEPS) + 1))
def test_a_launch_that_begins_while_the_ownership_ends_is_refused_or_seen(steps: int) -> None:
    s, owned = world()
    assert Launch(s, owned).runs()
    launch = Launch(s, owned)

    def goes_on() -> None:
        launch.is_scheduler_busy = True
        for step in STEPS[:steps]:
            step(launch)
        assert not launch.is_launching

    owned.lock = Watched(goes_on)  # pyright: ignore[reportAttributeAccessIssue]
    begun = s.submit(request(7, "b", "x"))
    for step in STEPS[steps:]:
        step(launch)
    assert begun + launch.started == [7] and s.active == {"x": 7}


def test_an_owner_that_has_ended_settles_nothing_while_another_launch_goes_on() -> None:
    """The first thread is slow: the island has been owned, and has been asked for, again."""
    s, owned = world()
    first, second = Launch(s, owned), Launch(s, owned)
    assert first.takes_the_lock() and first.begins()
    assert s.submit(request(7, "b", "x")) == []
    first.releases()
    assert second.takes_the_lock() and not second.begins()
    first.settles()
    assert first.started == [] and not s.running
    second.releases()
    second.settles()
    assert second.started == [7]


def test_islands_that_two_ownerships_share_belong_to_the_last() -> None:
    s, wide = world("xy")
    narrow = Ownership(frozenset("y"))
    assert narrow.number != wide.number and max(narrow.number, wide.number) < 0
    assert Launch(s, wide).runs() and Launch(s, narrow).runs() and not wide.client
    assert Launch(s, wide).runs() and not narrow.client
    going = Launch(s, wide)
    assert going.takes_the_lock() and going.begins()
    assert not Launch(s, narrow).runs(), "a launch goes on there"
    assert not wide.client and s.submit(request(7, "b", "x")) == []
    going.releases()
    going.settles()
    assert going.started == [7] and s.active == {"x": 7} and Launch(s, narrow).runs()


def test_nobody_owns_an_island_that_another_client_uses_or_waits_for() -> None:
    s, owned = world()
    other = Ownership(frozenset("z"))
    assert s.submit(request(0, "b", "x")) == [0] and not Launch(s, owned).runs()
    assert s.enqueued(0) == [] and not Launch(s, owned).runs()
    assert Launch(s, owned, "b").runs(), "runs of its own do not count"
    assert s.submit(request(1, "b", "x")) == [1] and s.submit(request(2, "a", "x")) == []
    assert not Launch(s, other).runs(), "a run waits"
    assert s.enqueued(1) == [2] and s.enqueued(2) == [] and Launch(s, other).runs()


def test_a_launch_that_is_not_complete_becomes_a_run_like_all_others() -> None:
    s, owned = world()
    launch = Launch(s, owned)
    assert launch.takes_the_lock() and launch.begins() and s.submit(request(1, "b", "x")) == []
    assert s.adopt(request(0, "a", "x")) == [] and s.running[0].client == "a"
    assert s.enqueued(0) == [] and s.active == {"x": owned.number}
    launch.releases()
    launch.settles()
    assert launch.started == [1] and s.active == {"x": 1} and not Launch(s, owned).runs()
    assert isinstance(s.policy, Recording) and s.policy.seen == [1, 0]


def test_a_launch_that_becomes_a_run_leaves_its_islands_to_a_run_that_has_got_them_meanwhile() -> None:
    """Its events are processed late, after those of two rivals: another thread is processing events."""
    s, owned = world()
    launch = Launch(s, owned)
    assert launch.takes_the_lock() and launch.begins()
    launch.releases()
    assert s.submit(request(2, "b", "x")) == [2]
    assert s.adopt(request(1, "a", "x")) == [] and s.enqueued(1) == [] and s.active == {"x": 2}
    assert s.submit(request(3, "b", "x")) == [] and s.enqueued(2) == [3]


def test_an_ownership_is_forgotten_with_the_plans_of_its_islands() -> None:
    s, owned = world()
    assert Launch(s, owned).runs() and len(s._owned) == 1  # pyright: ignore[reportPrivateUsage]
    del owned
    assert not s._owned  # pyright: ignore[reportPrivateUsage]
