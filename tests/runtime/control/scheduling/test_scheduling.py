"""Tests the scheduler, its policies and the memory ledger, without a clock or devices."""

import random
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.control.scheduling import SCHEDULING_POLICIES, Request
from pathways.runtime.control.scheduling.find_policy import find_scheduling_policy
from pathways.runtime.control.scheduling.memory_ledger import Ledger
from pathways.runtime.control.scheduling.scheduler import Scheduler


def request(number: int, client: str = "a", islands: str = "x", weight: float = 1.0, size: int = 0) -> Request:
    bytes_: dict[Hashable, int] = {(i, 0): size for i in islands} if size else {}
    return Request(number, client, "program", frozenset(islands), weight, bytes=bytes_)


def scheduler(policy: str = "fifo", depth: int = 4, **limits: int) -> Scheduler:
    ledger = Ledger()
    for island, size in limits.items():
        ledger.limit((island, 0), size)
    return Scheduler(SCHEDULING_POLICIES[policy](), ledger, depth)


@pytest.mark.parametrize("policy", SCHEDULING_POLICIES)
def test_an_island_enqueues_one_run_at_a_time(policy: str) -> None:
    s = scheduler(policy)
    assert s.submit(request(0)) == [0]
    assert s.submit(request(1, "b")) == []
    assert s.submit(request(2, "c", "y")) == [2]
    assert s.enqueued(0) == [1]
    assert s.enqueued(1) == [] and s.enqueued(2) == []
    assert s.finished(0) == [] and s.finished(1) == [] and s.finished(2) == []


def test_a_run_on_several_islands_waits_for_all_and_is_not_overtaken() -> None:
    s = scheduler()
    assert s.submit(request(0, "a", "x")) == [0]
    assert s.submit(request(1, "b", "xy")) == []
    assert s.submit(request(2, "c", "y")) == []  # y is free, but run 1 is first in its queue
    assert s.enqueued(0) == [1]
    assert s.enqueued(1) == [2]


def test_goes_before_lists_the_runs_ahead_of_a_waiting_run() -> None:
    s = scheduler(depth=2)
    for number, client, islands in ((0, "a", "x"), (1, "b", "y"), (2, "b", "xy"), (3, "c", "x"), (4, "d", "z")):
        s.submit(request(number, client, islands))
    assert [r.number for r in s.goes_before(2)] == [0, 1]
    assert [(r.number, r.client) for r in s.goes_before(3)] == [(0, "a"), (2, "b")]
    # 0 and 4 are already scheduled, 9 does not exist
    assert s.goes_before(0) == s.goes_before(4) == s.goes_before(9) == []


def test_the_depth_limits_clients_only_when_they_compete() -> None:
    s = scheduler(depth=2)
    for number in range(8):
        assert s.submit(request(number)) == [number]
        s.enqueued(number)
    assert s.submit(request(8, "b")) == []
    for number in range(6):
        assert s.finished(number) == []
    assert s.finished(6) == [8]  # one run of client a is still in flight


def test_a_client_is_not_limited_by_those_that_wait_for_other_islands() -> None:
    s = scheduler(depth=1)
    assert s.submit(request(0, "b", "y")) == [0] and s.submit(request(1, "b", "y")) == []
    for number in (2, 3):
        assert s.submit(request(number, "a", "x")) == [number]
        s.enqueued(number)


@pytest.mark.parametrize("weights", [(1, 1, 1, 1), (1, 2, 4, 8)])
def test_stride_shares_are_proportional_to_weights(weights: tuple[int, ...]) -> None:
    s = scheduler("stride", depth=1)
    numbers = iter(range(100_000))
    owner: dict[int, str] = {}

    def submit(client: str) -> list[int]:
        number = next(numbers)
        owner[number] = client
        return s.submit(request(number, client, weight=weights[int(client)]))

    running = [n for client in "0123" for _ in range(2) for n in submit(client)]
    turns: Counter[str] = Counter()
    while sum(turns.values()) < 3000:
        number = running.pop(0)
        turns[owner[number]] += 1
        running += s.enqueued(number)
        running += submit(owner[number])
        running += s.finished(number)
    for client, weight in zip("0123", weights, strict=True):
        assert turns[client] / 3000 == pytest.approx(weight / sum(weights), rel=0.02)


def test_a_client_that_was_idle_does_not_catch_up() -> None:
    s = scheduler("stride", depth=1)
    for number in range(100):
        s.submit(request(number, "a"))
        s.enqueued(number)
        s.finished(number)
    order: list[int] = s.submit(request(100, "a"))
    for number in range(101, 110):
        order += s.submit(request(number, "ab"[number % 2]))
    turns = ""
    while order:
        number = order.pop(0)
        turns += "ab"[number % 2]
        order += s.enqueued(number)
        order += s.finished(number)
    assert turns == "ababababab"


def test_runs_wait_for_memory_in_order() -> None:
    s = scheduler(x=100)
    assert s.submit(request(0, "a", size=80)) == [0]
    assert s.enqueued(0, {("x", 0): 60}) == []
    assert s.submit(request(1, "b", size=50)) == []
    assert s.submit(request(2, "c", size=10)) == []  # has enough memory, but may not overtake run 1
    assert s.hold((("x", 0),), 20) == []
    assert s.finished(0) == [1]
    assert s.ledger.free(("x", 0)) == 30
    assert s.lacks_memory(2) is None  # has enough memory, and waits until run 1 is enqueued
    assert s.enqueued(1, {("x", 0): 50}) == [2]
    assert s.enqueued(2) == [] and s.submit(request(3, "c", size=81)) == []
    assert s.finished(1) == [] and s.finished(2) == []
    assert s.lacks_memory(3) == ("x", 0)
    assert s.hold((("x", 0),), -20) == [3]


def test_short_of_names_the_device_that_lacks_most_memory() -> None:
    ledger = Ledger()
    for device, limit, held in (("a", 100, 90), ("b", 100, 20), ("c", 50, 0), ("d", 10, 10)):
        ledger.limit(device, limit)
        ledger.hold((device,), held)
    assert ledger.short_of({"a": 40, "b": 81, "c": 51}) == "a"
    assert ledger.short_of({"b": 81, "c": 51, "d": 2}) == "d"
    assert ledger.short_of({"a": 10, "b": 80, "c": 50}) is None and ledger.fits({"a": 10, "b": 80, "c": 50})
    assert ledger.short_of({"c": 51}) == "c" and not ledger.fits({"c": 51})


def test_a_run_overtakes_one_that_waits_for_memory_held_by_arrays() -> None:
    s = scheduler(x=100)
    s.hold((("x", 0),), 60)
    assert s.submit(request(0, "wants", size=80)) == []
    assert s.submit(request(1, "holds", size=10)) == [1]
    assert s.enqueued(1) == [] and s.finished(1) == []
    assert s.hold((("x", 0),), -60) == [0]


def test_a_paused_run_on_several_islands_is_scheduled_again() -> None:
    s = scheduler("stride", depth=4)
    assert s.submit(request(0, "wide", "xy")) == [0]
    numbers = iter(range(1, 1000))
    mine = {i: next(numbers) for i in "xy"}
    assert all(s.submit(request(n, f"narrow {i}", i)) == [] for i, n in mine.items())
    back = s.pause(0)
    for turn in range(100):
        if 0 in back:
            break
        island = "xy"[turn % 2]
        again = next(numbers)
        back = s.submit(request(again, f"narrow {island}", island))
        back += s.enqueued(mine[island])
        back += s.finished(mine[island])
        mine[island] = again
    assert 0 in back


def test_a_run_that_is_enqueued_while_paused_leaves_the_queue() -> None:
    s = scheduler(x=100)
    assert s.submit(request(0, "a", size=80)) == [0] and s.submit(request(1, "b", size=20)) == []
    assert s.pause(0) == [0]
    s.yield_slot(0)
    s.pause(0)
    s.enqueued(0)
    s.enqueued(77)
    s.finished(0)
    assert s.active == {"x": 1} and s.running.keys() == {1} and s.ledger.reserved == {("x", 0): 20}
    assert s.enqueued(1) == [] and s.finished(1) == []
    assert not s.running and s.ledger.reserved == {("x", 0): 0}


def test_cancelled_runs_do_not_delay_others() -> None:
    s = scheduler(x=100)
    s.submit(request(0, "a", size=80))
    s.enqueued(0)
    assert s.submit(request(1, "b", size=50)) == [] and s.submit(request(2, "c", size=10)) == []
    assert s.cancel(1) == [2]
    assert s.cancel(2) == [] and s.cancel(0) == []  # run 2 is being enqueued, run 0 is in flight
    assert s.ledger.reserved == {("x", 0): 0} and not s.running and not s.active
    assert s.submit(request(3, "d", size=100)) == [3]


@dataclass
class World:
    """Sends random events to a scheduler, and checks its invariants."""

    random: random.Random
    scheduler: Scheduler
    enqueuing: set[int] = field(default_factory=set[int])
    flying: set[int] = field(default_factory=set[int])
    paused: dict[int, int] = field(default_factory=dict[int, int])
    order: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    spans: dict[int, frozenset[str]] = field(default_factory=dict[int, frozenset[str]])
    resolved: set[int] = field(default_factory=set[int])

    def began(self, numbers: list[int]) -> None:
        for number in numbers:
            assert number not in self.enqueuing | self.flying | self.resolved
            self.enqueuing.add(number)
            if number not in self.paused:
                for island in self.spans[number]:
                    self.order.setdefault(island, []).append(number)
        self.check()

    def check(self) -> None:
        s = self.scheduler
        taken = Counter(i for n in self.enqueuing for i in self.spans[n])
        assert all(count == 1 for count in taken.values()) and taken.keys() == s.active.keys()
        for device, limit in s.ledger.limits.items():
            assert s.ledger.reserved[device] >= 0 and s.ledger.reserved[device] + s.ledger.held[device] <= limit

    def step(self, number: int) -> None:
        s, choice = self.scheduler, self.random.random()
        if choice < 0.4:
            islands = frozenset(self.random.sample("wxyz", self.random.choice([1, 1, 2, 3])))
            self.spans[number] = islands
            size = self.random.choice([0, 10, 60, 100])
            client = self.random.choice("abcd")
            made = request(number, client, "".join(islands), weight=1 + ord(client) % 3, size=size)
            self.began(s.submit(made))
        elif choice < 0.6 and self.enqueuing:
            chosen = self.random.choice(sorted(self.enqueuing))
            self.enqueuing.remove(chosen)
            if self.random.random() < 0.3 and self.paused.get(chosen, 0) < 3:
                self.paused[chosen] = self.paused.get(chosen, 0) + 1
                self.began(s.pause(chosen))
            else:
                self.flying.add(chosen)
                self.began(s.enqueued(chosen))
        elif choice < 0.9 and self.flying:
            chosen = self.random.choice(sorted(self.flying))
            self.flying.remove(chosen)
            self.resolved.add(chosen)
            self.began(s.finished(chosen))
        elif s.waiting or self.enqueuing:
            chosen = self.random.choice(sorted({*s.waiting, *self.enqueuing}))
            self.enqueuing.discard(chosen)
            self.resolved.add(chosen)
            self.began(s.cancel(chosen))


@pytest.mark.parametrize("policy", SCHEDULING_POLICIES)
@pytest.mark.parametrize("seed", range(60))
def test_random_events_end_all_runs_in_one_order_on_all_islands(policy: str, seed: int) -> None:
    world = World(random.Random(seed), scheduler(policy, depth=3, w=100, x=100, y=100, z=150))
    for number in range(400):
        world.step(number)
    while world.enqueuing or world.flying:  # no run starves: all submitted runs end
        for chosen in sorted(world.enqueuing):
            world.enqueuing.remove(chosen)
            world.flying.add(chosen)
            world.began(world.scheduler.enqueued(chosen))
        for chosen in sorted(world.flying):
            world.flying.remove(chosen)
            world.resolved.add(chosen)
            world.began(world.scheduler.finished(chosen))
    s = world.scheduler
    assert world.resolved == set(world.spans)
    assert not s.waiting and not s.running and not s.active and not any(s.in_flight.values())
    assert all(size == 0 for size in s.ledger.reserved.values())
    for first in world.order.values():  # runs on several islands have one order everywhere
        for second in world.order.values():
            both = set(first) & set(second)
            assert [n for n in first if n in both] == [n for n in second if n in both]


LOTTERY = """
class Lottery:
    name = "lottery"

    def rank(self, request):
        return float(hash((request.number * 2654435761) % 1000)), request.number

    def submitted(self, request): ...

    def started(self, request): ...

    def ended(self, request): ...


class Half:
    name = "half"
"""


FAILING = """
from pathways.runtime.control.scheduling.fifo import Fifo

class Ends(Fifo):
    name = "ends"

    def ended(self, request):
        raise KeyError("a bug")


class Nan(Fifo):
    name = "nan"

    def rank(self, request):
        return float("nan"), request.number


class Broken(Fifo):
    name = "broken"

    def __init__(self):
        raise KeyError("a bug")
"""


def after_many_runs(policy: str) -> Scheduler:
    """Schedules random runs by a policy of the user; returns the scheduler."""
    made = scheduler("fifo", depth=3, w=100, x=100, y=100, z=150)
    made.policy = find_scheduling_policy(policy)
    world = World(random.Random(1), made)
    for number in range(200):
        world.step(number)
    return made


@pytest.mark.parametrize("name", ["Ends", "Nan"])
def test_runs_are_served_in_order_after_an_error_of_a_policy(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FAILING)
    assert after_many_runs(f"{path}:{name}").policy.name == f"fifo ({name.lower()} failed)"
    assert capsys.readouterr().err.count(f"note: policy {name.lower()} failed") == 1
    with pytest.raises(PathwaysError, match="a bug") as caught:
        find_scheduling_policy(f"{path}:Broken")
    assert caught.value.code == "PWC0104"


def test_user_policies_are_loaded_and_incomplete_ones_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(LOTTERY)
    after_many_runs(f"{path}:Lottery")
    assert find_scheduling_policy("fifo").name == "fifo"
    for name, problem in (("none", "no such"), (f"{path}:Half", "incomplete"), (f"{path}:Missing", "no such")):
        with pytest.raises(PathwaysError, match=problem) as caught:
            find_scheduling_policy(name)
        assert caught.value.code == "PWC0104"
