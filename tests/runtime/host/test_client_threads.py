"""Tests the threads of clients at a host: one client waits for nothing that another asked for."""

import threading
from typing import Any

import pytest

from pathways.dialect.diagnostic_json import read_diagnostic, write_diagnostic
from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime import threads
from pathways.runtime.host import client_threads as tested
from pathways.runtime.host.client_threads import ClientThreads
from pathways.runtime.host.devices.islands import Machine
from pathways.runtime.host.host import Host
from pathways.runtime.host.load.peer_hosts import PeerHosts
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import BadMessage


@pytest.fixture(autouse=True)
def threads_end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "IDLE_S", 0.01)


def test_one_client_does_not_wait_for_another_and_its_work_stays_in_order() -> None:
    clients, blocked, done = ClientThreads("test"), threading.Event(), threading.Event()
    order: list[int] = []
    clients.put(1, lambda: blocked.wait(60))
    for number in range(20):
        clients.put(2, lambda number=number: order.append(number))
    clients.put(2, done.set)
    assert done.wait(60) and order == list(range(20))
    blocked.set()


def test_an_idle_thread_ends_and_the_next_work_has_a_new_one() -> None:
    clients, seen = ClientThreads("test"), list[threading.Thread]()
    for _ in range(2):
        done = threading.Event()
        clients.put(1, lambda done=done: (seen.append(threading.current_thread()), done.set()))
        assert done.wait(60)
        seen[-1].join(60)
        assert not seen[-1].is_alive()
    assert seen[0] is not seen[1]


def test_work_is_refused_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "started", lambda _: False)
    here: list[int] = []
    refusing = ClientThreads("test")
    for _ in range(2):
        with pytest.raises(PathwaysError) as caught:
            refusing.put(1, lambda: here.append(1))
        assert caught.value.code == "PWC0521"
    monkeypatch.undo()
    done = threading.Event()
    refusing.put(1, done.set)
    assert done.wait(60) and not here


def test_a_host_without_threads_refuses_what_a_client_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere: Any = None
    host = Host("island0", Machine("cpu"), lambda _: {}, PeerHosts(nowhere, nowhere), lambda *_: None)
    host.receive(m.PutPoison(5, write_diagnostic(BadMessage(have_="a test", rule="no thread"))))
    monkeypatch.setattr(threads, "started", lambda _: False)
    answers: list[Any] = []
    for message in (m.FetchArray(1, 5, -1), m.LoadPlan(2, 6, "plan", False, {}, b""), m.ReadArray(3, 7, 6, 0, b"", "")):
        assert not host.notice(message, answers.append)
    assert [read_diagnostic(answer.error).code for answer in answers] == ["PWC0521"] * 3


def test_what_follows_the_work_of_a_client_starts_no_thread() -> None:
    clients, blocked, done = ClientThreads("test"), threading.Event(), threading.Event()
    seen: list[threading.Thread] = []
    clients.put_last(1, lambda: seen.append(threading.current_thread()))
    clients.put(2, lambda: blocked.wait(60))
    clients.put_last(2, lambda: (seen.append(threading.current_thread()), done.set()))
    blocked.set()
    assert done.wait(60)
    assert seen[0] is threading.current_thread() and seen[1] is not seen[0]


def test_the_thread_of_a_client_that_is_gone_ends_behind_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "IDLE_S", 60.0)
    clients, seen, done = ClientThreads("test"), list[threading.Thread](), threading.Semaphore(0)
    clients.end(1)  # it has none
    for _ in range(2):  # the next client of this number has a thread of its own
        clients.put(1, lambda: (seen.append(threading.current_thread()), done.release()))
        clients.end(1)
        assert done.acquire(timeout=60)
    for thread in seen:
        thread.join(20)
    assert len(set(seen)) == 2 and not any(thread.is_alive() for thread in seen)
