"""Tests what one host says and hears of the decisions of its runs, without other hosts of its island."""

import threading
from typing import Any

import pytest

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.runtime.host.run.decisions import Deciding, Decisions, InStep, RunDecisions, iteration_name
from pathways.runtime.host.run.poison import Poison
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.decided import doom
from pathways.runtime.wire.errors import HostLost

LOST = HostLost(island="island1", reason="killed")


def post_nothing(_: Any) -> None:
    """Discards a message."""


def decided(name: int, value: int) -> m.Decided:
    return m.Decided(7, 1, 0, name, value)


def undecided(name: int) -> m.Undecided:
    return m.Undecided(7, 1, 0, name, write_diagnostic(LOST))


def test_names_differ_by_run_branch_and_iteration_and_fit_signed_fields() -> None:
    names = [
        iteration_name(outer, step, iteration) for outer in range(9) for step in range(9) for iteration in range(9)
    ]
    assert len(set(names)) == len(names) and all(0 <= name < 1 << 62 for name in names)
    assert max(names) >= 1 << 60  # nearly all bits are used, or names would collide
    assert iteration_name(5, 6, 7) == iteration_name(5, 6, 7)


def test_a_host_says_its_value_its_failure_or_that_it_waits() -> None:
    posted: list[Any] = []
    run = RunDecisions(7, posted.append)
    run.report(1, 2, 3, 4)
    run.report(1, 2, 3, Poison(LOST))
    run.reach(1, 2)
    assert posted == [
        m.Decided(7, 1, 2, 3, 4),
        m.Undecided(7, 1, 2, 3, write_diagnostic(LOST)),
        m.Reached(7, 1, 2),
    ]


def test_a_decision_is_known_by_its_name_alone() -> None:
    run = RunDecisions(7, post_nothing)
    pending = Deciding(run, 3)
    assert not pending.is_known()
    run.deliver(decided(4, 1))
    assert not pending.is_known()
    run.deliver(decided(3, 0))
    pending.wait()
    assert pending.is_known() and run.take(3) == 0 and run.take(4) == 1
    assert not pending.is_known()  # it is asked for once


def test_an_undecided_name_is_poison_and_dooms_no_other() -> None:
    run = RunDecisions(7, post_nothing)
    run.deliver(undecided(3))
    assert run.take(3) == Poison(LOST) and not run.is_known(4) and run.cancelled is None


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_doomed_run_knows_the_reason_for_all_that_was_not_decided(cancelled: bool) -> None:
    run = RunDecisions(7, post_nothing)
    run.deliver(decided(3, 1))
    run.deliver(doom(7, LOST, cancelled=cancelled))
    assert run.is_known(99) and run.take(99) == Poison(LOST) and run.take(3) == 1
    assert run.cancelled == (Poison(LOST) if cancelled else None)


class WatchedCondition(threading.Condition):
    """Notes that a thread waits. The thread has the lock until it does, so that no notification is too early."""

    def __init__(self) -> None:
        super().__init__()
        self.is_waited_for = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.is_waited_for.set()
        return super().wait(timeout)


@pytest.mark.parametrize("in_step", [False, True])
def test_a_decision_wakes_the_thread_that_waits_for_it(in_step: bool) -> None:
    """The thread would wait for ever if a decision did not notify it."""
    changed = WatchedCondition()
    run = (InStep if in_step else RunDecisions)(7, post_nothing, _changed=changed)
    run.expect(3, 1)
    thread = threading.Thread(target=run.wait, args=(3,), daemon=True)
    thread.start()
    assert changed.is_waited_for.wait(10)
    run.deliver(decided(3, 1))
    thread.join(10)
    assert not thread.is_alive() and run.take(3) == 1


def test_the_next_decision_in_step_is_known_once_the_last_is_enqueued() -> None:
    changed = WatchedCondition()
    run = InStep(7, post_nothing, _changed=changed)
    for name in (3, 4):
        run.expect(name, 1)
        run.deliver(decided(name, 10 * name))
    assert run.is_known(3) and not run.is_known(4) and run.take(3) == 30 and not run.is_known(4)
    thread = threading.Thread(target=run.wait, args=(4,), daemon=True)
    thread.start()
    assert changed.is_waited_for.wait(10)
    run.go_on()
    thread.join(10)
    assert not thread.is_alive() and run.take(4) == 40


@pytest.mark.parametrize("in_step", [False, True])
def test_each_run_hears_its_own_decisions_until_it_ends(in_step: bool) -> None:
    posted: list[Any] = []
    runs = Decisions(posted.append, in_step=in_step)
    runs.begin(7)
    runs.begin(8)
    assert isinstance(runs.of(7), InStep) == in_step and runs.of(8).run == 8
    for run in (runs.of(7), runs.of(8)):
        run.expect(3, 1)
    runs.deliver(decided(3, 1))
    assert runs.of(7).is_known(3) and not runs.of(8).is_known(3)
    runs.of(8).reach(1, 2)
    assert posted == [m.Reached(8, 1, 2)]
    runs.end(7)
    runs.end(7)  # a second end is nothing, nor is what is heard behind it
    runs.deliver(decided(3, 1))
    with pytest.raises(KeyError):
        runs.of(7)
