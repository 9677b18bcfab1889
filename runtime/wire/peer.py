"""Streams of a loop: what is sent to one waits there while its other end does not read, and holds up no other stream.

`receive` is called on the loop's thread alone, `on_end` by whatever thread has the loop's lock; any thread may post.
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
from pathways.runtime.wire.encoding import encode, frame_bytes, most_bytes
from pathways.runtime.wire.frames import JOINED_BYTES, ConnectionEnded, FrameReader, Transport, frame_of
from pathways.runtime.wire.loop import Loop, do_safely

MAX_WRITTEN_BYTES = 1 << 20
"""The most bytes that are written to a peer before others have their turn."""
MAX_LAST_READS = 64
"""The most reads of a stream that nothing can be written to any more."""
ROOM_BYTES = 1 << 26
"""Bytes that wait to be sent above which `wait_for_room` waits."""
ROOM_POLL_S = 0.2
"""Seconds between two looks at how much has been taken, while a thread waits for room."""
Receive: TypeAlias = Callable[["Peer", int, bytes | bytearray], None]
"""What is done with a frame of a peer: its kind, and its payload. It may raise: the peer ends."""
OnEnd: TypeAlias = Callable[["Peer", str], None]
"""Hears why a stream has ended, once."""


def _beginning(data: bytes | memoryview) -> memoryview:
    return memoryview(data)[:MAX_WRITTEN_BYTES]


def _ignore(*said: object) -> None:
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
        """`reader` has what was read of the stream before, and limits the frames."""
        transport.setblocking(False)
        self._loop, self._transport = loop, transport
        self.receive: Receive = _ignore
        self.on_end: OnEnd = _ignore
        self._reader = reader or FrameReader(most_bytes)
        self._waiting: deque[bytes | memoryview] = deque()
        self._size = 0
        self._posted: deque[Sequence[bytes | memoryview]] = deque()
        """What threads have posted or kept, in order, until the loop takes it."""
        self._changed = Monitor()
        """Notified when room was made, or the stream has ended."""
        self._is_awaited = False
        """Whether a thread waits for room."""
        self.life = Life(PEER)
        self._failure = ""
        """Why nothing can be sent any more, before the stream has ended."""
        self.is_known = True
        """Whether malformed data is noted on stderr; False for a process that is not let in, which could fill a log."""
        self.sent_no_message = False
        """Whether the stream has ended because of what the other end has sent."""
        self.max_unread_bytes: int | None = None
        """Bytes that the peer does not take above which it is given up; None for no limit: those who post wait."""

    def begin(self, receive: Receive, on_end: OnEnd) -> None:
        """Begins to read, from any thread; before, nothing may be sent. Both functions may be replaced."""
        self.receive, self.on_end = receive, on_end
        self._loop.selector.register(self._transport, selectors.EVENT_READ, self)
        self._loop.on_thread(self._take)

    @property
    def heard(self) -> float:
        """When bytes last came."""
        return self._reader.heard

    @property
    def ended(self) -> bool:
        return self.life.state == "ended"

    @property
    def is_taken(self) -> bool:
        """Whether the other end has taken all that was sent, and the stream has not ended."""
        return not self._waiting and not self._failure and not self.ended

    @property
    def kept(self) -> int:
        """Counts what `keep` was given and that was not sent."""
        return len(self._posted)

    def post(self, *messages: m.Message) -> None:
        """Sends messages, behind those that are kept, from any thread; never waits. Raises ConnectionEnded."""
        self.post_pieces([data for message in messages for data in frame_of(*encode(message))])

    @uninterrupted  # else Ctrl-C could leave a message that nothing sends
    def post_pieces(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Sends the pieces of whole frames, as `post`. Raises ConnectionEnded."""
        self._check_open()
        self._posted.append(pieces)
        self._loop.call(self._send_posted)
        self._check_open()

    def keep(self, *messages: m.Message) -> None:
        """Keeps messages until the next are posted, or `flush_kept`: one write for all. Raises ConnectionEnded."""
        self._check_open()
        self._posted.append([data for message in messages for data in frame_of(*encode(message))])

    def _check_open(self) -> None:
        if self._failure or self.ended:
            raise ConnectionEnded(self._failure or "the stream has ended")

    def flush_kept(self) -> None:
        """Sends what was kept. Raises ConnectionEnded."""
        if self._posted:
            self.post_pieces(())

    def wait_for_room(self) -> None:
        """Waits while much that was posted has not been taken; never on the loop's thread."""

        def has_room() -> bool:
            self._is_awaited = True
            return (self._size <= ROOM_BYTES and not self._posted) or self.ended

        if not has_room():
            with Activity("sending", max(1, self._size - ROOM_BYTES), BYTES) as sending:
                while not self._changed.wait_for(has_room, ROOM_POLL_S):
                    sending.done = max(0, sending.total + ROOM_BYTES - self._size)

    def close(self) -> None:
        """Ends the stream, from any thread."""
        self._loop.on_thread(lambda: self.end("it was closed"))

    def send(self, message: m.Message) -> None:
        """Sends a message, as `write`."""
        for data in frame_of(*encode(message)):
            self.write(data)

    def pass_on(self, island: int, epoch: int, rank: int, said: m.Done | m.Failed) -> None:
        """Tells a client what a host has said to the controller."""
        self.send(m.Relayed(island, epoch, rank, frame_bytes(said)))

    def write(self, data: bytes | memoryview) -> None:
        """Sends bytes, behind those before them, when what is being done is done: one write for many messages.

        The caller has the lock of the loop.
        """
        if self.ended:
            return
        if not self._waiting:
            self._loop.written.append(self)
        self._queue((data,))

    def _send_posted(self) -> None:
        """Sends what threads have posted and kept; the caller has the lock of the loop."""
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
            self._failure = reason = f"it has not taken {self._size:,} bytes"
            self._loop.on_thread(lambda: self.end(reason))

    def flush(self) -> None:
        """Writes what the peer takes now; the rest waits here, and its socket is looked at."""
        if self.ended or not self._waiting:
            return
        written = 0
        while self._waiting and written < MAX_WRITTEN_BYTES:  # the rest when others had their turn
            data = self._waiting[0] if len(self._waiting) == 1 else self._first_chunk()
            try:
                sent = self._transport.send(data if len(data) <= MAX_WRITTEN_BYTES else _beginning(data))
            except BlockingIOError:
                sent = 0
            except Exception as error:  # an OSError, or no memory: a part of a frame may have been sent
                self._fail(str(error))
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
            self.life.turn("fill" if is_full else "drain")
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if is_full else 0)
            self._loop.selector.modify(self._transport, events, self)
        if self._is_awaited and self._size <= ROOM_BYTES:
            self._is_awaited = False
            self._changed.notify_all()

    def _first_chunk(self) -> bytes | memoryview:
        """Joins the small pieces at the front of the backlog, so that they are one write; returns the first piece."""
        pieces: list[bytes | memoryview] = []
        size = 0
        while self._waiting and size + len(self._waiting[0]) <= JOINED_BYTES:
            pieces.append(self._waiting.popleft())
            size += len(pieces[-1])
        if pieces:
            self._waiting.appendleft(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        return self._waiting[0]

    def _fail(self, reason: str) -> None:
        """Ends the stream, on the thread of the loop: another may be inside of anything that the end changes."""
        if not self._failure:
            self._failure = reason
            self._loop.on_thread(self._end_failed)

    def _end_failed(self) -> None:
        """Takes what the other end has said, which may be why it has ended the stream; then ends it."""
        for _ in range(MAX_LAST_READS):
            if self.ended or not self._read():
                break
        self.end(self._failure)

    def look(self, events: int) -> None:
        """Reads and writes what can be read and written now."""
        if events & selectors.EVENT_WRITE:
            self.flush()
        if events & selectors.EVENT_READ and not self.ended:
            self._read()

    def _read(self) -> bool:
        """Takes what has come; returns False where nothing has."""
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
        """Takes the whole frames of what was read."""
        if self.ended:
            return
        try:
            for kind, payload in self._reader.frames():
                self.receive(self, kind, payload)
                if self.ended:
                    return
        except Exception as error:  # whatever it sent, nothing more can be made of it
            if not self.is_known:
                pass
            elif isinstance(error, PathwaysError | ValueError):
                print(f"note: a process is given up, for what it sent: {error}", file=sys.stderr, flush=True)
            else:
                traceback.print_exc()
            self.sent_no_message = True
            self.end(str(error))

    def end(self, reason: str) -> None:
        """Ends the stream, for a caller that has the lock of the loop; the other end sees it at once."""
        if self.ended:
            return
        self.life.turn("end")
        with contextlib.suppress(OSError):
            while self._waiting and self._transport.send(data := self._first_chunk()) == len(data):
                self._waiting.popleft()  # why it ends, say
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
