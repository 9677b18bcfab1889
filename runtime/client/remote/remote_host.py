"""One host of an island, in another process: requests and their answers, arguments, and what it says of runs."""

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.runtime.client.remote.called_back import call_back
from pathways.runtime.interrupts import wait_without_end
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.encoding import decode
from pathways.runtime.wire.errors import BadMessage
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.peer import OnEnd, Peer, Receive


@dataclass(eq=False)
class _Request:
    """Something asked of a host, and its answer."""

    answered: threading.Event = field(default_factory=threading.Event)
    answer: m.Answer | None = None


class OfIsland(Protocol):
    """The island that a host belongs to (client/remote/remote_island.py)."""

    @property
    def lost(self) -> Diagnostic | None:
        """Why its hosts are gone; None while they are there."""
        ...

    def end_run(self, said: m.Done | m.Failed) -> None:
        """Notes that a host has ended its part of a run."""
        ...

    def lose(self, reason: str) -> None:
        """Ends all that waits for the hosts: one has sent what is no message."""
        ...

    def note_end(self, reason: str) -> None:
        """Notes that the stream of a host has ended."""
        ...


class ToHost(Protocol):
    """The way to a host: a stream (wire/peer.py)."""

    def begin(self, receive: Receive, on_end: OnEnd) -> None:
        """Begins to take what the host says."""
        ...

    def post(self, *messages: m.Message) -> None:
        """Sends messages, and never waits. Raises ConnectionEnded."""
        ...

    def wait_for_room(self) -> None:
        """Waits while the host has not taken much of what was sent."""
        ...

    def close(self) -> None: ...


class RemoteHost:
    """A host, at the other end of a way."""

    def __init__(self, name: str, way: ToHost, island: OfIsland) -> None:
        self.name = name
        self._way, self._island = way, island
        self._last_put = self._flushed = object()
        """The argument that was sent last, and the last that the host has said it has."""
        self._flushing = threading.Lock()
        """Held until the host has said that."""
        self._requests: dict[int, _Request] = {}
        self._counter = itertools.count()
        self._lock = threading.Lock()
        """Guards requests against the loss of the host."""

    def begin(self) -> None:
        """Begins to take what the host says."""
        self._way.begin(lambda _, kind, payload: self.receive(decode(kind, payload)), self._way_ended)

    def post(self, message: m.Message) -> None:
        """Sends a message; does nothing where the host is gone.

        Never waits for the host: its callers may hold the turns of others, and what they send those is not late.
        """
        if self._island.lost is None:
            try:
                self._way.post(message)
            except ConnectionEnded as error:
                self._island.note_end(str(error))

    def ask(self, make: Callable[[int], m.Message]) -> m.Answer:
        """Sends the request that `make` makes of its number, and waits for the answer.

        Raises the diagnostic that the host answers with, PWC0910 where it is gone.
        """
        return self.request(make)()

    def request(self, make: Callable[[int], m.Message]) -> Callable[[], m.Answer]:
        """As `ask`, but does not wait: what it gives does."""
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
        """Sends an argument of a plan."""
        self.post(message)
        self._last_put = object()

    def flush(self) -> None:
        """Waits until the host has all arguments sent to it: runs come by the controller, and may overtake them."""
        with self._flushing:
            last = self._last_put
            if last is not self._flushed:
                self.ask(m.Flush)
                self._flushed = last

    def wait_for_room(self) -> None:
        """Waits while the host does not take what was sent to it; ends when it is gone."""
        self._way.wait_for_room()

    def end(self) -> None:
        """Ends what waits for answers, and the connection: its island is lost."""
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
            self._island.note_end(f"its process has ended: {reason}")

    def receive(self, message: m.Message) -> None:
        """Takes what the host says, by whatever way."""
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
                raise ValueError(f"a {type(message).__name__} from a host")


def show_ticket(connection: Connection, ticket: m.Attach) -> Diagnostic | None:
    """Says to a host whose connection this is; gives why it is refused, and closes it then. Raises ConnectionEnded."""
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
    return BadMessage(have_=f"a {type(answer).__name__}", rule="the answer of a host")
