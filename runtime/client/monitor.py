"""Waits for changes of what a lock guards.

As a Condition, but that Ctrl-C never leaves the lock held, or given back twice: its own code is Python, and may be
interrupted between any two lines. The thread of a controller's loop would stand still then, and with it all islands.
"""

import threading
from collections.abc import Callable

from pathways.runtime.host.devices.waits import Gate
from pathways.runtime.interrupts import uninterrupted


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
