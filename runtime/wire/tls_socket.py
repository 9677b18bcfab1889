"""Provides a stream socket under TLS that never blocks inside TLS, so that the event loop can serve many of them. It
can also be used by one thread that waits. `tls_ports.py` creates these sockets.

TLS works on memory buffers: unsent and incomplete data stays there.
"""

import contextlib
import socket
import ssl
import time
from collections.abc import Collection

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire.addresses import prepare
from pathways.runtime.wire.errors import BadMessage
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.identity import Identity, Role, uris_of
from pathways.runtime.wire.tls import Keys, member_at

MAX_ENCRYPTED_BYTES = 1 << 18
"""Maximum bytes encrypted at once."""
RECEIVE_BYTES = 1 << 16
"""Maximum bytes of a handshake per read."""
_MAX_RECORD_BYTES = 1 << 14
"""Maximum bytes of a TLS record. A larger buffer takes longer to allocate."""
MAX_HANDSHAKE_BYTES = 1 << 16
"""Maximum bytes that an end may send before it is admitted. A member's handshake needs a fortieth of that."""


class TlsSocket:
    """A stream after its handshake (a `Transport`)."""

    __slots__ = ("_incoming", "_inside", "_left", "_outgoing", "_socket", "_tls")

    def __init__(
        self, sock: socket.socket, tls: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO
    ) -> None:
        self._socket, self._tls = sock, tls
        self._incoming, self._outgoing = incoming, outgoing
        self._left = b""
        """Encrypted bytes that are not sent yet."""
        self._inside = 0
        """Number of plain bytes in `_left`. They are reported as sent when all of `_left` is sent."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def setblocking(self, flag: bool, /) -> None:
        self._socket.setblocking(flag)

    def settimeout(self, value: float | None, /) -> None:
        self._socket.settimeout(value)

    def send(self, data: bytes | memoryview, /) -> int:
        """Sends what the socket accepts now and returns the count of bytes. The next call must begin with the rest."""
        at = 0
        if self._left:
            self._left = self._left[self._sent(self._left) :]
            if self._left:
                return 0
            at, self._inside = self._inside, 0
        size, view = len(data), memoryview(data)
        while at < size:
            end = min(at + MAX_ENCRYPTED_BYTES, size)
            while at < end:  # one call of OpenSSL takes one record at most
                count = self._tls.write(view[at:end])
                self._inside += count
                at += count
            encrypted = self._outgoing.read()
            if (sent := self._sent(encrypted)) < len(encrypted):
                self._left = encrypted[sent:]
                return at - self._inside
            self._inside = 0
        return at

    def _sent(self, data: bytes) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    def recv(self, size: int, /) -> bytes:
        """Reads and decrypts available data; empty at the end. Raises BlockingIOError for a partial record."""
        data = self._socket.recv(size)
        if not data:
            return data
        self._incoming.write(data)
        found: list[bytes] = []
        with contextlib.suppress(ssl.SSLWantReadError):
            while self._incoming.pending:  # an extra read would raise SSLWantReadError, which is slow
                if not (text := self._tls.read(_MAX_RECORD_BYTES)):
                    self._socket.shutdown(socket.SHUT_RD)  # the peer has ended its stream: the next read sees that
                    break
                found.append(text)
        if self._outgoing.pending:
            raise OSError("it sent an unexpected request")  # for example a key update: it may never read the answers
        if not found:
            raise BlockingIOError
        return found[0] if len(found) == 1 else b"".join(found)

    def shutdown(self, how: int, /) -> None:
        self._socket.shutdown(how)

    def close(self) -> None:
        self._socket.close()


class Handshake:
    """A connection that has not authenticated yet."""

    __slots__ = ("_incoming", "_keys", "_outgoing", "_received", "_socket", "_tls", "_wanted", "is_answered")

    def __init__(self, sock: socket.socket, keys: Keys, wanted: Collection[Role]) -> None:
        sock.setblocking(False)
        prepare(sock)
        self._socket, self._keys, self._wanted = sock, keys, wanted
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        """Created when bytes arrive, so that a silent connection costs only a socket."""
        self._received = 0
        self.is_answered = False
        """Whether the other end has sent a whole first message, so that this end has answered."""

    @property
    def has_begun(self) -> bool:
        """Whether the other end has sent any bytes."""
        return self._tls is not None

    def step(self) -> tuple[TlsSocket, Identity] | None:
        """Reads the available bytes. Returns the stream once the other end has proved to be a member.

        Raises OSError for data that is not TLS of this cluster, and ConnectionEnded for a member in an unwanted role.
        Raises PWC0911 for an end that sends too much.
        """
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return None
        if not data:
            raise ConnectionEnded("it closed the connection")
        self._received += len(data)
        if self._received > MAX_HANDSHAKE_BYTES:
            raise _endless()
        if self._tls is None:
            self._tls = self._keys.listening.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._incoming.write(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._answer()
            return None
        except ssl.SSLError:
            with contextlib.suppress(OSError):
                self._answer()  # an alert with the reason
            raise
        self._answer()
        peer = member_at(uris_of(self._tls.getpeercert()), self._keys, self._wanted)
        if self._incoming.pending:
            raise ConnectionEnded("it sent data before it was accepted")
        return TlsSocket(self._socket, self._tls, self._incoming, self._outgoing), peer

    def _answer(self) -> None:
        data = self._outgoing.read()
        self.is_answered |= bool(data)
        if data and self._socket.send(data) < len(data):  # the buffer of the socket holds more than a handshake
            raise OSError("it does not read its data")


def connect_under_tls(sock: socket.socket, keys: Keys, wanted: Role, until: float) -> tuple[TlsSocket, Identity]:
    """Performs the handshake with a listening member until a deadline of the monotonic clock.

    Raises OSError (ssl.SSLError, TimeoutError) if it fails. Raises ConnectionEnded for a member in another role, and
    PWC0911 for an end that sends too much. Does not close the socket.
    """
    prepare(sock)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = keys.connecting.wrap_bio(incoming, outgoing)
    received = 0
    while True:
        try:
            tls.do_handshake()
            _send(sock, outgoing, until)
            return TlsSocket(sock, tls, incoming, outgoing), member_at(uris_of(tls.getpeercert()), keys, (wanted,))
        except ssl.SSLWantReadError:
            _send(sock, outgoing, until)
        except ssl.SSLError:
            with contextlib.suppress(OSError):
                _send(sock, outgoing, until)  # an alert with the reason
            raise
        sock.settimeout(_left(until))
        data = sock.recv(RECEIVE_BYTES)
        received += len(data)
        if received > MAX_HANDSHAKE_BYTES:
            raise _endless()
        if data:
            incoming.write(data)
        else:
            incoming.write_eof()


def _endless() -> PathwaysError:
    return PathwaysError(
        BadMessage(have_="a TLS handshake that is too long", rule=f"at most {MAX_HANDSHAKE_BYTES:,} bytes")
    )


def _send(sock: socket.socket, outgoing: ssl.MemoryBIO, until: float) -> None:
    if outgoing.pending:
        sock.settimeout(_left(until))
        sock.sendall(outgoing.read())


def _left(until: float) -> float:
    """Returns the seconds until the deadline. Raises TimeoutError if it has passed: 0 would mean not to wait."""
    if (left := until - time.monotonic()) <= 0:
        raise TimeoutError("timed out")
    return left
