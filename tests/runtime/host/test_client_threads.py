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
