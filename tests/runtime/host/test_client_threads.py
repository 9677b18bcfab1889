"""Tests the threads of clients at a host: one client waits for nothing that another asked for."""

import threading

import pytest

from pathways.runtime.host import client_threads as tested
from pathways.runtime.host.client_threads import ClientThreads


@pytest.fixture(autouse=True)
def threads_end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "IDLE_S", 0.01)


def test_one_client_does_not_wait_for_another_and_its_work_stays_in_order() -> None:
    threads, blocked, done = ClientThreads("test"), threading.Event(), threading.Event()
    order: list[int] = []
    threads.put(1, lambda: blocked.wait(60))
    for number in range(20):
        threads.put(2, lambda number=number: order.append(number))
    threads.put(2, done.set)
    assert done.wait(60) and order == list(range(20))
    blocked.set()


def test_an_idle_thread_ends_and_the_next_work_has_a_new_one() -> None:
    threads, seen = ClientThreads("test"), list[threading.Thread]()
    for _ in range(2):
        done = threading.Event()
        threads.put(1, lambda done=done: (seen.append(threading.current_thread()), done.set()))
        assert done.wait(60)
        seen[-1].join(60)
        assert not seen[-1].is_alive()
    assert seen[0] is not seen[1]


def test_work_is_done_at_once_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "started", lambda _: False)
    here: list[threading.Thread] = []
    ClientThreads("test").put(1, lambda: here.append(threading.current_thread()))
    assert here == [threading.current_thread()]


def test_what_follows_the_work_of_a_client_starts_no_thread() -> None:
    threads, blocked, done = ClientThreads("test"), threading.Event(), threading.Event()
    seen: list[threading.Thread] = []
    threads.put_behind(1, lambda: seen.append(threading.current_thread()))
    threads.put(2, lambda: blocked.wait(60))
    threads.put_behind(2, lambda: (seen.append(threading.current_thread()), done.set()))
    blocked.set()
    assert done.wait(60)
    assert seen[0] is threading.current_thread() and seen[1] is not seen[0]


def test_the_thread_of_a_client_that_is_gone_ends_behind_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "IDLE_S", 60.0)
    threads, seen, done = ClientThreads("test"), list[threading.Thread](), threading.Semaphore(0)
    threads.end(1)  # it has none
    for _ in range(2):  # the next client of this number has a thread of its own
        threads.put(1, lambda: (seen.append(threading.current_thread()), done.release()))
        threads.end(1)
        assert done.acquire(timeout=60)
    for thread in seen:
        thread.join(20)
    assert len(set(seen)) == 2 and not any(thread.is_alive() for thread in seen)
