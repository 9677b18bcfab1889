"""Tests which processes a host admits as clients, with a host that only notes them."""

import queue
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.clusters import becomes
from support.streams import end_loop

from pathways.runtime.host.clients import Clients
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.loop import Loop

TICKET = m.Expect(3, "ticket", "", "")


class Gate:
    """Clients of a host. `admitted` are the numbers of those that were let in."""

    def __init__(self, path: Path) -> None:
        self.path, self.loop, self.admitted = str(path / "clients"), Loop(), list[int]()
        calls = SimpleNamespace(begin=lambda client, _: self.admitted.append(client), end=lambda *_: None)
        host: Any = SimpleNamespace(expect=lambda _: None, calls=calls, clients={})
        self.clients = Clients(host, queue.SimpleQueue(), self.loop)
        self.clients.listen(self.path)
        self._sockets = len(self.loop.selector.get_map())
        self.loop.start()

    def connect(self) -> Connection:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(self.path)
        made = Connection(sock)
        made.post(m.Attach(1, 3, "ticket"))
        return made

    def expect(self) -> None:
        """Gives the host the ticket of client 3."""
        self.loop.call(lambda: self.clients.expect(TICKET))

    def has_streams(self, count: int) -> bool:
        """Waits until so many streams are open, besides the sockets that the loop always has."""
        return becomes(lambda: len(self.loop.selector.get_map()) == self._sockets + count)


@pytest.fixture
def gate(short_path: Path) -> Iterator[Gate]:
    made = Gate(short_path)
    yield made
    end_loop(made.loop)


def test_a_process_that_ended_before_its_ticket_arrived_is_not_admitted(gate: Gate) -> None:
    ended = gate.connect()
    assert gate.has_streams(1)
    ended.close()
    assert gate.has_streams(0)
    gate.expect()
    connection = gate.connect()
    assert connection.receive() == m.Answer(1) and gate.admitted == [3]
    connection.close()


def test_a_process_may_connect_before_its_ticket_comes(gate: Gate) -> None:
    connection = gate.connect()
    assert gate.has_streams(1) and gate.admitted == []
    gate.expect()
    assert connection.receive() == m.Answer(1) and gate.admitted == [3]
    connection.close()
