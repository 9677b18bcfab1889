"""Provides two primitives for waiting threads: `Gate`, for one event, and `Monitor`, for changes of state that a lock
guards. The whole runtime waits through them.

All of the runtime uses them instead of `threading.Condition`. A Condition is written in Python, so Ctrl-C may interrupt
it between any two lines, and leave its lock held or released twice. That blocks an event loop, and with it all islands.
"""

import contextlib
import threading
from collections.abc import Callable

from pathways.runtime.interrupts import uninterrupted, wait_without_end


class Gate:
    """A single wait. The gate opens when the work completes or its device is lost."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self) -> None:
        """Ends the wait; a second call does nothing."""
        with contextlib.suppress(RuntimeError):
            self._lock.release()

    def pass_through(self, timeout: float | None = None) -> bool:
        """Waits until the gate is open, at most `timeout` seconds; returns whether it is. Ctrl-C ends the wait."""
        if timeout is not None:
            return self._lock.acquire(timeout=timeout)
        wait_without_end(lambda seconds: self._lock.acquire(timeout=seconds))
        return True


class Monitor:
    """A lock whose waiters are notified of changes.

    Code that holds `lock` must run in functions marked `uninterrupted`, or on threads other than the main thread.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._waiting: list[Gate] = []

    @uninterrupted
    def notify_all(self) -> None:
        """Wakes all waiters, which then check their conditions again."""
        with self.lock:
            waiting, self._waiting = self._waiting, []
        for gate in waiting:
            gate.open()

    def wait_for(self, question: Callable[[], bool], seconds: float | None = None) -> bool:
        """Waits until `question` returns True; checks it again at each change. Returns the last answer.

        With `seconds`, waits for one change at most, and at most that long. Ctrl-C ends the wait.
        """
        while (gate := self._gate_unless(question)) is not None:
            gate.pass_through(seconds)
            if seconds is not None:
                return self._gate_unless(question) is None
        return True

    @uninterrupted
    def _gate_unless(self, question: Callable[[], bool]) -> Gate | None:
        with self.lock:
            if question():
                return None
            self._waiting.append(gate := Gate())
            return gate
