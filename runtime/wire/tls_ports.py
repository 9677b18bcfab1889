"""Ports between machines: who comes says by TLS that it is a member of the cluster, and holds up nothing meanwhile."""

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
from pathways.runtime.wire.tls_socket import RECEIVED, Handshake, TlsSocket, connect_under_tls

HANDSHAKE_S = 10.0
"""Seconds that an end may take to say who it is."""
WELCOME = b"\x01"
"""What a listener says first: of TLS 1.3 alone the other end would not know that it was let in."""
DROP_POLL_S = 0.2
"""Seconds between two looks for those who have taken too long, and the least time to hear the welcome."""
MOST_HANDSHAKES = 256
"""Maximum concurrent handshakes. For one more, the oldest that has sent nothing is dropped, or else the oldest."""
NOTE = 1.0
"""Seconds for which those who were refused are told in one line: strangers fill no log."""


@dataclass(frozen=True, eq=False)
class _Coming:
    """An end that is saying who it is, and until when it may."""

    handshake: Handshake
    address: Address
    until: float


class LoopListener:
    """Lets members in that are in roles which are wanted: `let_in` gets their streams, and who they are."""

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
        """`listener` listens already. A process that has not said in so many seconds who it is is dropped."""
        self._loop, self._keys, self._wanted, self._let_in = loop, keys, wanted, let_in
        self._seconds = seconds
        self._coming: dict[socket.socket, _Coming] = {}
        """In the order in which they came."""
        self._refused = 0
        """How many since that was last said."""
        loop.listen(listener, self._accept)
        loop.every(min(DROP_POLL_S, seconds), self._drop_late)

    def _accept(self, sock: socket.socket) -> None:
        try:
            address: Address = sock.getpeername()[:2]
            coming = _Coming(Handshake(sock, self._keys, self._wanted), address, time.monotonic() + self._seconds)
        except OSError:  # gone again
            sock.close()
            return
        self._coming[sock] = coming
        self._loop.watch(sock, lambda: self._look(sock))
        if len(self._coming) > MOST_HANDSHAKES:
            others = [other for other in self._coming if other is not sock]
            silent = next((other for other in others if not self._coming[other].handshake.has_begun), others[0])
            self._refuse(silent, ConnectionEnded("it was dropped for others"))

    def _look(self, sock: socket.socket) -> None:
        if sock not in self._coming:  # dropped for another a moment ago
            return
        try:
            found = self._coming[sock].handshake.step()
            if found is None:
                return
            stream, peer = found
            stream.send(WELCOME)
        except (OSError, ConnectionEnded, PathwaysError) as error:
            self._refuse(sock, error)
            return
        del self._coming[sock]
        self._loop.unwatch(sock)
        self._let_in(stream, peer)

    def _drop_late(self) -> None:
        now = time.monotonic()
        for sock in [sock for sock, coming in self._coming.items() if coming.until <= now]:
            self._refuse(sock, TimeoutError())

    def _refuse(self, sock: socket.socket, error: Exception) -> None:
        coming = self._coming.pop(sock)
        self._loop.unwatch(sock)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()
        self._refused += 1
        if self._refused == 1:
            refusal = no_peer(coming.address, error, " or ".join(self._wanted), self._seconds).diagnostic
            print(f"note: {refusal.code}: {refusal.brief}", file=sys.stderr)
            self._loop.after(NOTE, self._tell_others)

    def _tell_others(self) -> None:
        if self._refused > 1:
            print(f"note: {self._refused - 1} others were refused", file=sys.stderr, flush=True)
        self._refused = 0


def join_as(address: Address, keys: Keys, wanted: Role, *, seconds: float = HANDSHAKE_S) -> tuple[Connection, Identity]:
    """Connects to a listener that is in a role, and says who it is.

    Raises PWC0913 where nothing listens, where what does is not of this cluster, in another role, or does not let this
    process in.
    """
    until = time.monotonic() + seconds
    sock: socket.socket | None = None
    try:
        sock = socket.create_connection(address, seconds)
        stream, peer = connect_under_tls(sock, keys, wanted, until)
        stream.settimeout(max(until - time.monotonic(), DROP_POLL_S))
        if _first_of(stream) != WELCOME:
            raise ConnectionEnded("it has not let this process in")
        stream.settimeout(None)
        return Connection(stream), peer
    except (OSError, ConnectionEnded, PathwaysError) as error:
        if sock is not None:
            sock.close()
        raise no_peer(address, error, wanted, seconds) from None


def _first_of(stream: TlsSocket) -> bytes:
    """Waits for what comes first; nothing at the end of the stream."""
    while True:
        with contextlib.suppress(BlockingIOError):  # a part of a record has come
            return stream.recv(RECEIVED)
