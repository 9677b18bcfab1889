"""Listens on a TCP port for processes on other machines, and connects to such ports. Both ends prove by TLS that they
belong to the cluster. Controllers, hosts and clients use it.

A slow handshake must not delay other connections.
"""

import contextlib
import socket
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire.addresses import Address
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.identity import Identity, Role
from pathways.runtime.wire.loop import Loop
from pathways.runtime.wire.tls import Keys, no_peer
from pathways.runtime.wire.tls_socket import RECEIVE_BYTES, Handshake, TlsSocket, connect_under_tls

HANDSHAKE_S = 10.0
"""Time limit for the handshake of a connection."""
WELCOME = b"\x01"
"""First byte from the listener. With TLS 1.3 alone, the connecting end would not know that it was admitted."""
DROP_POLL_S = 0.2
"""Interval at which late handshakes are dropped; also the minimum time to wait for the welcome byte."""
MAX_HANDSHAKES = 256
"""Maximum concurrent handshakes. For one more, `_one_to_drop` chooses the one to drop."""
REFUSALS_NOTE_INTERVAL_S = 1.0
"""Refusals within this time are reported in one line, so that strangers cannot fill the log."""


@dataclass(frozen=True, eq=False)
class _Pending:
    """A connection during its handshake, and its deadline."""

    handshake: Handshake
    address: Address
    until: float


class LoopListener:
    """Admits members in the wanted roles: `let_in` receives the stream and identity of each."""

    def __init__(
        self,
        loop: Loop,
        listener: socket.socket,
        keys: Keys,
        wanted: Collection[Role],
        let_in: Callable[[TlsSocket, Identity], None],
        *,
        seconds: float = HANDSHAKE_S,
    ) -> None:
        """`listener` must already listen. A process that has not authenticated after `seconds` is dropped."""
        self._loop, self._keys, self._wanted, self._let_in = loop, keys, wanted, let_in
        self._seconds = seconds
        self._pending: dict[socket.socket, _Pending] = {}
        """In the order of their arrival."""
        self._refused = 0
        """Number of refusals since the last note."""
        loop.listen(listener, self._accept)
        loop.every(min(DROP_POLL_S, seconds), self._drop_late)

    def _accept(self, sock: socket.socket) -> None:
        try:
            address: Address = sock.getpeername()[:2]
            pending = _Pending(Handshake(sock, self._keys, self._wanted), address, time.monotonic() + self._seconds)
        except OSError:  # disconnected already
            sock.close()
            return
        self._pending[sock] = pending
        self._loop.watch(sock, lambda: self._advance(sock))
        if len(self._pending) > MAX_HANDSHAKES:
            self._refuse(self._one_to_drop(), ConnectionEnded("too many connections are open"))

    def _one_to_drop(self) -> socket.socket:
        """Returns the connection to drop, always one of the older half: the oldest that has sent nothing.

        If there is none, it is the oldest that was not answered, else the oldest. A connection of the newer half may be
        a member that has just connected, and has had no time to send anything.
        """
        older = list(self._pending.items())[: len(self._pending) // 2]
        silent = (sock for sock, one in older if not one.handshake.has_begun)
        unanswered = (sock for sock, one in older if not one.handshake.is_answered)
        return next(silent, None) or next(unanswered, None) or older[0][0]

    def _advance(self, sock: socket.socket) -> None:
        if sock not in self._pending:  # dropped just now in favor of another connection
            return
        try:
            found = self._pending[sock].handshake.step()
            if found is None:
                return
            stream, peer = found
            stream.send(WELCOME)
        except (OSError, ConnectionEnded, PathwaysError) as error:
            self._refuse(sock, error)
            return
        del self._pending[sock]
        self._loop.unwatch(sock)
        self._let_in(stream, peer)

    def _drop_late(self) -> None:
        now = time.monotonic()
        for sock in [sock for sock, pending in self._pending.items() if pending.until <= now]:
            self._refuse(sock, TimeoutError())

    def _refuse(self, sock: socket.socket, error: Exception) -> None:
        pending = self._pending.pop(sock)
        self._loop.unwatch(sock)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()
        self._refused += 1
        if self._refused == 1:
            refusal = no_peer(pending.address, error, " or ".join(self._wanted), self._seconds).diagnostic
            print(f"note: {refusal.code}: {refusal.brief}", file=sys.stderr)
            self._loop.after(REFUSALS_NOTE_INTERVAL_S, self._note_other_refusals)

    def _note_other_refusals(self) -> None:
        if self._refused > 1:
            print(f"note: {self._refused - 1} more connections were refused", file=sys.stderr, flush=True)
        self._refused = 0


def join_as(address: Address, keys: Keys, wanted: Role, *, seconds: float = HANDSHAKE_S) -> tuple[Connection, Identity]:
    """Connects to a listener that must have the role `wanted`, and authenticates this process.

    Raises PWC0913 if nothing listens there. Raises it also if the listener is of another cluster or role, or refuses
    this process.
    """
    until = time.monotonic() + seconds
    sock: socket.socket | None = None
    try:
        sock = socket.create_connection(address, seconds)
        stream, peer = connect_under_tls(sock, keys, wanted, until)
        stream.settimeout(max(until - time.monotonic(), DROP_POLL_S))
        if _first_of(stream) != WELCOME:
            raise ConnectionEnded("it did not accept this process")
        stream.settimeout(None)
        return Connection(stream), peer
    except (OSError, ConnectionEnded, PathwaysError) as error:
        if sock is not None:
            sock.close()
        raise no_peer(address, error, wanted, seconds) from None


def _first_of(stream: TlsSocket) -> bytes:
    """Blocks until the first bytes arrive. Returns empty bytes at the end of the stream."""
    while True:
        with contextlib.suppress(BlockingIOError):  # only a part of a record has arrived
            return stream.recv(RECEIVE_BYTES)
