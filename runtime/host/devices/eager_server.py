"""What this host sends to others without being asked: small values, each as soon as it is there (`mailbox.py`)."""

import contextlib
import hmac
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence

from pathways.runtime.host.devices.mailbox import (
    FAILURE,
    HELLO,
    KEY_BYTES,
    MOST_TEXT,
    NUMBER,
    PULLS,
    READY,
    SAYS_WHO,
    VALUE,
    Entrance,
    abstract,
)
from pathways.runtime.wire.addresses import Address, show_address
from pathways.runtime.wire.frames import ConnectionEnded, frame_of
from pathways.runtime.wire.outbox import Outbox
from pathways.runtime.wire.port import ListeningPort, end_socket, listening_at, undelayed


class EagerServer:
    """The port at which other hosts come for the values that this one sends them."""

    def __init__(self, ip: str) -> None:
        self._ways: dict[str, EagerWay] = {}
        listener = listening_at((ip, 0))
        self._address: Address = listener.getsockname()[:2]
        self._opened(listener)
        self._name = f"pathways-{secrets.token_hex(KEY_BYTES)}" if sys.platform == "linux" else ""
        try:
            self._opened(_near(self._name))
        except OSError:  # the system has no such sockets
            self._name = ""

    def _opened(self, sock: socket.socket) -> None:
        ListeningPort(sock, SAYS_WHO, self._meet, self._let_in, _not_let_in)

    def way(self) -> "EagerWay":
        """Makes the way to one more host."""
        key = secrets.token_hex(KEY_BYTES)
        entrance = Entrance(show_address(self._address), self._name, key)
        way = self._ways[key] = EagerWay(entrance, lambda: self._ways.pop(key, None))
        return way

    def _meet(self, sock: socket.socket, until: float) -> "tuple[EagerWay, socket.socket, int]":
        said = b""
        while len(said) < HELLO.size:
            sock.settimeout(max(until - time.monotonic(), 1e-3))
            if not (more := sock.recv(HELLO.size - len(said))):
                raise ConnectionEnded("it has not said who it is")
            said += more
        sock.settimeout(None)
        undelayed(sock)
        key, number = HELLO.unpack(said)
        way = next((w for k, w in list(self._ways.items()) if hmac.compare_digest(k.encode(), key)), None)
        if way is None:
            raise ConnectionEnded("no way has its key")
        return way, sock, number

    @staticmethod
    def _let_in(met: "tuple[EagerWay, socket.socket, int]") -> None:
        way, sock, number = met
        way.take(sock, number)


class EagerWay:
    """What goes to one other host, which has come for it or will. Whatever is sent behind its end goes nowhere."""

    def __init__(self, entrance: Entrance, ended: Callable[[], object]) -> None:
        self.entrance = entrance
        self._ended = ended
        self.anew = 0
        """At which time the two were told to connect anew."""
        self._outbox: Outbox | None = None
        self._socks: dict[int, socket.socket] = {}
        """Of those that came, by that time: the one in use, and any that is ahead of this end."""
        self._waiting: list[Sequence[bytes | memoryview]] = []
        self._pulls: Callable[[], str] | None = None
        """Says where larger values are pulled, once that is known: asked for each socket."""
        self._is_over = False
        self._lock = threading.Lock()
        """Guards those; nothing is waited for inside."""

    def send(self, number: int, data: bytes, kind: int = VALUE, *, anew: int = -1) -> None:
        """Sends a value; `anew`: unless the two were told to connect anew since that time."""
        frame = frame_of(kind, NUMBER.pack(number), data)
        with self._lock:
            if anew not in (-1, self.anew):
                return
            if self._outbox is not None:
                with contextlib.suppress(ConnectionEnded):  # the other host sees that, too, and comes again
                    self._outbox.post(frame)
                    return
            if not self._is_over:
                self._waiting.append(frame)

    def fail(self, number: int, why: str, *, anew: int = -1) -> None:
        """Says why there is no value of a number. `anew` as of `send`."""
        self.send(number, why.encode(errors="replace")[:MOST_TEXT], FAILURE, anew=anew)

    def say_where_to_pull(self, said: Callable[[], str]) -> None:
        """Says where larger values are pulled: now, and anew to each socket that the other host comes with."""
        with self._lock:
            self._pulls = said
            with contextlib.suppress(ConnectionEnded):  # as above
                self._post_where_to_pull()

    def _post_where_to_pull(self) -> None:
        if self._outbox is not None and self._pulls is not None:
            self._outbox.post(frame_of(PULLS, NUMBER.pack(0), self._pulls().encode()))

    def take(self, sock: socket.socket, anew: int) -> None:
        """Takes the socket of the other host; one that comes later takes the place of one before."""
        with self._lock:
            if self._is_over or anew < self.anew:
                sock.close()
                return
            self._drop(anew)
            self._socks[anew] = sock
            if anew == self.anew:
                self._begin(sock)

    def begin_anew(self, anew: int) -> None:
        """Drops all that has not come to the other host, and goes on by the socket that it comes with, or came."""
        with self._lock:
            self._waiting.clear()
            for before in [n for n in self._socks if n < anew]:
                self._drop(before)
            self.anew = anew
            if anew in self._socks and self._outbox is None:
                self._begin(self._socks[anew])

    def close(self) -> None:
        """Ends it: the other host is gone."""
        with self._lock:
            self._is_over = True
            self._waiting.clear()
            for anew in list(self._socks):
                self._drop(anew)
        self._ended()

    def _begin(self, sock: socket.socket) -> None:
        self._outbox = Outbox(sock)
        waiting, self._waiting = self._waiting, []
        with contextlib.suppress(ConnectionEnded):
            for frame in (frame_of(READY, NUMBER.pack(0)), *waiting):
                self._outbox.post(frame)
            self._post_where_to_pull()

    def _drop(self, anew: int) -> None:
        sock = self._socks.pop(anew, None)
        if sock is None:
            return
        if anew == self.anew and self._outbox is not None:
            self._outbox.close()
            self._outbox = None
        end_socket(sock)
        sock.close()


def _near(name: str) -> socket.socket:
    """A socket that listens for processes of this machine. Raises OSError where there is none of this kind."""
    if not name:
        raise OSError("no name")
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(abstract(name))
    sock.listen()
    return sock


def _not_let_in(address: Address, error: Exception) -> None:
    """Says nothing: who has a key comes again."""
