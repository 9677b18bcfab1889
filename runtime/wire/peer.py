"""Sends and receives messages on one connection of the event loop, without blocking. If the other process does not
read, messages to it are queued, and other connections are not delayed.

`receive` is called only on the loop's thread, `on_end` on any thread that holds the loop's lock. Any thread may post.
"""

import contextlib
import selectors
import socket
import sys
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from pathways.dialect.activities import BYTES, Activity
from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.interrupts import uninterrupted
from pathways.runtime.monitor import Monitor
from pathways.runtime.states import PEER, Life
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.encoding import encode, frame_bytes, max_bytes
from pathways.runtime.wire.frames import (
    JOINED_BYTES,
    STREAM_ENDED,
    ConnectionEnded,
    FrameReader,
    Payload,
    Transport,
    end_reason,
    frame_of,
)
from pathways.runtime.wire.loop import Loop, do_safely

MAX_WRITTEN_BYTES = 1 << 20
"""Maximum bytes written to one peer before other peers are served."""
MAX_LAST_READS = 64
"""Maximum number of reads from a stream to which nothing can be written any more."""
ROOM_BYTES = 1 << 26
"""`wait_for_room` blocks while more than this many bytes are queued."""
ROOM_POLL_S = 0.2
"""Interval at which a thread that waits for room checks the queue size."""
Receive: TypeAlias = Callable[["Peer", int, Payload], None]
"""Handles a frame of a peer (kind and payload). If it raises, the peer is closed."""
OnEnd: TypeAlias = Callable[["Peer", str], None]
"""Called once with the reason when a stream has ended."""


def _beginning(data: bytes | memoryview) -> memoryview:
    return memoryview(data)[:MAX_WRITTEN_BYTES]


def _ignore(*_arguments: object) -> None:
    """Does nothing."""


class Peer:
    """Sends and receives messages on one stream of a loop."""

    __slots__ = (
        "_changed",
        "_failure",
        "_is_awaited",
        "_loop",
        "_posted",
        "_reader",
        "_size",
        "_transport",
        "_waiting",
        "is_known",
        "life",
        "max_unread_bytes",
        "on_end",
        "receive",
        "sent_no_message",
    )

    def __init__(self, loop: Loop, transport: Transport, reader: FrameReader | None = None) -> None:
        """`reader` holds bytes already read from the stream, and limits the frame sizes."""
        transport.setblocking(False)
        self._loop, self._transport = loop, transport
        self.receive: Receive = _ignore
        self.on_end: OnEnd = _ignore
        self._reader = reader or FrameReader(max_bytes)
        self._waiting: deque[bytes | memoryview] = deque()
        self._size = 0
        self._posted: deque[Sequence[bytes | memoryview]] = deque()
        """Frames that threads have posted or kept, in order, until the loop takes them."""
        self._changed = Monitor()
        """Notified when room is available, or when the stream has ended."""
        self._is_awaited = False
        """Whether a thread waits for room."""
        self.life = Life(PEER)
        self._failure = ""
        """Reason why nothing more can be sent, while the stream is still open for reading."""
        self.is_known = True
        """Whether malformed data is noted on stderr. False for a process not yet admitted, which could fill the log."""
        self.sent_no_message = False
        """Whether the stream ended because the other end sent malformed data."""
        self.max_unread_bytes: int | None = None
        """The peer is closed if it leaves more than this many bytes unread. None for no limit: senders wait instead."""

    def begin(self, receive: Receive, on_end: OnEnd) -> None:
        """Starts reading; any thread may call this. Nothing may be sent before. Both callbacks may be replaced."""
        self.receive, self.on_end = receive, on_end
        self._loop.selector.register(self._transport, selectors.EVENT_READ, self)
        self._loop.on_thread(self._take)

    @property
    def last_received(self) -> float:
        """Time of the last received bytes."""
        return self._reader.last_received

    @property
    def ended(self) -> bool:
        return self.life.state == "ended"

    @property
    def is_taken(self) -> bool:
        """Whether the other end has taken all sent data and the stream is open."""
        return not self._waiting and not self._failure and not self.ended

    @property
    def kept(self) -> int:
        """Counts the `keep` calls whose messages are not sent yet."""
        return len(self._posted)

    def post(self, *messages: m.Message) -> None:
        """Sends messages after the kept ones. Any thread may call this; it never waits. Raises ConnectionEnded."""
        self.post_pieces([data for message in messages for data in frame_of(*encode(message))])

    @uninterrupted  # otherwise Ctrl-C could leave a message that is never sent
    def post_pieces(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Sends the pieces of whole frames, like `post`. Raises ConnectionEnded."""
        self._check_open()
        self._posted.append(pieces)
        self._loop.call(self._send_posted)
        self._check_open()

    def keep(self, *messages: m.Message) -> None:
        """Keeps messages until the next `post` or `flush_kept`, so that one write sends all. Raises ConnectionEnded."""
        self._check_open()
        self._posted.append([data for message in messages for data in frame_of(*encode(message))])

    def _check_open(self) -> None:
        if self._failure or self.ended:
            raise ConnectionEnded(self._failure or STREAM_ENDED)

    def flush_kept(self) -> None:
        """Sends the kept messages. Raises ConnectionEnded."""
        if self._posted:
            self.post_pieces(())

    def wait_for_room(self) -> None:
        """Blocks while too many posted bytes are queued. Must not run on the loop's thread."""

        def has_room() -> bool:
            self._is_awaited = True
            return (self._size <= ROOM_BYTES and not self._posted) or self.ended

        if not has_room():
            with Activity("sending", max(1, self._size - ROOM_BYTES), BYTES) as sending:
                while not self._changed.wait_for(has_room, ROOM_POLL_S):
                    sending.done = max(0, sending.total + ROOM_BYTES - self._size)

    def close(self) -> None:
        """Closes the stream. Any thread may call this."""
        self._loop.on_thread(lambda: self.end("the connection was closed"))

    def send(self, message: m.Message) -> None:
        """Sends a message, like `write`."""
        self.write(*frame_of(*encode(message)))

    def pass_on(self, island: int, epoch: int, rank: int, outcome: m.Done | m.Failed) -> None:
        """Forwards to a client the completion of a run that a host has reported to the controller."""
        self.send(m.Relayed(island, epoch, rank, frame_bytes(outcome)))

    def write(self, *pieces: bytes | memoryview) -> None:
        """Queues bytes, which are written after the current callback: one write for many messages.

        The caller holds the lock of the loop.
        """
        if self.ended:
            return
        if not self._waiting:
            self._loop.written.append(self)
        self._queue(pieces)

    def _send_posted(self) -> None:
        """Sends the posted and kept messages. The caller holds the lock of the loop."""
        while self._posted:
            self._queue(self._posted.popleft())
        if self.life.state == "open":
            self.flush()

    def _queue(self, pieces: Sequence[bytes | memoryview]) -> None:
        if self._failure:
            return
        self._waiting.extend(pieces)
        self._size += sum(map(len, pieces))
        if self.max_unread_bytes is not None and self._size > self.max_unread_bytes:
            self._failure = reason = f"it has not read {self._size:,} bytes"
            self._loop.on_thread(lambda: self.end(reason))

    def flush(self) -> None:
        """Writes what the peer accepts now. The rest stays queued, and the loop watches the socket for room."""
        if self.ended or not self._waiting:
            return
        written = 0
        while self._waiting and written < MAX_WRITTEN_BYTES:  # the rest is written after other peers were served
            data = self._waiting[0] if len(self._waiting) == 1 else self._first_chunk()
            try:
                sent = self._transport.send(data if len(data) <= MAX_WRITTEN_BYTES else _beginning(data))
            except BlockingIOError:
                sent = 0
            except Exception as error:  # an OSError, or out of memory: part of a frame may have been sent
                self._fail(end_reason(error))
                return
            self._size -= sent
            written += sent
            if sent == len(data):
                self._waiting.popleft()
                continue
            self._waiting[0] = memoryview(data)[sent:]  # not a copy: the backlog may be large
            if sent < MAX_WRITTEN_BYTES:
                break
        is_full = bool(self._waiting)
        if is_full != (self.life.state == "full"):
            self.life.transition("fill" if is_full else "drain")
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if is_full else 0)
            self._loop.selector.modify(self._transport, events, self)
        if self._is_awaited and self._size <= ROOM_BYTES:
            self._is_awaited = False
            self._changed.notify_all()

    def _first_chunk(self) -> bytes | memoryview:
        """Joins the small pieces at the front of the queue, so that they are one write. Returns the first piece."""
        pieces: list[bytes | memoryview] = []
        size = 0
        while self._waiting and size + len(self._waiting[0]) <= JOINED_BYTES:
            pieces.append(self._waiting.popleft())
            size += len(pieces[-1])
        if pieces:
            self._waiting.appendleft(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        return self._waiting[0]

    def _fail(self, reason: str) -> None:
        """Ends the stream on the loop's thread: the calling thread may be using state that the end changes."""
        if not self._failure:
            self._failure = reason
            self._loop.on_thread(self._end_failed)

    def _end_failed(self) -> None:
        """Reads what the other end has sent, which may explain the failure, and then ends the stream."""
        for _ in range(MAX_LAST_READS):
            if self.ended or not self._read():
                break
        self.end(self._failure)

    def on_event(self, events: int) -> None:
        """Reads and writes as far as possible without waiting."""
        if events & selectors.EVENT_WRITE:
            self.flush()
        if events & selectors.EVENT_READ and not self.ended:
            self._read()

    def _read(self) -> bool:
        """Reads the bytes that have arrived. Returns False if there are none."""
        try:
            self._reader.read(self._transport)
        except BlockingIOError:
            return False
        except ConnectionEnded as error:
            self.end(str(error))
            return False
        self._take()
        return True

    def _take(self) -> None:
        """Passes the complete frames to `receive`."""
        if self.ended:
            return
        try:
            for kind, payload in self._reader.frames():
                self.receive(self, kind, payload)
                if self.ended:
                    return
        except Exception as error:  # after any error the rest of the stream cannot be interpreted
            if not self.is_known:
                pass
            elif isinstance(error, PathwaysError | ValueError):
                print(f"note: disconnecting a process that sent invalid data: {error}", file=sys.stderr, flush=True)
            else:
                traceback.print_exc()
            self.sent_no_message = True
            self.end(str(error))

    def end(self, reason: str) -> None:
        """Closes the stream, which the other end notices at once. The caller holds the lock of the loop."""
        if self.ended:
            return
        self.life.transition("end")
        with contextlib.suppress(OSError):
            while self._waiting and self._transport.send(data := self._first_chunk()) == len(data):
                self._waiting.popleft()  # for example, the reason of the end
        with contextlib.suppress(KeyError, ValueError):
            self._loop.selector.unregister(self._transport)
        with contextlib.suppress(OSError):
            self._transport.shutdown(socket.SHUT_RDWR)
        self._transport.close()
        self._waiting.clear()
        self._posted.clear()
        self._size = 0
        self._changed.notify_all()
        do_safely(lambda: self.on_end(self, reason))
