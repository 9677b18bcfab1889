"""Sends small values to other host processes over a socket as soon as they are computed, without waiting for a request.
`inbox.py` receives them there. `link.py` creates the sending end for each other host.
"""

import contextlib
import hmac
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Sequence

from pathways.runtime.host.between.inbox import (
    CONNECT_TIMEOUT_S,
    FAILURE,
    HELLO,
    KEY_AND_TIME,
    KEY_BYTES,
    MAX_FAILURE_BYTES,
    NUMBER,
    READY,
    VALUE,
    WHERE,
    EagerAddress,
    abstract,
)
from pathways.runtime.threads import started
from pathways.runtime.wire.addresses import BACKLOG, listening_at, show_address, undelayed
from pathways.runtime.wire.frames import ConnectionEnded, FrameReader, Payload, frame_of
from pathways.runtime.wire.loop import Loop
from pathways.runtime.wire.peer import Peer

MAX_STRANGERS = 64
"""Maximum number of connections that have not shown a key. For one more, the oldest is dropped."""


class EagerServer:
    """Listens for the hosts that receive values of this host."""

    def __init__(self, ip: str, loop: Loop) -> None:
        self._loop = loop
        self._outboxes: dict[str, Outbox] = {}
        self._strangers: dict[Peer, None] = {}
        """Connections that have not shown a key, the oldest first."""
        listener = listening_at((ip, 0))
        self._address = show_address(listener.getsockname())
        loop.listen(listener, self._accept)
        self._name = f"pathways-{secrets.token_hex(KEY_BYTES)}" if sys.platform == "linux" else ""
        try:
            loop.listen(_near(self._name), self._accept)
        except OSError:  # the system has no such sockets
            self._name = ""

    def outbox(self) -> "Outbox":
        """Makes the outbox for one more host, with a key of its own."""
        key = secrets.token_hex(KEY_BYTES)
        eager_address = EagerAddress(self._address, self._name, key)
        outbox = self._outboxes[key] = Outbox(eager_address, lambda: self._outboxes.pop(key, None))
        return outbox

    def _accept(self, sock: socket.socket) -> None:
        undelayed(sock)
        peer = Peer(self._loop, sock, FrameReader(_max_bytes))
        peer.is_known = False
        self._strangers[peer] = None
        peer.begin(self._handle_first, self._leave)
        self._loop.after(CONNECT_TIMEOUT_S, lambda: self._drop(peer))
        if len(self._strangers) > MAX_STRANGERS:
            self._drop(next(iter(self._strangers)))

    def _leave(self, peer: Peer, reason: str) -> None:
        self._strangers.pop(peer, None)

    def _drop(self, peer: Peer) -> None:
        if peer in self._strangers:
            peer.end("it has not sent its key")

    def _handle_first(self, peer: Peer, kind: int, payload: Payload) -> None:
        """Assigns a stream to the outbox whose key it shows; ends a stream without such a key."""
        if kind != HELLO or len(payload) != KEY_AND_TIME.size or peer not in self._strangers:
            peer.end("it has sent no valid key")
            return
        key, number = KEY_AND_TIME.unpack(payload)
        outbox = next((w for k, w in list(self._outboxes.items()) if hmac.compare_digest(k.encode(), key)), None)
        if outbox is None:
            peer.end("its key is unknown")
            return
        del self._strangers[peer]
        connecting = threading.Thread(target=outbox.take, args=(peer, number), name="pathways-meet", daemon=True)
        if not started(connecting):  # it may ask JAX's transfer server for its address: not on the loop's thread
            peer.end("no thread could be started")


def _max_bytes(kind: int) -> int:
    return KEY_AND_TIME.size if kind == HELLO else -1


class Outbox:
    """The values for one other host, sent when that host has connected. Values sent after `close` are dropped."""

    def __init__(self, eager_address: EagerAddress, ended: Callable[[], object]) -> None:
        self.eager_address = eager_address
        self._ended = ended
        self.anew = 0
        """Number of times that the controller has made the two hosts reconnect: their reconnect count."""
        self._peer: Peer | None = None
        """The stream in use."""
        self._peers: dict[int, Peer] = {}
        """By reconnect count: the stream in use, and any of a receiver that was notified of a reconnection first."""
        self._waiting: list[Sequence[bytes | memoryview]] = []
        self._where: dict[int, Callable[[], str]] = {}
        """By transport: returns its address; called for each stream."""
        self._is_over = False
        self._lock = threading.Lock()
        """Guards the fields above. No thread waits for the other host while holding it."""

    def send(self, number: int, data: bytes, kind: int = VALUE, *, anew: int = -1) -> None:
        """Sends a value. With `anew`, drops the value if the reconnect count is no longer that.

        A value that is sent while its stream breaks is lost; the receiver reports that (`PATHWAYS_TRANSFER_TIMEOUT`).
        """
        frame = frame_of(kind, NUMBER.pack(number), data)
        with self._lock:
            if anew not in (-1, self.anew):
                return
            if self._peer is not None:
                with contextlib.suppress(ConnectionEnded):  # the other host detects this, too, and reconnects
                    self._peer.post_pieces(frame)
                    return
            if not self._is_over:
                self._waiting.append(frame)

    def fail(self, number: int, why: str, *, anew: int = -1) -> None:
        """Sends a failure in place of a value. `anew` is as for `send`."""
        self.send(number, why.encode(errors="replace")[:MAX_FAILURE_BYTES], FAILURE, anew=anew)

    def publish_address(self, transport: int, address: Callable[[], str]) -> None:
        """Sends the address of a transport, now and on each new stream."""
        with self._lock:
            self._where[transport] = address
            with contextlib.suppress(ConnectionEnded):  # as above
                self._post_where(transport)

    def _post_where(self, transport: int) -> None:
        if self._peer is not None and (address := self._where[transport]()):
            self._peer.post_pieces(frame_of(WHERE, NUMBER.pack(transport), address.encode()))

    def take(self, peer: Peer, anew: int) -> None:
        """Takes a stream of the other host, in place of an earlier stream with the same reconnect count."""
        with self._lock:
            if self._is_over or anew < self.anew:
                peer.close()
                return
            self._drop(anew)
            self._peers[anew] = peer
            if anew == self.anew:
                self._begin(peer)

    def begin_anew(self, anew: int) -> None:
        """Drops all waiting values, and continues with the stream of this reconnect count, if it is connected yet."""
        with self._lock:
            self._waiting.clear()
            for before in [n for n in self._peers if n < anew]:
                self._drop(before)
            self.anew = anew
            if anew in self._peers and self._peer is None:
                self._begin(self._peers[anew])

    def close(self) -> None:
        """Drops all values and streams: the other host is lost."""
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
    """Makes a socket that listens for processes of this machine. Raises OSError if the system has none of this kind."""
    if not name:
        raise OSError("no name")
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(abstract(name))
    sock.listen(BACKLOG)
    return sock
