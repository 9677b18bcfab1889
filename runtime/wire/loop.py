"""Runs the event loop of a process: handles all of its sockets and timers on one thread. Controllers, hosts and clients
each have one.

Only `Loop.run` waits, for the first of all sockets and timers. Other threads send messages themselves, and also process
events of an in-process controller (`Loop.call`). Waking the loop's thread takes longer than a small run.
"""

import contextlib
import errno
import heapq
import itertools
import math
import selectors
import socket
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from pathways.runtime.interrupts import uninterrupted
from pathways.runtime.threads import start_thread

_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
ACCEPT_PAUSE_S = 0.2
"""Pause of accepting if the system has no room for another socket."""
WOKEN_BYTES = 1 << 12
"""Maximum bytes per read of the socket that wakes the loop."""


class Written(Protocol):
    """A stream with data to write (`peer.py`)."""

    def flush(self) -> None:
        """Writes as much as the stream accepts now."""
        ...


class Loop:
    """Runs callbacks of sockets and timers one at a time, under the loop's lock, on any thread."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._soon: deque[Callable[[], None]] = deque()
        self._on_thread: deque[Callable[[], None]] = deque()
        self.written: list[Written] = []
        """Streams with posted data that is not written yet."""
        self._ended = self._is_closed = False
        self.over = threading.Event()
        """Set when the thread of `start` and all its streams have ended."""
        self._lock = threading.Lock()
        self._waits_until = 0.0
        """Time of the timer for which `run` waits; infinity if there is none."""
        self._woken, self._wake = socket.socketpair()
        self._woken.setblocking(False)
        self._wake.setblocking(False)
        self.selector.register(self._woken, selectors.EVENT_READ, _Socket(self._woken, lambda _: self._drain()))

    @uninterrupted
    def call(self, work: Callable[[], None]) -> None:
        """Calls `work` now if the lock of the loop is free; else the thread that holds the lock calls it next."""
        self._soon.append(work)
        while self._soon and self._lock.acquire(blocking=False):
            try:
                self._do_soon()
                is_late = bool(self._timers) and self._timers[0][0] < self._waits_until
            finally:
                self._lock.release()
            if is_late or self._ended:
                with contextlib.suppress(OSError):  # the loop was closed meanwhile
                    self._wake.send(b"\0")

    def on_thread(self, work: Callable[[], None]) -> None:
        """Makes the thread of the loop call `work` soon. Any thread or signal handler may call this."""
        self._on_thread.append(work)
        with contextlib.suppress(OSError):  # the socket is full, so the loop wakes anyway; or the loop was closed
            self._wake.send(b"\0")

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(WOKEN_BYTES)

    def listen(self, sock: socket.socket, accepted: Callable[[socket.socket], None]) -> None:
        """Calls `accepted` with the socket of each new connection. The listening socket is closed with the loop."""
        sock.setblocking(False)

        def on_event(_: int) -> None:
            try:
                found = sock.accept()[0]
            except OSError as error:
                if error.errno in _FULL:  # otherwise the loop would return here immediately, forever
                    self.selector.unregister(sock)
                    self.after(ACCEPT_PAUSE_S, again)
                return
            accepted(found)

        def again() -> None:
            if sock.fileno() >= 0:
                self.selector.register(sock, selectors.EVENT_READ, _Socket(sock, on_event))

        again()

    def watch(self, sock: socket.socket, on_event: Callable[[], None]) -> None:
        """Calls `look` whenever a socket is readable, until `unwatch`."""
        self.selector.register(sock, selectors.EVENT_READ, _Socket(sock, lambda _: on_event()))

    def unwatch(self, sock: socket.socket) -> None:
        self.selector.unregister(sock)

    def after(self, seconds: float, work: Callable[[], None]) -> None:
        """Calls `work` once after a delay."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), work))

    def every(self, seconds: float, work: Callable[[], None]) -> None:
        """Calls `work` at every interval."""

        def again() -> None:
            self.after(seconds, again)
            work()

        self.after(seconds, again)

    def soon(self, work: Callable[[], None]) -> None:
        """Calls `work` after the current callback."""
        self._soon.append(work)

    def start(self) -> None:
        """Runs the loop in a thread until `end`; then all streams end. Raises PWC0521 if no thread can be started."""
        start_thread("pathways-loop", self._run_and_close)

    def _run_and_close(self) -> None:
        try:
            self.run()
        finally:
            with self._lock:
                self.close()
            self.over.set()

    def run(self) -> None:
        """Runs callbacks until `end`."""
        found: list[tuple[selectors.SelectorKey, int]] = []
        while not self._ended:
            with self._lock:
                for key, events in found:
                    try:
                        key.data.on_event(events)
                    except Exception:  # a bug in one callback must not stop the others
                        traceback.print_exc()
                now = time.monotonic()
                if self._on_thread or (self._timers and self._timers[0][0] <= now):
                    self._do_on_thread(now)
                if self._soon or self.written:
                    self._do_soon()
                self._waits_until = self._timers[0][0] if self._timers else math.inf
            wait = self._waits_until - time.monotonic()
            if self._soon or self._on_thread or self._ended or wait < 0:
                wait = 0.0  # from here on, wait as briefly as possible: other threads wait for the GIL
            found = self.selector.select(None if wait == math.inf else wait)

    def _do_on_thread(self, now: float) -> None:
        """Calls due timers and the work queued for this thread. The caller holds the lock."""
        while self._timers and self._timers[0][0] <= now:
            do_safely(heapq.heappop(self._timers)[2])
        while self._on_thread:
            do_safely(self._on_thread.popleft())

    def _do_soon(self) -> None:
        """Calls all work queued with `soon`, and writes the data posted to peers. The caller holds the lock."""
        while self._soon or self.written:
            while self._soon:
                do_safely(self._soon.popleft())
            written, self.written = self.written, []
            for stream in written:
                do_safely(stream.flush)

    def end(self) -> None:
        self._ended = True

    def abandon(self) -> None:
        """Closes the copies of the sockets in a forked process. The loop continues in the parent.

        Only closes them: unregistering them from the selector would also unregister them in the parent.
        """
        if self._is_closed:
            return
        for key in list(self.selector.get_map().values()):
            cast("socket.socket", key.fileobj).close()
        self.selector.close()
        self._wake.close()

    def close(self) -> None:
        """Ends all streams and closes the selector."""
        self._is_closed = True
        for key in list(self.selector.get_map().values()):
            key.data.end("the event loop was closed")
        self.selector.close()
        self._wake.close()


def do_safely(work: Callable[[], None]) -> None:
    """Calls `work` and prints its exception, which must not end the loop."""
    try:
        work()
    except Exception:
        traceback.print_exc()


class _Socket:
    """A socket that is not a message stream, and the callback for when it is readable."""

    def __init__(self, sock: socket.socket, on_event: Callable[[int], None]) -> None:
        self._socket, self.on_event = sock, on_event

    def end(self, reason: str) -> None:
        """Closes the socket."""
        self._socket.close()
