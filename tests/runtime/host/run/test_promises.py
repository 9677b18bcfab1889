"""Tests runs in the background one by one: who waits for them, and when a client has none."""

import threading
import time
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support.clusters import becomes

from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.runtime.client_state import ClientState
from pathways.runtime.host.run import background
from pathways.runtime.host.run.background import BackgroundRuns, Promise
from pathways.runtime.monitor import Gate

ONE, TWO = ClientState("one", number=1), ClientState("two", number=2)


def promise(number: int = 7, client: ClientState = ONE, *, calls_back: bool = False) -> Promise:
    return Promise(number, "train", client, calls_back, Where("model.py", 7, ""))


def test_a_promise_is_known_once_its_results_are_there() -> None:
    made = promise()
    assert not made.wait(timeout=0) and not made.is_known
    over: list[bool] = []
    thread = threading.Thread(target=lambda: over.append(made.wait()), daemon=True)
    thread.start()
    made.resolve()
    thread.join(20)
    assert over == [True] and made.wait() and made.wait(timeout=0)


def test_a_cancelled_run_says_which_it_is() -> None:
    made = promise()
    made.check()
    made.cancelled = True
    with pytest.raises(PathwaysError, match="train") as caught:
        made.check()
    assert caught.value.code == "PWC0518" and caught.value.diagnostic.where == Where("model.py", 7, "")
    assert "7" in str(caught.value)


def test_a_run_waits_for_all_runs_whose_results_it_takes() -> None:
    first, second, made = promise(1), promise(2), promise(3)
    first.resolve()
    second.resolve()
    made.cancelled = True  # which matters only while it waits
    made.wait_for([first, second])


def test_a_cancelled_run_does_not_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "CANCEL_POLL_INTERVAL_S", 0.001)
    made = promise(3)
    made.cancelled = True
    with pytest.raises(PathwaysError, match="PWC0518"):
        made.wait_for([promise(1)])


class Work:
    """Work of runs that ends when the test says so."""

    def __init__(self, runs: BackgroundRuns) -> None:
        self.runs, self.go = runs, threading.Event()
        self.done: list[int] = []

    def of(self, made: Promise) -> Callable[[], None]:
        def work() -> None:
            assert self.go.wait(20)
            self.done.append(made.number)

        return work

    def start(self, *promises: Promise) -> None:
        for each in promises:
            assert self.runs.start(each, self.of(each))


def test_runs_are_listed_by_client_until_they_end() -> None:
    runs = BackgroundRuns()
    work = Work(runs)
    first, other, second = promise(1), promise(2, TWO), promise(3, calls_back=True)
    work.start(first, other, second)
    assert runs.of(ONE) == [first, second] and runs.of() == [first, other, second] and runs.of(TWO) == [other]
    assert not runs.drain(timeout=0) and not runs.drain(TWO, timeout=0) and not runs.drain(calling_back=True, timeout=0)
    assert runs.drain(TWO, calling_back=True, timeout=0)
    work.go.set()
    assert runs.drain() and runs.of() == [] and sorted(work.done) == [1, 2, 3] and runs.drain(timeout=0)


def test_a_run_without_a_thread_is_done_by_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "started", lambda _: False)
    runs, made = BackgroundRuns(), promise()
    assert not runs.start(made, lambda: None) and runs.of() == [] and not made.cancelled


def test_an_interrupt_before_the_thread_starts_leaves_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: threading.Thread) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(background, "started", interrupted)
    runs, made = BackgroundRuns(), promise()
    with pytest.raises(KeyboardInterrupt):
        runs.start(made, lambda: None)
    assert made.cancelled and runs.of() == []


def test_a_client_with_many_runs_waits_for_one_of_its_own_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "MAX_BACKGROUND", 2)
    runs, has_begun = BackgroundRuns(), list[bool]()
    work = Work(runs)
    work.start(promise(1), promise(2), promise(3, TWO), promise(4, TWO))  # no client has more than two

    def pause(_: float) -> None:
        has_begun.append(5 in runs.runs)
        work.go.set()

    # Not `time.sleep` itself: other threads of this process call it, too.
    monkeypatch.setattr(background, "time", SimpleNamespace(sleep=pause, monotonic=time.monotonic))
    work.start(promise(5))
    assert has_begun and not any(has_begun)
    monkeypatch.undo()
    assert runs.drain() and sorted(work.done) == [1, 2, 3, 4, 5]


def test_a_wait_of_no_seconds_for_runs_returns_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(_: float) -> None:
        raise AssertionError

    monkeypatch.setattr(background, "time", SimpleNamespace(monotonic=lambda: 5.0, sleep=sleep))
    runs = BackgroundRuns()
    runs.runs[7] = promise()
    assert not runs.drain(timeout=0) and runs.drain(TWO, timeout=0) and runs.drain(calling_back=True, timeout=0)


def test_the_thread_of_a_run_does_the_next_one_and_keeps_nothing_of_the_last() -> None:
    runs, threads = BackgroundRuns(), list[int]()

    class Value:
        """Stands for what the work of a run holds."""

    def start(number: int) -> "weakref.ref[Value]":
        value = Value()

        def work(held: Value = value) -> None:
            threads.append(threading.get_ident())

        assert runs.start(promise(number), work)
        return weakref.ref(value)

    for number in range(3):
        last = start(number)
        assert runs.drain(timeout=30) and becomes(lambda: bool(runs.spare))
        assert becomes(lambda ref=last: ref() is None)
    assert len(set(threads)) == 1


def test_a_spare_thread_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "SPARE_S", 0.0)
    runs, threads = BackgroundRuns(), list[threading.Thread]()
    for number in range(2):
        assert runs.start(promise(number), lambda: threads.append(threading.current_thread()))
        assert runs.drain(timeout=30) and len(threads) == number + 1
        thread = threads[-1]
        thread.join(30)
        assert not thread.is_alive() and not runs.spare
    assert threads[0] is not threads[1]


def test_a_spare_thread_that_is_taken_when_its_time_is_over_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, done = BackgroundRuns(), threading.Event()

    class Late(Gate):
        """A gate that opens just after the wait for it has ended."""

        def pass_through(self, timeout: float | None = None) -> bool:
            if timeout is None or done.is_set():
                return super().pass_through(timeout)
            assert runs.take_spare("late", done.set, [])
            return False

    monkeypatch.setattr(background, "Gate", Late)
    assert runs.start(promise(), lambda: None)
    assert done.wait(30)


def test_an_interrupt_after_a_spare_thread_has_begun_leaves_the_run_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, go, made, done = BackgroundRuns(), threading.Event(), promise(1), list[bool]()
    assert runs.start(promise(0), lambda: None) and becomes(lambda: bool(runs.spare))
    take = runs.take_spare

    def interrupted(*of: Any) -> bool:
        assert take(*of)
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "take_spare", interrupted)
    with pytest.raises(KeyboardInterrupt):
        runs.start(made, lambda: done.append(go.wait(30)))
    assert made.cancelled and runs.of() == [made]
    go.set()
    assert runs.drain(timeout=30) and done == [True]
