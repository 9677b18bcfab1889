"""Holds the client's connection to one host process of a cluster. Plans, arguments, requests and notices about runs go
through it. `RemoteIsland` has one for each of its hosts.
"""

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.runtime.client.remote.host_callbacks import call_back
from pathways.runtime.interrupts import wait_without_end
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.encoding import decode
from pathways.runtime.wire.errors import BadMessage
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.peer import OnEnd, Peer, Receive


@dataclass(eq=False)
class _Request:
    """A request to a host, and its answer."""

    answered: threading.Event = field(default_factory=threading.Event)
    answer: m.Answer | None = None


class OfIsland(Protocol):
    """The island of a host (client/remote/remote_island.py)."""

    @property
    def lost(self) -> Diagnostic | None:
        """Returns why the island's hosts are lost, None while they are connected."""
        ...

    def end_run(self, outcome: m.Done | m.Failed) -> None:
        """Records that a host has completed its partition of a run."""
        ...

    def lose(self, reason: str) -> None:
        """Fails everything that waits for the hosts, because one has sent an invalid message."""
        ...

    def note_end(self, reason: str) -> None:
        """Records that the stream of a host has ended."""
        ...


class ToHost(Protocol):
    """A connection to a host: a stream (wire/peer.py)."""

    def begin(self, receive: Receive, on_end: OnEnd) -> None:
        """Starts to receive messages from the host."""
        ...

    def post(self, *messages: m.Message) -> None:
        """Sends messages without blocking. Raises ConnectionEnded."""
        ...

    def wait_for_room(self) -> None:
        """Waits while the host has much unread data."""
        ...

    def close(self) -> None: ...


class RemoteHost:
    """A host, at the other end of a connection."""

    def __init__(self, name: str, way: ToHost, island: OfIsland) -> None:
        self.name = name
        self._way, self._island = way, island
        self._last_put = self._flushed = object()
        """Tokens of the last argument sent, and of the last argument whose receipt the host has confirmed."""
        self._flushing = threading.Lock()
        """Held until the host confirms receipt."""
        self._requests: dict[int, _Request] = {}
        self._counter = itertools.count()
        self._lock = threading.Lock()
        """Guards requests against the loss of the host."""

    def begin(self) -> None:
        """Starts to receive messages from the host."""
        self._way.begin(lambda _, kind, payload: self.receive(decode(kind, payload)), self._way_ended)

    def post(self, message: m.Message) -> None:
        """Sends a message; does nothing if the host is lost.

        Never waits for the host: callers may occupy the scheduler slots of other runs, which must not be delayed.
        """
        if self._island.lost is None:
            try:
                self._way.post(message)
            except ConnectionEnded as error:
                self._island.note_end(str(error))

    def ask(self, make: Callable[[int], m.Message]) -> m.Answer:
        """Sends the request that `make` creates from a request number, and waits for the answer.

        Raises the diagnostic in the answer, or PWC0910 if the host is lost.
        """
        return self.request(make)()

    def request(self, make: Callable[[int], m.Message]) -> Callable[[], m.Answer]:
        """Sends a request like `ask`, but does not wait: the returned function waits."""
        number, request = next(self._counter), _Request()
        with self._lock:
            if self._island.lost is not None:
                raise PathwaysError(self._island.lost)
            self._requests[number] = request
        self.post(make(number))
        return lambda: self._answer(request)

    def _answer(self, request: _Request) -> m.Answer:
        wait_without_end(request.answered.wait)
        if request.answer is None:
            assert self._island.lost is not None
            raise PathwaysError(self._island.lost)
        if request.answer.error:
            raise PathwaysError(read_diagnostic(request.answer.error))
        return request.answer

    def put(self, message: m.PutArray) -> None:
        """Sends an argument of a plan to the host."""
        self.post(message)
        self._last_put = object()

    def flush(self) -> None:
        """Waits until the host has received all arguments: runs go through the controller and may overtake them."""
        with self._flushing:
            last = self._last_put
            if last is not self._flushed:
                self.ask(m.Flush)
                self._flushed = last

    def wait_for_room(self) -> None:
        """Waits while the host has much unread data; returns if the host is lost."""
        self._way.wait_for_room()

    def end(self) -> None:
        """Wakes threads that wait for answers, and closes the connection. The island is lost."""
        with self._lock:
            requests = list(self._requests.values())
            self._requests.clear()
        for request in requests:
            request.answered.set()
        self._way.close()

    def _way_ended(self, peer: Peer, reason: str) -> None:
        if peer.sent_no_message:
            self._island.lose(reason)
        else:
            self._island.note_end(f"its connection has ended: {reason}")

    def receive(self, message: m.Message) -> None:
        """Handles a message from the host, received directly or through the controller."""
        match message:
            case m.Done() | m.Failed():
                self._island.end_run(message)
            case m.CallBack():
                call_back(message, self.post)
            case m.Answer():
                request = self._requests.pop(message.request, None)
                if request is not None:
                    request.answer = message
                    request.answered.set()
            case _:
                raise ValueError(f"a {type(message).__name__} message from a host")


def show_ticket(connection: Connection, ticket: m.Attach) -> Diagnostic | None:
    """Presents a client's ticket to a host; returns why the host refuses it and closes the connection then, else None.
    Raises ConnectionEnded."""
    try:
        connection.post(ticket)
        answer = connection.receive()
    except BaseException:
        connection.close()
        raise
    if isinstance(answer, m.Answer) and not answer.error:
        return None
    connection.close()
    if isinstance(answer, m.Answer):
        return read_diagnostic(answer.error)
    return BadMessage(have_=f"a {type(answer).__name__} message", rule="an Answer message")
