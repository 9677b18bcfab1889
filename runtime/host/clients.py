"""Clients at a host whose controller several share: they bring plans and inputs, and fetch results.

Runs, and whatever must keep its order among them, come by the controller. A client shows the ticket that the
controller has given it, and names nothing of another's.
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
from pathways.runtime.wire.encoding import decode, most_bytes
from pathways.runtime.wire.errors import BadMessage, ForeignArray
from pathways.runtime.wire.fields import check_fields
from pathways.runtime.wire.frames import FrameReader, Transport
from pathways.runtime.wire.loop import Loop
from pathways.runtime.wire.peer import Peer
from pathways.runtime.wire.tls import Keys, no_peer
from pathways.runtime.wire.tls_ports import LoopListener

Todo: TypeAlias = "queue.SimpleQueue[tuple[m.Message, Post | None]]"
"""What a host's main thread does, in this order, and where the answer goes."""
TICKET_S = 10.0
"""Seconds that a ticket may come later than who shows it: by another stream. A process without one is dropped then."""
MAX_ATTACH_BYTES = 1 << 16
"""The most bytes of what a process says before it is let in."""
MAY = (
    m.LoadPlan, m.CountCosts, m.PutArray, m.FetchArray, m.WriteArray, m.ReadArray, m.TellTime, m.Flush, m.Inject,
    m.Record,
)  # fmt: skip
"""What a client may ask of a host itself."""


@dataclass(eq=False)
class _Coming:
    """A process that has connected, and has not been let in."""

    peer: Peer
    reader: FrameReader
    """Limits what it may send."""
    member: str
    """The name in its certificate; empty at a Unix socket."""
    attach: m.Attach | None = None
    """What it has said, before its ticket has come."""


@dataclass(eq=False)
class Clients:
    """The clients of a host, each a stream of its loop. All methods are called on the thread of the loop."""

    host: Host
    todo: Todo
    loop: Loop
    _tickets: dict[int, tuple[str, str]] = field(default_factory=dict[int, tuple[str, str]])
    """By client: its ticket, and the name in its certificate."""
    _coming: dict[Peer, _Coming] = field(default_factory=dict["Peer", _Coming])
    _there: dict[int, Peer] = field(default_factory=dict[int, Peer])

    def expect(self, message: m.Expect) -> None:
        """Takes a ticket from the controller."""
        self.host.expect(message)
        self._tickets[message.client] = message.ticket, message.member
        for coming in list(self._coming.values()):
            if coming.attach is not None and coming.attach.client == message.client:
                self._let_in(coming, coming.attach)

    def forget(self, client: int) -> None:
        """Ends the stream of a client that the controller says is gone."""
        self._tickets.pop(client, None)
        if (peer := self._there.pop(client, None)) is not None:
            peer.end("the client is gone")

    def listen(self, path: str) -> None:
        """Begins to let clients in, at a Unix socket. Called before the loop runs."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(BACKLOG)
        self.loop.listen(listener, self._accept)

    def listen_at(self, address: Address, keys: Keys) -> Address:
        """Begins to let clients in at a port, by their certificates; returns it. Raises PWC0913."""
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
        """Hears who a process is; one that does not say so, or has no ticket, is dropped."""
        reader = FrameReader(lambda kind: MAX_ATTACH_BYTES)
        peer = Peer(self.loop, transport, reader)
        peer.is_known = False
        coming = self._coming[peer] = _Coming(peer, reader, member)
        peer.begin(lambda _, kind, payload: self._meet(coming, kind, payload), self._leave)
        self.loop.after(TICKET_S, lambda: self._refuse(peer, _no_ticket(coming)) if peer in self._coming else None)

    def _leave(self, peer: Peer, reason: str) -> None:
        self._coming.pop(peer, None)

    def _meet(self, coming: _Coming, kind: int, payload: bytes | bytearray) -> None:
        try:
            message = decode(kind, payload)
        except PathwaysError as error:
            self._refuse(coming.peer, error)
            return
        if not isinstance(message, m.Attach) or coming.attach is not None:
            have = f"a {type(message).__name__}"
            self._refuse(coming.peer, PathwaysError(BadMessage(have_=have, rule="Attach")))
            return
        coming.attach = message
        if message.client in self._tickets:
            self._let_in(coming, message)

    def _let_in(self, coming: _Coming, message: m.Attach) -> None:
        """Lets a client in that shows its ticket."""
        peer, client = coming.peer, message.client
        ticket, whose = self._tickets[client]
        is_another = bool(coming.member and whose) and coming.member != whose  # one without a certificate: this user's
        if is_another or not hmac.compare_digest(ticket.encode(), message.ticket.encode(errors="replace")):
            self._refuse(peer, _no_ticket(coming))
            return
        del self._coming[peer]
        coming.reader.most_bytes, peer.is_known = most_bytes, True
        post = ClientPost(peer)
        self._there[client] = peer
        peer.receive = lambda _, kind, payload: self._hear(client, peer, post, kind, payload)
        peer.on_end = lambda peer, reason: self._left(client, post)
        self.host.calls.begin(client, post)
        self.host.clients[client] = post
        peer.send(m.Answer(message.request))

    def _hear(self, client: int, peer: Peer, post: ClientPost, kind: int, payload: bytes | bytearray) -> None:
        """Takes what a client says; what is no message of a client ends its stream."""
        try:
            message = decode(kind, payload)
            check_fields(message, client, f"client {client}")
            if isinstance(message, m.Calling | m.Returned):
                self.host.calls.hear(client, message)
                return
            if not isinstance(message, MAY):
                have, rule = f"a {type(message).__name__}", "what a client sends to a host"
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
        """Tells a process why its stream ends, and ends it."""
        peer.send(m.Answer(-1, error=write_diagnostic(error.diagnostic)))
        peer.end(str(error))


def _no_ticket(coming: _Coming) -> PathwaysError:
    client = -1 if coming.attach is None else coming.attach.client
    who = "a process without a ticket"
    return PathwaysError(ForeignArray(who, "Attach", number=client, owner=client, client=client))
