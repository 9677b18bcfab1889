"""Clients at a host whose controller several share: they bring plans and inputs, and fetch results.

Runs, and whatever must keep its order among them, come by the controller. A client shows the ticket that the
controller has given it, and names nothing of another's.
"""

import contextlib
import hmac
import os
import queue
import socket
import threading
import time
import traceback
from dataclasses import dataclass, field
from typing import TypeAlias

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.host.host import Host
from pathways.runtime.host.posting import ClientPost, Post
from pathways.runtime.threads import start_thread, started
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.addresses import Address
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.credentials import process_at
from pathways.runtime.wire.errors import BadMessage, ForeignArray
from pathways.runtime.wire.fields import check_fields
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.tls import Keys, Listener

Todo: TypeAlias = "queue.SimpleQueue[tuple[m.Message, Post | None]]"
"""What a host's main thread does, in this order, and where the answer goes."""
AGAIN = 0.1
"""Seconds after which a client is let in again where that could not be."""
LAST = 1.0
"""Seconds for which a client that is refused may take to hear why: a stream under TLS takes nothing at once."""
TICKET = 10.0
"""Seconds that a ticket may come later than who shows it: by another stream."""
MAY = (
    m.LoadPlan, m.CountCosts, m.PutArray, m.FetchArray, m.WriteArray, m.ReadArray, m.TellTime, m.Flush, m.Inject,
    m.Record,
)  # fmt: skip
"""What a client may ask of a host itself."""


@dataclass(eq=False)
class Clients:
    """The clients of a host, each read by a thread of its own."""

    host: Host
    todo: Todo
    _tickets: dict[int, tuple[str, str]] = field(default_factory=dict[int, tuple[str, str]])
    """By client: its ticket, and the name in its certificate."""
    _changed: threading.Condition = field(default_factory=threading.Condition)
    """Guards the tickets; notified when one comes."""
    _there: dict[int, Connection] = field(default_factory=dict[int, Connection])

    def expect(self, message: m.Expect) -> None:
        """Takes a ticket from the controller."""
        with self._changed:
            self.host.expect(message)
            self._tickets[message.client] = message.ticket, message.member
            self._changed.notify_all()

    def forget(self, client: int) -> None:
        """Ends the connection with a client that the controller says is gone."""
        with self._changed:
            self._tickets.pop(client, None)
            connection = self._there.pop(client, None)
        if connection is not None:
            connection.close()

    def listen(self, path: str) -> None:
        """Begins to let clients in, at a Unix socket."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(64)
        start_thread("pathways-clients", self._accept, listener)

    def listen_at(self, address: Address, keys: Keys) -> Address:
        """Begins to let clients in at a port, by their certificates; returns it. Raises PWC0913."""
        listener = Listener(address, keys, "client")
        start_thread("pathways-clients", self._accept_members, listener)
        return listener.address

    def _accept_members(self, listener: Listener) -> None:
        while True:
            connection, member = listener.accept()
            self._begin(connection, member.name)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:  # gone again; or there are too many open files, for now
                time.sleep(AGAIN)
                continue
            if process_at(sock)[1] != os.getuid():
                sock.close()
                continue
            self._begin(Connection(sock), "")

    def _begin(self, connection: Connection, member: str) -> None:
        serving = threading.Thread(target=self._serve, args=(connection, member), name="pathways-client", daemon=True)
        if not started(serving):
            connection.close()

    def _serve(self, connection: Connection, member: str) -> None:
        """Reads what one client sends until its stream ends; what is no message ends it."""
        client: tuple[int, int] | None = None
        post = ClientPost(connection)
        try:
            attach = connection.receive_within(TICKET)
            client = self._let_in(attach, connection, member)
            self.host.calls.begin(client[0], post)
            self.host.clients[client[0]] = post
            post(m.Answer(client[1]))
            while True:
                message = connection.receive()
                check_fields(message, client[0], f"client {client[0]}")
                if isinstance(message, m.Calling | m.Returned):
                    self.host.calls.hear(client[0], message)
                    continue
                if not isinstance(message, MAY):
                    have, rule = f"a {type(message).__name__}", "what a client sends to a host"
                    raise PathwaysError(BadMessage(have_=have, rule=rule))
                if self.host.notice(message, post):
                    self.todo.put((message, post))
        except ConnectionEnded:
            pass
        except PathwaysError as error:
            with contextlib.suppress(ConnectionEnded):
                connection.post_soon(m.Answer(-1, error=write_diagnostic(error.diagnostic)))
                connection.wait_until_sent(LAST)
        except Exception:
            traceback.print_exc()
        connection.close()
        if client is not None:
            self.host.calls.end(client[0], post)
            if self.host.clients.get(client[0]) is post:
                del self.host.clients[client[0]]

    def _let_in(self, message: m.Message, connection: Connection, member: str) -> tuple[int, int]:
        """The number of a client, and of its request. Raises PWC0916 for one without a ticket."""
        if not isinstance(message, m.Attach):
            raise PathwaysError(BadMessage(have_=f"a {type(message).__name__}", rule="Attach"))
        client = message.client
        with self._changed:
            self._changed.wait_for(lambda: client in self._tickets, TICKET)
            ticket, whose = self._tickets.get(client, ("", ""))
            is_another = bool(member and whose) and member != whose  # a process without a certificate is of this user
            same = hmac.compare_digest(ticket.encode(), message.ticket.encode(errors="replace"))
            if not ticket or not same or is_another:
                who = "a process without a ticket"
                raise PathwaysError(ForeignArray(who, "Attach", number=client, owner=client, client=client))
            self._there[client] = connection
        return client, message.request
