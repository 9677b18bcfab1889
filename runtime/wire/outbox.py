"""What is sent on a stream without waiting for its other end: the stream takes it at once, or a thread sends it.

One that sends may hold the turn of several hosts: it must not wait for one of them that is frozen. That what waits does
not grow without bound is seen to before, by `wait_for_room`, which holds nothing.
"""

import threading
from collections import deque
from collections.abc import Sequence

from pathways.dialect.activities import BYTES, Activity
from pathways.runtime.interrupts import uninterrupted
from pathways.runtime.threads import started
from pathways.runtime.wire.frames import ByteStream, ConnectionEnded, in_one, send_all, send_now

MOST_WAITING = 1 << 26
"""Bytes that wait to be sent above which `wait_for_room` waits."""


class Outbox:
    """The frames of a stream that were not taken yet, in order; the thread that sends them is there from the first."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._waiting: deque[bytes | memoryview] = deque()
        self._size = 0
        self._kept: list[bytes | memoryview] = []
        """What goes with the next that is sent."""
        self._ended = ""
        """Why nothing can be sent any more."""
        self._changed = threading.Condition()
        """Guards those, and what is written while nothing waits; never held while the other end is waited for."""
        self._thread: threading.Thread | None = None

    @uninterrupted  # half a frame would make what follows it another
    def post(self, frame: Sequence[bytes | memoryview]) -> None:
        """Sends a frame, behind those before it. Raises ConnectionEnded where the stream has ended."""
        with self._changed:
            if self._ended:
                raise ConnectionEnded(self._ended)
            if self._kept:
                frame = in_one([*self._kept, *frame])
                self._kept.clear()
            for data in frame:
                rest = data if self._waiting else send_now(self._stream, data)
                if rest:
                    self._waiting.append(rest)
                    self._size += len(rest)
            if self._waiting:
                self._changed.notify_all()
                if self._thread is None:
                    self._begin()

    def keep(self, frame: Sequence[bytes | memoryview]) -> None:
        """Keeps a frame until the next is posted, or `flush`: one write for both. Raises as `post`."""
        with self._changed:
            if self._ended:
                raise ConnectionEnded(self._ended)
            self._kept += frame

    @property
    def is_empty(self) -> bool:
        """Whether the stream has taken everything, and has not ended."""
        return not self._waiting and not self._ended

    @property
    def kept(self) -> int:
        """How many pieces are kept."""
        return len(self._kept)

    def flush(self) -> None:
        """Sends what was kept. Raises as `post`."""
        if self._kept:
            self.post(())

    def _begin(self) -> None:
        """Starts the thread; where none can be started, sends what waits here."""
        thread = threading.Thread(target=self._send, name="pathways-outbox", daemon=True)
        if started(thread):
            self._thread = thread
            return
        while self._waiting:
            send_all(self._stream, self._waiting[0])
            self._size -= len(self._waiting.popleft())

    def wait_for_room(self) -> None:
        """Waits while too much waits to be sent, and the stream has not ended."""
        if self._size > MOST_WAITING:
            with self._changed, Activity("sending to a host", self._size - MOST_WAITING, BYTES) as sending:
                while self._size > MOST_WAITING and not self._ended:
                    sending.done = max(0, sending.total + MOST_WAITING - self._size)
                    self._changed.wait()

    def wait_until_sent(self, seconds: float) -> None:
        """Waits until nothing waits to be sent, or the stream has ended, for so many seconds at the most."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting or bool(self._ended), seconds)

    def close(self) -> None:
        """Drops what was not sent: the stream has ended."""
        self._end("it was closed")

    def _end(self, why: str) -> None:
        with self._changed:
            self._ended = self._ended or why
            self._waiting.clear()
            self._kept.clear()
            self._size = 0
            self._changed.notify_all()

    def _send(self) -> None:
        """Sends what waits, one after another, until the stream ends; who reads hears of that, too."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting or self._ended))
                if self._ended:
                    return
                data = self._waiting[0]
            try:
                send_all(self._stream, data)
            except ConnectionEnded as error:
                self._end(str(error))
                return
            with self._changed:
                if not self._ended:
                    self._waiting.popleft()
                    self._size -= len(data)
                    self._changed.notify_all()
