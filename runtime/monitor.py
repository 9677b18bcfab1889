"""Waits, for one event or for changes of what a lock guards.

A `Monitor` is as a Condition, but that Ctrl-C never leaves the lock held, or given back twice: the code of a Condition
is Python, and may be interrupted between any two lines. The thread of a loop would stand still, with all islands.
"""

import contextlib
import threading
from collections.abc import Callable

from pathways.runtime.interrupts import uninterrupted, wait_without_end


class Gate:
    """One wait: the gate opens when the work is done, or its device is lost."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self) -> None:
        """Ends the wait; a second call does nothing."""
        with contextlib.suppress(RuntimeError):
            self._lock.release()

    def pass_through(self, timeout: float | None = None) -> None:
        """Waits until the gate is open, or so many seconds. Ctrl-C ends the wait."""
        if timeout is None:
            wait_without_end(lambda seconds: self._lock.acquire(timeout=seconds))
        else:
            self._lock.acquire(timeout=timeout)


class Monitor:
    """Code that holds `lock` is in functions marked `uninterrupted`, or on threads other than the main one."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._waiting: list[Gate] = []

    @uninterrupted
    def notify_all(self) -> None:
        """Has all who wait look again."""
        with self.lock:
            waiting, self._waiting = self._waiting, []
        for gate in waiting:
            gate.open()

    def wait_for(self, question: Callable[[], bool], seconds: float | None = None) -> bool:
        """Waits until the answer is True, as far as it is asked again at each change; returns the last answer.

        With `seconds` it waits for one change at the most, for so long. Ctrl-C ends the wait.
        """
        while (gate := self._look(question)) is not None:
            gate.pass_through(seconds)
            if seconds is not None:
                return self._look(question) is None
        return True

    @uninterrupted
    def _look(self, question: Callable[[], bool]) -> Gate | None:
        with self.lock:
            if question():
                return None
            self._waiting.append(gate := Gate())
            return gate
