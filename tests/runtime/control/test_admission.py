"""A failure of the scheduler at an event of one run fails that run alone: no thread waits for ever."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from pathways.dialect.diagnostics import InternalError
from pathways.runtime.control.admission import PassThroughQueue, RunQueue, Ticket
from pathways.runtime.control.scheduling import SCHEDULING_POLICIES, Request
from pathways.runtime.control.scheduling.scheduler import Scheduler


def scheduler() -> Scheduler:
    return Scheduler(SCHEDULING_POLICIES["fifo"]())


def request(number: int) -> Request:
    return Request(number, "ann", "p", frozenset({"a"}))


def ignore(ticket: Ticket) -> None:
    """Goes on waiting."""


def finishes(work: Callable[[], object]) -> bool:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(30)
    return not thread.is_alive()


@pytest.mark.parametrize("event", ["submit", "pause"])
def test_a_run_whose_event_fails_raises_and_others_go_on(event: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run_queue = RunQueue(scheduler())
    first = run_queue.enter(request(1), ignore)
    real = getattr(run_queue.scheduler, event)

    def fails(of: object) -> list[int]:
        if of in (1, request(2)):
            raise InternalError("a test says so")
        return real(of)

    monkeypatch.setattr(run_queue.scheduler, event, fails)
    raised: list[Exception] = []

    def work() -> None:
        try:
            if event == "submit":
                run_queue.enter(request(2), ignore)
            else:
                run_queue.pause(first, ignore)
        except InternalError as error:
            raised.append(error)

    assert finishes(work) and "a test says so" in str(raised[0])
    if event == "submit":
        run_queue.finished(first)
    assert finishes(lambda: run_queue.finished(run_queue.enter(request(3), ignore)))
    assert not run_queue.scheduler.entries


def test_a_run_that_a_controller_schedules_never_waits_here() -> None:
    run_queue = PassThroughQueue(scheduler())
    tickets = [run_queue.enter(request(number), ignore) for number in range(3)]
    assert not run_queue.contended and not run_queue.scheduler.entries
    for ticket in tickets:
        run_queue.enqueued(ticket, None)
        run_queue.finished(ticket)


def test_events_that_are_posted_while_a_client_becomes_an_owner_are_processed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that posts them does not wait for the scheduler."""
    run_queue = RunQueue(scheduler())
    real, processed = run_queue.scheduler.own, list[str]()

    def event(_: Scheduler) -> list[int]:
        processed.append("event")
        return []

    def own(*of: Any) -> bool:
        run_queue.post(event)
        assert not processed
        return real(*of)

    monkeypatch.setattr(run_queue.scheduler, "own", own)
    owned = run_queue.ownership(frozenset("a"))
    assert run_queue.own(owned, "ann") and processed == ["event"]
    assert run_queue.ownership(frozenset("a")) is owned is not run_queue.ownership(frozenset("ab"))
