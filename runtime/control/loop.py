"""The event loop of a controller: sockets that are never waited for, and timers.

Nothing here waits but `Loop.run`, for the first of all sockets and timers; what is sent to a peer that
does not read waits here, up to a limit, and holds up no other. Where a client has the controller in its own process,
its threads do their events themselves (`Loop.call`): to wake the thread of the loop takes longer than a small run.
"""

import contextlib
import errno
import heapq
import itertools
import math
import selectors
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias, cast

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.interrupts import uninterrupted
from pathways.runtime.states import PEER, Life
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.encoding import encode, frame_bytes, most_bytes
from pathways.runtime.wire.frames import HEADER, frame_of

READ = 1 << 16
"""The most bytes that are read of a socket before others are looked at: room for four times as many takes 13 us more to
make, whatever comes, since the system gives it page by page."""
MOST_UNREAD = 1 << 26
"""Bytes that a peer does not take above which it is given up."""
MOST_UNREAD_BY_HOST = 1 << 30
"""The same for a host: the queues of many clients may be sent to it at once."""
MAX_WRITTEN_BYTES = 1 << 20
"""The most bytes that are written to a peer before others have their turn."""
JOINED_BYTES = 1 << 16
"""Pieces of a backlog are joined to one write until they have this size."""
MOST_FRAME = 1 << 26
"""The most bytes of any message to a controller: data do not come here."""
MAX_CONNECTING = 1024
"""The most processes that may wait to be accepted."""
ACCEPT_PAUSE_S = 0.2
"""Seconds for which accepting pauses when the system has no room for another socket."""
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
Receive: TypeAlias = Callable[["Peer", int, bytes], None]
"""What is done with a frame of a peer: its kind, and its payload. It may raise: the peer ends."""


class Transport(Protocol):
    """What carries the bytes of a peer, and is never waited for: a socket, or one under TLS (wire/tls_socket.py)."""

    def fileno(self) -> int: ...

    def setblocking(self, flag: bool, /) -> None: ...

    def send(self, data: bytes | memoryview, /) -> int: ...

    def recv(self, size: int, /) -> bytes: ...

    def shutdown(self, how: int, /) -> None: ...

    def close(self) -> None: ...


class Peer:
    """A stream of a loop, which carries frames."""

    __slots__ = (
        "_buffer",
        "_loop",
        "_size",
        "_socket",
        "_waiting",
        "heard",
        "life",
        "most_unread",
        "on_end",
        "receive",
    )

    def __init__(self, loop: "Loop", sock: Transport, receive: Receive, on_end: "Callable[[Peer, str], None]"):
        """`receive` and `on_end`, which hears why the stream has ended, once, may be replaced."""
        sock.setblocking(False)
        self._loop, self._socket = loop, sock
        self.receive: Receive = receive
        self.on_end: Callable[[Peer, str], None] = on_end
        self._buffer = bytearray()
        self._waiting: deque[bytes | memoryview] = deque()
        self._size = 0
        self.life = Life(PEER)
        self.most_unread = MOST_UNREAD
        self.heard = time.monotonic()
        """When bytes last came."""
        loop.selector.register(sock, selectors.EVENT_READ, self)

    @property
    def ended(self) -> bool:
        return self.life.state == "ended"

    def post(self, data: bytes) -> None:
        """Sends bytes, behind those before them, when what is being done is done: one write for many messages."""
        if self.ended:
            return
        if not self._waiting:
            self._loop.written.append(self)
        self._waiting.append(data)
        self._size += len(data)

    def send(self, message: m.Message) -> None:
        """Sends a message, as `post`."""
        for data in frame_of(*encode(message)):
            self.post(bytes(data))

    def pass_on(self, island: int, epoch: int, rank: int, said: m.Done | m.Failed) -> None:
        """Tells a client what a host has said to the controller."""
        self.send(m.Relayed(island, epoch, rank, frame_bytes(said)))

    def flush(self) -> None:
        """Writes what the peer takes now; the rest waits here, and its socket is looked at."""
        if self.ended or not self._waiting:
            return
        written = 0
        while self._waiting and written < MAX_WRITTEN_BYTES:  # the rest when others had their turn
            data = self._first_chunk()
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self.end(str(error))
                return
            self._size -= sent
            written += sent
            if sent < len(data):
                self._waiting[0] = memoryview(data)[sent:]  # not a copy: the backlog may be large
                break
            self._waiting.popleft()
        is_full = bool(self._waiting)
        if is_full != (self.life.state == "full"):
            self.life.turn("fill" if is_full else "drain")
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if is_full else 0)
            self._loop.selector.modify(self._socket, events, self)
        if self._size > self.most_unread:
            self.end(f"it has not taken {self._size:,} bytes")

    def _first_chunk(self) -> bytes | memoryview:
        """Joins the small pieces at the front of the backlog, so that they are one write; returns the first piece."""
        pieces: list[bytes | memoryview] = []
        size = 0
        while self._waiting and size < JOINED_BYTES:
            pieces.append(self._waiting.popleft())
            size += len(pieces[-1])
        first = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._waiting.appendleft(first)
        return first

    def look(self, events: int) -> None:
        """Reads and writes what can be read and written now."""
        if events & selectors.EVENT_WRITE:
            self.flush()
        if events & selectors.EVENT_READ and not self.ended:
            self._read()

    def _read(self) -> None:
        try:
            data = self._socket.recv(READ)
        except BlockingIOError:
            return
        except OSError as error:
            self.end(str(error))
            return
        if not data:
            self.end("the stream has ended")
            return
        self.heard = time.monotonic()
        self._buffer += data
        try:
            self._take()
        except Exception as error:  # whatever it sent, nothing more can be made of it
            if isinstance(error, PathwaysError | ValueError):
                print(f"note: a process is given up, for what it sent: {error}", file=sys.stderr, flush=True)
            else:
                traceback.print_exc()
            self.end(str(error))

    def _take(self) -> None:
        """Takes the whole frames of what was read."""
        buffer, at = self._buffer, 0
        while len(buffer) - at >= HEADER.size:
            size, kind = HEADER.unpack_from(buffer, at)
            if size > min(MOST_FRAME, most_bytes(kind)):
                raise ValueError(f"a message of kind {kind} of {size:,} bytes")
            end = at + HEADER.size + size
            if len(buffer) < end:
                break
            payload = bytes(memoryview(buffer)[at + HEADER.size : end])
            at = end
            self.receive(self, kind, payload)
            if self.ended:
                return
        if at:
            del buffer[:at]

    def end(self, reason: str) -> None:
        """Ends the stream; the other end sees it at once."""
        if self.ended:
            return
        self.life.turn("end")
        with contextlib.suppress(OSError):
            self._socket.send(b"".join(self._waiting))  # why it ends, say
        with contextlib.suppress(KeyError, ValueError):
            self._loop.selector.unregister(self._socket)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._waiting.clear()
        _do(lambda: self.on_end(self, reason))


class Loop:
    """Runs callbacks of sockets and timers one at a time, under the loop's lock, on any thread."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._soon: deque[Callable[[], None]] = deque()
        self.written: list[Peer] = []
        """Peers to which something was posted that is not written yet."""
        self._ended = self._is_closed = False
        self._lock = threading.Lock()
        self._waits_until = 0.0
        """The time of the timer for which `run` waits; infinity where there is none."""
        self._woken, self._wake = socket.socketpair()
        self._woken.setblocking(False)
        self.selector.register(self._woken, selectors.EVENT_READ, _Socket(lambda _: self._drain()))

    @uninterrupted
    def call(self, work: Callable[[], None]) -> None:
        """Does something now if the loop's lock is free; else the thread that holds the lock does it next."""
        self._soon.append(work)
        while self._soon and self._lock.acquire(blocking=False):
            try:
                self._do_soon()
                is_late = bool(self._timers) and self._timers[0][0] < self._waits_until
            finally:
                self._lock.release()
            if is_late or self._ended:
                with contextlib.suppress(OSError):  # it was closed meanwhile
                    self._wake.send(b"\0")

    def interrupt(self, work: Callable[[], None]) -> None:
        """Does something soon: for signals, which come in the middle of anything."""
        self._soon.append(work)
        self._wake.send(b"\0")

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(READ)

    def listen(self, sock: socket.socket, accepted: Callable[[socket.socket], None]) -> None:
        """Calls `accepted` with each that connects."""
        sock.setblocking(False)

        def look(_: int) -> None:
            try:
                found = sock.accept()[0]
            except OSError as error:
                if error.errno in _FULL:  # or the loop would come here again and again
                    self.selector.unregister(sock)
                    self.after(ACCEPT_PAUSE_S, again)
                return
            accepted(found)

        def again() -> None:
            if sock.fileno() >= 0:
                self.selector.register(sock, selectors.EVENT_READ, _Socket(look))

        again()

    def watch(self, sock: socket.socket, look: Callable[[], None]) -> None:
        """Calls `look` whenever something can be read of a socket, until `unwatch`."""
        self.selector.register(sock, selectors.EVENT_READ, _Socket(lambda _: look()))

    def unwatch(self, sock: socket.socket) -> None:
        self.selector.unregister(sock)

    def after(self, seconds: float, work: Callable[[], None]) -> None:
        """Does something later, once."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), work))

    def every(self, seconds: float, work: Callable[[], None]) -> None:
        """Does something again and again."""

        def again() -> None:
            self.after(seconds, again)
            work()

        self.after(seconds, again)

    def soon(self, work: Callable[[], None]) -> None:
        """Does something when what is being done is done."""
        self._soon.append(work)

    def run(self) -> None:
        """Does what there is to do until `end`."""
        while not self._ended:
            with self._lock:
                now = time.monotonic()
                while self._timers and self._timers[0][0] <= now:
                    _do(heapq.heappop(self._timers)[2])
                self._do_soon()
                self._waits_until = self._timers[0][0] if self._timers else math.inf
            if self._soon or self._ended:
                continue
            found = self.selector.select(None if self._waits_until == math.inf else max(0.0, self._waits_until - now))
            with self._lock:
                for key, events in found:
                    _do(lambda key=key, events=events: key.data.look(events))

    def _do_soon(self) -> None:
        """Does all that is to be done soon, and writes what was posted to peers; the caller has the lock."""
        while self._soon or self.written:
            while self._soon:
                _do(self._soon.popleft())
            written, self.written = self.written, []
            for peer in written:
                peer.flush()

    def end(self) -> None:
        self._ended = True

    def abandon(self) -> None:
        """Gives back what a forked process has of it, which goes on where it was made.

        The sockets are only closed: to take them out of the selector would take them out of the other process's, too.
        """
        if self._is_closed:
            return
        for key in list(self.selector.get_map().values()):
            cast("socket.socket", key.fileobj).close()
        self.selector.close()
        self._wake.close()

    def close(self) -> None:
        """Gives back what it has of the system, when it has ended."""
        self._is_closed = True
        for key in list(self.selector.get_map().values()):
            if isinstance(key.data, Peer):
                key.data.end("the loop has ended")
        self.selector.close()
        self._woken.close()
        self._wake.close()


def _do(work: Callable[[], None]) -> None:
    """Does something; a bug there must not end all that others have here."""
    try:
        work()
    except Exception:
        traceback.print_exc()


class _Socket:
    """A socket that is no peer: what is done when there is something to read."""

    def __init__(self, look: Callable[[int], None]) -> None:
        self.look = look
