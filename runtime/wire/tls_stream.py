"""A stream socket under TLS that one thread may read while others write.

An `ssl.SSLSocket` is not that: OpenSSL's object is for one thread at a time, and a thread that waits in `recv` is in
it. Here TLS works on memory alone, under a lock that is never held while the network is waited for.
"""

import contextlib
import socket
import ssl
import threading
import time
from typing import Any

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire.errors import BadMessage
from pathways.runtime.wire.identity import uris_of

PIECE = 1 << 18
"""The most bytes that are encrypted at once: as long may the thread that reads wait."""
RECEIVED = 1 << 16
"""The most bytes that are taken from the network at once."""
MOST_HANDSHAKE = 1 << 18
"""The most bytes of a handshake: certificates of a cluster are a thousandth of it."""


class TlsStream:
    """What `Connection` uses of a socket, after a handshake. One thread reads at a time; any may write."""

    def __init__(
        self, sock: socket.socket, tls: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO
    ) -> None:
        self._socket, self._tls = sock, tls
        self._incoming, self._outgoing = incoming, outgoing
        self._state = threading.Lock()
        """Guards the three that are TLS; nothing is waited for inside."""
        self._sending = threading.Lock()
        """What is encrypted goes out in the order in which it was."""

    def sendall(self, data: bytes | memoryview, /) -> None:
        """Sends all bytes. Raises OSError where the stream has ended."""
        view = memoryview(data).cast("B")
        with self._sending:
            for begin in range(0, len(view), PIECE):
                self._socket.sendall(self._encrypted(view[begin : begin + PIECE]))

    def _encrypted(self, view: memoryview) -> bytes:
        with self._state:
            while view:  # OpenSSL may take less: a record
                view = view[self._tls.write(view) :]
            return self._outgoing.read()

    def recv_into(self, buffer: memoryview, /) -> int:
        """Waits for bytes, and gives how many there are; 0 at the end. Raises OSError for what is not TLS.

        An end is an end, said or not: frames tell whether one was cut, and a process that has died says nothing.
        """
        while (count := self._decrypted(buffer)) is None:
            data = self._socket.recv(RECEIVED)
            with self._state:
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
        return count

    def _decrypted(self, buffer: memoryview) -> int | None:
        """How many bytes there are; None where more must come first."""
        with self._state:
            try:
                count: Any = self._tls.read(len(buffer), buffer)
                return count
            except ssl.SSLWantReadError:
                return None
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return 0

    def settimeout(self, seconds: float | None, /) -> None:
        """How long anything may wait for the network; None: for ever."""
        self._socket.settimeout(seconds)

    def shutdown(self, how: int, /) -> None:
        """Ends the stream: a thread that reads or writes sees it at once, here and there."""
        self._socket.shutdown(how)

    def close(self) -> None:
        self._socket.close()

    def peer(self) -> list[str]:
        """The URIs in the certificate of the other end, which was verified."""
        with self._state:
            return uris_of(self._tls.getpeercert())


def handshake(sock: socket.socket, context: ssl.SSLContext, *, listens: bool, until: float) -> TlsStream:
    """Agrees on keys with the other end, by a moment of the monotonic clock.

    Raises OSError (ssl.SSLError, TimeoutError) where that fails, PWC0911 for an end that sends too much; the socket is
    not closed.
    """
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_side=listens)
    received = 0
    while True:
        try:
            tls.do_handshake()
            _send(sock, outgoing, until)
            return TlsStream(sock, tls, incoming, outgoing)
        except ssl.SSLWantReadError:
            _send(sock, outgoing, until)
        except ssl.SSLError:
            with contextlib.suppress(OSError):
                _send(sock, outgoing, until)  # why: an alert
            raise
        sock.settimeout(_left(until))
        data = sock.recv(RECEIVED)
        received += len(data)
        if received > MOST_HANDSHAKE:
            have, rule = "a handshake that does not end", f"at most {MOST_HANDSHAKE:,} bytes"
            raise PathwaysError(BadMessage(have_=have, rule=rule))
        if data:
            incoming.write(data)
        else:
            incoming.write_eof()


def _send(sock: socket.socket, outgoing: ssl.MemoryBIO, until: float) -> None:
    if outgoing.pending:
        sock.settimeout(_left(until))
        sock.sendall(outgoing.read())


def _left(until: float) -> float:
    """Seconds until then. Raises TimeoutError where there are none: 0 would mean not to wait, not to time out."""
    if (left := until - time.monotonic()) <= 0:
        raise TimeoutError("timed out")
    return left
