"""A port whose callers say who they are, each in a thread of its own: one that takes long holds up no other."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.threads import start_thread, started
from pathways.runtime.wire.addresses import Address
from pathways.runtime.wire.frames import ConnectionEnded

_T = TypeVar("_T")
MOST_HANDSHAKES = 64
"""So many ends may be saying who they are; then the one that has taken longest is dropped, and keeps out no other."""
LOOK = 0.2
"""Seconds after which a port looks whether it has been closed, and whether sockets can be made again."""
_ENDS = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 300_000))
"""When an end whose machine is gone is given up: after five minutes, which a process that is stopped and does not read
has, too; half a minute where a system does not know the last of these. Not all know all."""


class ListeningPort(Generic[_T]):
    """Lets in those who come to a socket that listens.

    `meet` makes of a caller what is let in, until a time (of `time.monotonic`); it raises OSError, ConnectionEnded or a
    PathwaysError, of which `refused` is told, for one that is not. All are called in the caller's thread, and `let_in`
    under a lock: it must not wait.
    """

    def __init__(
        self,
        sock: socket.socket,
        seconds: float,
        meet: Callable[[socket.socket, float], _T],
        let_in: Callable[[_T], None],
        refused: Callable[[Address, Exception], None],
    ) -> None:
        self._socket = sock
        self._socket.settimeout(LOOK)
        self._seconds, self._met, self._let_in, self._refused = seconds, meet, let_in, refused
        self.meeting: dict[socket.socket, None] = {}
        """Those who are saying who they are, in the order in which they came."""
        self._lock = threading.Lock()
        """Guards who is between coming and being let in, against who is dropped and against the end."""
        self._closed = threading.Event()
        start_thread("pathways-listener", self._listen)

    def close(self) -> None:
        """Stops listening. Nothing is let in any more."""
        with self._lock:
            self._closed.set()
            for sock in self.meeting:
                end_socket(sock)
            self.meeting.clear()
        self._socket.close()

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                sock, address = self._socket.accept()
            except TimeoutError:
                continue
            except OSError:  # closed; or gone again; or there are too many open files, for now
                self._closed.wait(LOOK)
                continue
            with self._lock:
                if self._closed.is_set():
                    sock.close()
                    return
                self.meeting[sock] = None
                if len(self.meeting) > MOST_HANDSHAKES:
                    oldest = next(iter(self.meeting))
                    del self.meeting[oldest]
                    end_socket(oldest)
            meeting = threading.Thread(target=self._meet, args=(sock, address), name="pathways-meet", daemon=True)
            if not started(meeting):
                self._leave(sock)
                sock.close()

    def _meet(self, sock: socket.socket, address: Address) -> None:
        """Lets one in, or not."""
        try:
            found = self._met(sock, time.monotonic() + self._seconds)
            with self._lock:
                if sock not in self.meeting:
                    raise ConnectionEnded("it was dropped for others, or the listener was closed")
                del self.meeting[sock]
                self._let_in(found)
        except (OSError, ConnectionEnded, PathwaysError) as error:
            self._leave(sock)
            sock.close()
            self._refused(address, error)

    def _leave(self, sock: socket.socket) -> None:
        with self._lock:
            self.meeting.pop(sock, None)


def listening_at(address: Address) -> socket.socket:
    """A socket that listens at an address, and at no other. Raises OSError where it cannot be had."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    return socket.create_server(address, family=family, backlog=4 * MOST_HANDSHAKES)


def undelayed(sock: socket.socket) -> None:
    """Has what is sent go at once: it is waited for, however small it is. Unix sockets do that by themselves."""
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def prepare(sock: socket.socket) -> None:
    """Sets what all streams of messages between machines have. Streams of values have no such end: who is to read may
    have other things to do for long."""
    undelayed(sock)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _ENDS:
        with contextlib.suppress(AttributeError, OSError):  # this system knows none of it
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def end_socket(sock: socket.socket) -> None:
    """Ends a socket in both directions, and wakes the thread that waits for it, which closes it."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
