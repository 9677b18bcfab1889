"""Accepts the connections of clients to a host process in a shared cluster, and handles their messages. Clients load
plans here, send arguments and fetch results. `serve.py` starts it.

Runs, and messages that must keep their order relative to runs, go through the controller instead. A client must show
the ticket that the controller has sent it. It may name only its own plans and arrays.
"""

import hmac
import os
import queue
import socket
from dataclasses import dataclass, field
from typing import TypeAlias

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.host.host import Host
from pathways.runtime.host.posting import ClientPost, Post
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.addresses import BACKLOG, Address, listening_at
from pathways.runtime.wire.credentials import process_at
from pathways.runtime.wire.encoding import decode, max_bytes
from pathways.runtime.wire.errors import BadMessage, ForeignArray
from pathways.runtime.wire.fields import check_fields
from pathways.runtime.wire.frames import FrameReader, Payload, Transport
from pathways.runtime.wire.loop import Loop
from pathways.runtime.wire.peer import Peer
from pathways.runtime.wire.tls import Keys, no_peer
from pathways.runtime.wire.tls_ports import LoopListener

Todo: TypeAlias = "queue.SimpleQueue[tuple[m.Message, Post | None]]"
"""Messages for the host's main thread, in order, each with the recipient of its answer."""
TICKET_S = 10.0
"""Seconds after connecting until a process without a ticket is dropped. Its ticket may arrive after the process itself,
because the controller sends the ticket on another stream."""
MAX_ATTACH_BYTES = 1 << 16
"""Maximum size of a message from a process that is not admitted yet."""
MAY = (
    m.LoadPlan, m.CountCosts, m.PutArray, m.FetchArray, m.WriteArray, m.ReadArray, m.ReportTime, m.Flush, m.Inject,
    m.Record,
)  # fmt: skip
"""Messages that a client may send to a host directly."""


@dataclass(eq=False)
class _PendingClient:
    """A process that has connected, and is not admitted yet."""

    peer: Peer
    reader: FrameReader
    """Limits the size of its messages."""
    member: str
    """The name in its certificate; empty for a Unix socket."""
    attach: m.Attach | None = None
    """Its message, if that has arrived before the ticket."""


@dataclass(eq=False)
class Clients:
    """The clients of a host, each a stream of its loop. All methods are called on the thread of the loop."""

    host: Host
    todo: Todo
    loop: Loop
    _tickets: dict[int, tuple[str, str]] = field(default_factory=dict[int, tuple[str, str]])
    """By client: its ticket, and the name in its certificate."""
    _pending: dict[Peer, _PendingClient] = field(default_factory=dict["Peer", _PendingClient])
    _there: dict[int, Peer] = field(default_factory=dict[int, Peer])

    def expect(self, message: m.Expect) -> None:
        """Stores a client's ticket from the controller. Admits the client if its `Attach` has already arrived."""
        self.host.expect(message)
        self._tickets[message.client] = message.ticket, message.member
        for pending in list(self._pending.values()):
            if pending.attach is not None and pending.attach.client == message.client:
                self._let_in(pending, pending.attach)

    def forget(self, client: int) -> None:
        """Ends the stream of a client that the controller reports as disconnected."""
        self._tickets.pop(client, None)
        if (peer := self._there.pop(client, None)) is not None:
            peer.end("the client has disconnected")

    def listen(self, path: str) -> None:
        """Starts to accept clients at a Unix socket. Must be called before the loop runs."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(BACKLOG)
        self.loop.listen(listener, self._accept)

    def listen_at(self, address: Address, keys: Keys) -> Address:
        """Starts to accept clients with certificates at a port; returns its address. Raises PWC0913."""
        try:
            listener = listening_at(address)
        except OSError as error:
            raise no_peer(address, error, "client", TICKET_S) from None
        LoopListener(self.loop, listener, keys, ("client",), lambda stream, member: self._begin(stream, member.name))
        return listener.getsockname()[:2]

    def _accept(self, sock: socket.socket) -> None:
        if process_at(sock)[1] != os.getuid():
            sock.close()
            return
        self._begin(sock, "")

    def _begin(self, transport: Transport, member: str) -> None:
        """Waits for the `Attach` of a process. Drops the process if it does not send one, or has no ticket."""
        reader = FrameReader(lambda kind: MAX_ATTACH_BYTES)
        peer = Peer(self.loop, transport, reader)
        peer.is_known = False
        pending = self._pending[peer] = _PendingClient(peer, reader, member)
        peer.begin(lambda _, kind, payload: self._handle_first(pending, kind, payload), self._leave)
        self.loop.after(TICKET_S, lambda: self._refuse(peer, _no_ticket(pending)) if peer in self._pending else None)

    def _leave(self, peer: Peer, reason: str) -> None:
        self._pending.pop(peer, None)

    def _handle_first(self, pending: _PendingClient, kind: int, payload: Payload) -> None:
        try:
            message = decode(kind, payload)
        except PathwaysError as error:
            self._refuse(pending.peer, error)
            return
        if not isinstance(message, m.Attach) or pending.attach is not None:
            have = f"a {type(message).__name__} message"
            self._refuse(pending.peer, PathwaysError(BadMessage(have_=have, rule="one Attach message")))
            return
        pending.attach = message
        if message.client in self._tickets:
            self._let_in(pending, message)

    def _let_in(self, pending: _PendingClient, message: m.Attach) -> None:
        """Admits a client if it shows its ticket, else refuses it."""
        peer, client = pending.peer, message.client
        ticket, owner = self._tickets[client]
        is_another = bool(pending.member and owner) and pending.member != owner  # without a certificate: same user
        if is_another or not hmac.compare_digest(ticket.encode(), message.ticket.encode(errors="replace")):
            self._refuse(peer, _no_ticket(pending))
            return
        del self._pending[peer]
        pending.reader.max_bytes, peer.is_known = max_bytes, True
        post = ClientPost(peer)
        self._there[client] = peer
        peer.receive = lambda _, kind, payload: self._deliver(client, peer, post, kind, payload)
        peer.on_end = lambda peer, reason: self._left(client, post)
        self.host.calls.begin(client, post)
        self.host.clients[client] = post
        peer.send(m.Answer(message.request))

    def _deliver(self, client: int, peer: Peer, post: ClientPost, kind: int, payload: Payload) -> None:
        """Handles a message of a client. Ends the stream if a client may not send this message."""
        try:
            message = decode(kind, payload)
            check_fields(message, client, f"client {client}")
            if isinstance(message, m.Calling | m.Returned):
                self.host.calls.deliver(client, message)
                return
            if not isinstance(message, MAY):
                have, rule = f"a {type(message).__name__}", "a message that clients send to hosts"
                raise PathwaysError(BadMessage(have_=have, rule=rule))
        except PathwaysError as error:
            self._refuse(peer, error)
            return
        if self.host.notice(message, post):
            self.todo.put((message, post))

    def _left(self, client: int, post: ClientPost) -> None:
        self.host.calls.end(client, post)
        if self.host.clients.get(client) is post:
            del self.host.clients[client]

    @staticmethod
    def _refuse(peer: Peer, error: PathwaysError) -> None:
        """Sends an error to a process, and ends its stream."""
        peer.send(m.Answer(-1, error=write_diagnostic(error.diagnostic)))
        peer.end(str(error))


def _no_ticket(pending: _PendingClient) -> PathwaysError:
    client = -1 if pending.attach is None else pending.attach.client
    who = "a process without a ticket"
    return PathwaysError(ForeignArray(who, "Attach", number=client, owner=client, client=client))
