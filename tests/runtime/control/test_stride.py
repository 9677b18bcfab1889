"""Proportional shares, turn by turn: who comes, who leaves and who comes back."""

import itertools
from collections import Counter

import pytest

from pathways.runtime.control.scheduling.request import Request
from pathways.runtime.control.scheduling.stride import Stride


class Turns:
    """Clients that always want the next turn, on one island; and whose turn it is."""

    def __init__(self, *clients: str, **weights: float) -> None:
        self.policy = Stride()
        self.numbers = itertools.count()
        self.weights = weights
        self.waiting: dict[str, Request] = {}
        for client in clients:
            self.comes(client)

    def comes(self, client: str, seconds: float = 1.0) -> None:
        number, weight = next(self.numbers), self.weights.get(client, 1.0)
        request = Request(number, client, "program", frozenset("x"), weight, seconds)
        self.policy.submitted(request)
        self.waiting[client] = request

    def leaves(self, client: str) -> None:
        self.policy.ended(self.waiting.pop(client))

    def next(self, *, again: bool = True, seconds: float = 1.0) -> str:
        """Gives a turn to who ranks first. It wants the next one, or leaves when it has had its turn."""
        client = min(self.waiting, key=lambda c: self.policy.rank(self.waiting[c]))
        request = self.waiting.pop(client)
        self.policy.started(request)
        if again:  # before it is done, as a client that waits for nothing
            self.comes(client, seconds)
        self.policy.ended(request)
        return client

    def many(self, count: int) -> str:
        return "".join(self.next() for _ in range(count))


@pytest.mark.parametrize(("a", "b"), [(1, 1), (2, 1), (1, 3), (4, 1)])
def test_turns_are_in_proportion_to_weights(a: int, b: int) -> None:
    turns = Turns("a", "b", a=float(a), b=float(b)).many(12 * (a + b))
    assert Counter(turns) == {"a": 12 * a, "b": 12 * b}


def test_who_takes_longer_has_fewer_turns() -> None:
    turns = Turns()
    turns.comes("a", seconds=3.0)
    turns.comes("b", seconds=1.0)
    order = ""
    for _ in range(40):
        longest = min(turns.waiting, key=lambda c: turns.policy.rank(turns.waiting[c]))
        order += turns.next(seconds=3.0 if longest == "a" else 1.0)
    assert Counter(order) == {"a": 10, "b": 30}


def test_who_comes_late_shares_from_then_on() -> None:
    turns = Turns("a")
    turns.many(50)
    turns.comes("b")
    assert Counter(turns.many(20)) == {"a": 10, "b": 10}


def test_who_was_away_for_long_does_not_catch_up() -> None:
    """It left ahead of all others, so that its own pass is still known; it comes back with that of those there."""
    turns = Turns()
    turns.comes("a", seconds=10.0)
    turns.comes("b")
    assert turns.next(again=False) == "a"  # ten seconds at once, and away
    turns.many(100)  # b alone; a's pass is long overtaken
    turns.comes("a")
    assert Counter(turns.many(20)) == {"a": 10, "b": 10}


def test_who_was_away_for_a_moment_saves_up_nothing_and_loses_nothing() -> None:
    """To leave after a long turn and to come back at once gives no turn that staying would not have given."""
    stays, returns = Turns("a", "b"), Turns("a", "b")
    for turns in (stays, returns):
        turns.leaves("a")
        turns.comes("a", seconds=5.0)
    assert stays.next(again=True) == returns.next(again=False) == "b"
    returns.comes("b")
    assert stays.next(again=True) == "a" and returns.next(again=False) == "a"
    returns.comes("a")
    assert stays.many(4) == returns.many(4) == "bbbb"


def test_who_gives_up_its_turn_costs_nobody_theirs() -> None:
    turns = Turns("a", "b")
    for _ in range(10):
        turns.comes("c")
        turns.leaves("c")
    assert Counter(turns.many(20)) == {"a": 10, "b": 10}


def test_newcomers_start_with_the_highest_pass_that_had_a_turn() -> None:
    """On two islands turns need not come in the order of passes: who is behind may still start after who is ahead."""
    policy = Stride()

    def submitted(number: int, client: str, island: str, seconds: float) -> Request:
        request = Request(number, client, "program", frozenset(island), seconds=seconds)
        policy.submitted(request)
        return request

    ahead, behind = submitted(0, "ahead", "x", 5.0), submitted(1, "behind", "y", 1.0)
    policy.started(ahead)
    ahead = submitted(2, "ahead", "x", 5.0)
    policy.started(ahead)  # with a pass of 5
    policy.started(behind)  # with one of 0
    new = submitted(3, "new", "x", 1.0)
    assert policy.rank(new) == (5.0, 3)
