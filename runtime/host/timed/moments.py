"""Times that may not be known yet, and waits for them. Timed devices (`devices.py`) say with them when a call ends.

A moment is unknown only while a computation of several hosts waits for one of them. All times are seconds of
`time.perf_counter`, which on Linux all processes of a machine share.
"""

import heapq
import itertools
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence

from pathways.runtime.threads import start_thread

now = time.perf_counter


class Moment:
    """A time at which something is done. Threads wait for it like for an array."""

    __slots__ = ("_then", "time")

    def __init__(self, time: float | None = None) -> None:
        self.time = time
        self._then: list[Callable[[], None]] = []

    def know(self, time: float) -> None:
        """Sets the time, and calls the functions that wait for it."""
        with _CHANGING:
            self.time = time
            then, self._then = self._then, []
        _do(then)

    def then(self, work: Callable[[], None]) -> None:
        """Calls `work` when the time is known, on this thread or on one that calls such functions already."""
        with _CHANGING:
            if self.time is None:
                self._then.append(work)
                return
        _do([work])

    def is_ready(self) -> bool:
        return self.time is not None and self.time <= now()

    def block_until_ready(self) -> None:
        """Waits until the time is known, and then until it comes."""
        if self.time is None:
            known = threading.Event()
            self.then(known.set)
            known.wait()
        assert self.time is not None
        while (left := self.time - now()) > 0:
            time.sleep(left)


_CHANGING = threading.Lock()
_todo: deque[Callable[[], None]] = deque()
_doing = threading.Lock()


def _do(works: Sequence[Callable[[], None]]) -> None:
    """Calls functions one after another on one thread, so that a chain of moments needs no deep stack."""
    _todo.extend(works)
    while _todo and _doing.acquire(blocking=False):
        try:
            while _todo:
                _todo.popleft()()
        finally:
            _doing.release()


def after_all(moments: Sequence[Moment], work: Callable[[float], None]) -> None:
    """Calls `work` with the latest of some moments when all are known. Without moments that is time 0."""
    unknown = [moment for moment in moments if moment.time is None]
    if not unknown:
        work(max((moment.time or 0.0 for moment in moments), default=0.0))
        return
    left = itertools.count(len(unknown) - 1, -1)

    def one() -> None:
        if next(left) == 0:
            work(max(moment.time or 0.0 for moment in moments))

    for moment in unknown:
        moment.then(one)


class Timer:
    """Calls functions at their times, on a thread of its own."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._is_over = False
        start_thread("pathways-timer", self._run)

    def at(self, time: float, work: Callable[[], None]) -> None:
        """Calls `work` at a time, or at once if that has passed."""
        with self._changed:
            heapq.heappush(self._waiting, (time, next(self._numbers), work))
            if self._waiting[0][0] == time:
                self._changed.notify()

    def close(self) -> None:
        """Ends the thread after the functions whose time has come."""
        with self._changed:
            self._is_over = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while (left := self._waiting[0][0] - now() if self._waiting else None) is None or left > 0:
                    if self._is_over:
                        return
                    self._changed.wait(left)
                _, _, work = heapq.heappop(self._waiting)
            try:
                work()
            except BaseException:  # values would never arrive
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
