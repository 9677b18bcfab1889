"""Tests that all hosts of an island apply decisions in the same order, whenever each host receives them."""

import random
from typing import Any

from pathways.runtime.host.run.decisions import InStep
from pathways.runtime.host.run.poison import Poison
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.decided import ENDED, Outcome, doom
from pathways.runtime.wire.errors import HostLost

LOST = HostLost(island="island1", reason="killed")


def post_nothing(_: Any) -> None:
    """Discards a message."""


def decided(name: int, loop: int = 0) -> m.Decided:
    return m.Decided(7, 1, loop or name, name, 1)


def decisions_taken(outcome: list[Outcome], leads_to: dict[int, list[int]], rng: random.Random) -> list[int]:
    """Returns the decisions of a host in the order in which it takes them.

    The host first expects 0 and 1, then the decisions that each one leads to. It receives them at random times.
    """
    run, taken, open_, left = InStep(7, post_nothing), list[int](), list[int](), list(outcome)
    for name in (0, 1):
        run.expect(name, name)
        open_.append(name)
    while open_:
        run.go_on()
        known = [name for name in open_ if run.is_known(name)]
        assert len(known) <= 1
        if not known or (left and rng.random() < 0.5):
            run.deliver(left.pop(0))
            continue
        run.take(known[0])
        assert not any(run.is_known(name) for name in open_)  # until the work that it enables is enqueued
        taken.append(known[0])
        open_.remove(known[0])
        for name in leads_to.get(known[0], ()):
            run.expect(name, name)
            open_.append(name)
    return taken


def test_all_hosts_take_the_same_decisions_in_the_same_order() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        names = list(range(12))
        leads_to: dict[int, list[int]] = {}
        for name in names[2:]:
            leads_to.setdefault(rng.randrange(name), []).append(name)
        outcome: list[Outcome] = [decided(name) for name in rng.sample(names, len(names))]
        found = [decisions_taken(outcome, leads_to, random.Random(100 * seed + n)) for n in range(3)]
        assert found[0] == found[1] == found[2] and sorted(found[0]) == names


def test_an_early_decision_waits_until_it_is_expected() -> None:
    run = InStep(7, post_nothing)
    run.expect(1, 1)
    run.deliver(decided(2))
    run.deliver(decided(1))
    assert run.is_known(1) and not run.is_known(2)
    run.take(1)
    run.expect(2, 2)
    assert not run.is_known(2)
    run.go_on()
    assert run.is_known(2) and run.take(2) == 1


def test_only_an_end_of_a_named_loop_makes_its_decision_known() -> None:
    run = InStep(7, post_nothing)
    run.expect(11, 10)
    run.expect(21, 20)
    run.deliver(doom(7, LOST, cancelled=False))
    run.deliver(doom(7, LOST, cancelled=True))
    assert not run.is_known(11)
    run.deliver(m.Undecided(7, 1, 20, ENDED, doom(7, LOST, cancelled=False).cause))
    assert run.is_known(21) and not run.is_known(11)
    told = run.take(21)
    assert isinstance(told, Poison) and told.cause == LOST
    run.go_on()
    run.deliver(decided(11, 10))
    assert run.is_known(11)
    run.take(11)
    run.expect(22, 20)
    run.go_on()
    assert not run.is_known(22), "an end stands for one decision of its loop"
