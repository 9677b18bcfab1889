"""What this host sends to others without being asked: small values, each as soon as it is there (`mailbox.py`)."""

import contextlib
import hmac
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Sequence

from pathways.runtime.host.between.mailbox import (
    CONNECT_TIMEOUT_S,
    FAILURE,
    HELLO,
    KEY_AND_TIME,
    KEY_BYTES,
    MOST_TEXT,
    NUMBER,
    READY,
    VALUE,
    WHERE,
    Entrance,
    abstract,
)
from pathways.runtime.threads import started
from pathways.runtime.wire.addresses import BACKLOG, Address, listening_at, show_address, undelayed
from pathways.runtime.wire.frames import ConnectionEnded, FrameReader, frame_of
from pathways.runtime.wire.loop import Loop
from pathways.runtime.wire.peer import Peer

MAX_STRANGERS = 64
"""Maximum processes that may be showing a key; for one more, the one that has taken longest is dropped."""


class EagerServer:
    """The port at which other hosts come for the values that this one sends them."""

    def __init__(self, ip: str, loop: Loop) -> None:
        self._loop = loop
        self._ways: dict[str, EagerWay] = {}
        self._strangers: dict[Peer, None] = {}
        """Those who have not shown a key, in the order in which they came."""
        listener = listening_at((ip, 0))
        self._address: Address = listener.getsockname()[:2]
        loop.listen(listener, self._accept)
        self._name = f"pathways-{secrets.token_hex(KEY_BYTES)}" if sys.platform == "linux" else ""
        try:
            loop.listen(_near(self._name), self._accept)
        except OSError:  # the system has no such sockets
            self._name = ""

    def way(self) -> "EagerWay":
        """Makes the way to one more host."""
        key = secrets.token_hex(KEY_BYTES)
        entrance = Entrance(show_address(self._address), self._name, key)
        way = self._ways[key] = EagerWay(entrance, lambda: self._ways.pop(key, None))
        return way

    def _accept(self, sock: socket.socket) -> None:
        undelayed(sock)
        peer = Peer(self._loop, sock, FrameReader(_max_bytes))
        self._strangers[peer] = None
        peer.begin(self._meet, self._leave)
        self._loop.after(CONNECT_TIMEOUT_S, lambda: self._drop(peer))
        if len(self._strangers) > MAX_STRANGERS:
            self._drop(next(iter(self._strangers)))

    def _leave(self, peer: Peer, reason: str) -> None:
        self._strangers.pop(peer, None)

    def _drop(self, peer: Peer) -> None:
        if peer in self._strangers:
            peer.end("it has not said who it is")

    def _meet(self, peer: Peer, kind: int, payload: bytes | bytearray) -> None:
        """Gives a stream to the way whose key it shows; any other ends."""
        if kind != HELLO or len(payload) != KEY_AND_TIME.size or peer not in self._strangers:
            peer.end("it does not show a key")
            return
        key, number = KEY_AND_TIME.unpack(payload)
        way = next((w for k, w in list(self._ways.items()) if hmac.compare_digest(k.encode(), key)), None)
        if way is None:
            peer.end("no way has its key")
            return
        del self._strangers[peer]
        meeting = threading.Thread(target=way.take, args=(peer, number), name="pathways-meet", daemon=True)
        if not started(meeting):  # it asks JAX's transfer server where it listens: not on the thread of the loop
            peer.end("no thread could be started")


def _max_bytes(kind: int) -> int:
    return KEY_AND_TIME.size if kind == HELLO else -1


class EagerWay:
    """What goes to one other host, which has come for it or will. Whatever is sent behind its end goes nowhere."""

    def __init__(self, entrance: Entrance, ended: Callable[[], object]) -> None:
        self.entrance = entrance
        self._ended = ended
        self.anew = 0
        """At which time the two were told to connect anew."""
        self._peer: Peer | None = None
        """The stream in use."""
        self._peers: dict[int, Peer] = {}
        """Of those that came, by that time: the one in use, and any that is ahead of this end."""
        self._waiting: list[Sequence[bytes | memoryview]] = []
        self._where: dict[int, Callable[[], str]] = {}
        """By transport, says how it is reached: asked for each stream."""
        self._is_over = False
        self._lock = threading.Lock()
        """Guards those; nothing is waited for inside."""

    def send(self, number: int, data: bytes, kind: int = VALUE, *, anew: int = -1) -> None:
        """Sends a value; `anew`: unless the two were told to connect anew since that time."""
        frame = frame_of(kind, NUMBER.pack(number), data)
        with self._lock:
            if anew not in (-1, self.anew):
                return
            if self._peer is not None:
                with contextlib.suppress(ConnectionEnded):  # the other host sees that, too, and comes again
                    self._peer.post_pieces(frame)
                    return
            if not self._is_over:
                self._waiting.append(frame)

    def fail(self, number: int, why: str, *, anew: int = -1) -> None:
        """Says why there is no value of a number. `anew` as of `send`."""
        self.send(number, why.encode(errors="replace")[:MOST_TEXT], FAILURE, anew=anew)

    def say_where(self, transport: int, said: Callable[[], str]) -> None:
        """Says how a transport is reached: now, and anew to each stream that the other host comes with."""
        with self._lock:
            self._where[transport] = said
            with contextlib.suppress(ConnectionEnded):  # as above
                self._post_where(transport)

    def _post_where(self, transport: int) -> None:
        if self._peer is not None and (said := self._where[transport]()):
            self._peer.post_pieces(frame_of(WHERE, NUMBER.pack(transport), said.encode()))

    def take(self, peer: Peer, anew: int) -> None:
        """Takes the stream of the other host; one that comes later takes the place of one before."""
        with self._lock:
            if self._is_over or anew < self.anew:
                peer.close()
                return
            self._drop(anew)
            self._peers[anew] = peer
            if anew == self.anew:
                self._begin(peer)

    def begin_anew(self, anew: int) -> None:
        """Drops all that has not come to the other host, and goes on by the stream that it comes with, or came."""
        with self._lock:
            self._waiting.clear()
            for before in [n for n in self._peers if n < anew]:
                self._drop(before)
            self.anew = anew
            if anew in self._peers and self._peer is None:
                self._begin(self._peers[anew])

    def close(self) -> None:
        """Ends it: the other host is gone."""
        with self._lock:
            self._is_over = True
            self._waiting.clear()
            for anew in list(self._peers):
                self._drop(anew)
        self._ended()

    def _begin(self, peer: Peer) -> None:
        self._peer = peer
        waiting, self._waiting = self._waiting, []
        with contextlib.suppress(ConnectionEnded):
            for frame in (frame_of(READY, NUMBER.pack(0)), *waiting):
                peer.post_pieces(frame)
            for transport in self._where:
                self._post_where(transport)

    def _drop(self, anew: int) -> None:
        if (peer := self._peers.pop(anew, None)) is None:
            return
        if anew == self.anew:
            self._peer = None
        peer.close()


def _near(name: str) -> socket.socket:
    """A socket that listens for processes of this machine. Raises OSError where there is none of this kind."""
    if not name:
        raise OSError("no name")
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(abstract(name))
    sock.listen(BACKLOG)
    return sock
