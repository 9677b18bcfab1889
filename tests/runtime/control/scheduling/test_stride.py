"""Stride scheduling gives clients proportional shares of the slots, also when clients join, leave and return."""

import itertools
from collections import Counter
from typing import Any

import pytest

from pathways.runtime.control.scheduling.request import Cost, Request
from pathways.runtime.control.scheduling.stride import Stride


class Slots:
    """Simulates clients that always want the next slot on one island."""

    def __init__(self, *clients: str, **weights: float) -> None:
        self.policy = Stride()
        self.numbers = itertools.count()
        self.weights = weights
        self.waiting: dict[str, Request] = {}
        for client in clients:
            self.join(client)

    def join(self, client: str, seconds: float = 1.0) -> None:
        number, weight = next(self.numbers), self.weights.get(client, 1.0)
        request = Request(number, client, "program", frozenset("x"), weight, Cost(seconds))
        self.policy.submitted(request)
        self.waiting[client] = request

    def leave(self, client: str) -> None:
        self.policy.ended(self.waiting.pop(client))

    def next(self, *, again: bool = True, seconds: float = 1.0) -> str:
        """Gives a slot to the client that ranks first. The client then wants another slot, or leaves."""
        client = min(self.waiting, key=lambda c: self.policy.rank(self.waiting[c]))
        request = self.waiting.pop(client)
        self.policy.started(request)
        if again:  # before the run ends, as a client that does not wait for results
            self.join(client, seconds)
        self.policy.ended(request)
        return client

    def many(self, count: int) -> str:
        return "".join(self.next() for _ in range(count))


@pytest.mark.parametrize(("a", "b"), [(1, 1), (2, 1), (1, 3), (4, 1)])
def test_slots_are_proportional_to_weights(a: int, b: int) -> None:
    slots = Slots("a", "b", a=float(a), b=float(b)).many(12 * (a + b))
    assert Counter(slots) == {"a": 12 * a, "b": 12 * b}


def test_a_client_with_longer_runs_gets_fewer_slots() -> None:
    slots = Slots()
    slots.join("a", seconds=3.0)
    slots.join("b", seconds=1.0)
    order = ""
    for _ in range(40):
        first = min(slots.waiting, key=lambda c: slots.policy.rank(slots.waiting[c]))
        order += slots.next(seconds=3.0 if first == "a" else 1.0)
    assert Counter(order) == {"a": 10, "b": 30}


def test_a_client_that_joins_late_gets_its_share_from_then_on() -> None:
    slots = Slots("a")
    slots.many(50)
    slots.join("b")
    assert Counter(slots.many(20)) == {"a": 10, "b": 10}


def test_a_client_that_returns_after_long_does_not_catch_up() -> None:
    """Client a leaves with the highest pass, which is still known. It returns with the pass of the active clients."""
    slots = Slots()
    slots.join("a", seconds=10.0)
    slots.join("b")
    assert slots.next(again=False) == "a"  # a run of ten seconds, then a leaves
    slots.many(100)  # b is alone, and its pass exceeds that of a by far
    slots.join("a")
    assert Counter(slots.many(20)) == {"a": 10, "b": 10}


def test_leaving_for_a_moment_neither_gains_nor_loses_slots() -> None:
    """A client that leaves after a long run and returns at once gets the same slots as a client that stays."""
    stays, returns = Slots("a", "b"), Slots("a", "b")
    for slots in (stays, returns):
        slots.leave("a")
        slots.join("a", seconds=5.0)
    assert stays.next(again=True) == returns.next(again=False) == "b"
    returns.join("b")
    assert stays.next(again=True) == "a" and returns.next(again=False) == "a"
    returns.join("a")
    assert stays.many(4) == returns.many(4) == "bbbb"


def test_a_client_that_leaves_before_its_slot_costs_others_no_slots() -> None:
    slots = Slots("a", "b")
    for _ in range(10):
        slots.join("c")
        slots.leave("c")
    assert Counter(slots.many(20)) == {"a": 10, "b": 10}


def test_a_client_whose_runs_were_all_removed_leaves_no_record() -> None:
    """Otherwise the records of a long-lived cluster grow with each client."""
    slots = Slots("a")
    slots.many(5)
    for _ in range(3):
        slots.join("b")
        slots.leave("b")
    raw: Any = slots.policy
    assert set(raw._passes) == {"a"}


def test_new_clients_start_with_the_highest_pass_scheduled_so_far() -> None:
    """Two islands do not schedule in the order of passes: a low pass may be scheduled after a high one."""
    policy = Stride()

    def submitted(number: int, client: str, island: str, seconds: float) -> Request:
        request = Request(number, client, "program", frozenset(island), cost=Cost(seconds))
        policy.submitted(request)
        return request

    ahead, behind = submitted(0, "ahead", "x", 5.0), submitted(1, "behind", "y", 1.0)
    policy.started(ahead)
    ahead = submitted(2, "ahead", "x", 5.0)
    policy.started(ahead)  # with a pass of 5
    policy.started(behind)  # with a pass of 0
    new = submitted(3, "new", "x", 1.0)
    assert policy.rank(new) == (5.0, 3)


def test_a_waiting_run_costs_what_its_plan_is_known_to_cost_when_it_starts() -> None:
    """A client with many waiting runs would otherwise pay, for all of them, for an estimate that was wrong early."""
    policy, cost = Stride(), Cost(1.0)
    early = [Request(n, "early", "program", frozenset("x"), cost=cost) for n in range(20)]
    for request in early:
        policy.submitted(request)
    for _ in range(100):
        cost.measured(0.1)
    late = [Request(20 + n, "late", "program", frozenset("x"), cost=cost) for n in range(20)]
    for request in late:
        policy.submitted(request)
    first = Counter[str]()
    for _ in range(20):
        request = min((line[0] for line in (early, late)), key=policy.rank)
        policy.started(request)
        first[request.client] += 1
        (early if request.client == "early" else late).pop(0)
    assert first == {"early": 10, "late": 10}
