"""Represents a run on a host while it waits for values of other hosts. It tells the watchdog that the run is only
waiting, as long as all work that it has enqueued here is done. `Host` makes one for each run.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from pathways.runtime.host.devices.pjrt import FAILURES
from pathways.runtime.host.run.progress import Pending, wait_any
from pathways.runtime.host.run.runs_in_flight import Flight
from pathways.runtime.threads import started


class WaitingFlight(Flight):
    """A flight that knows whether it waits only for other hosts."""

    def __init__(self, *of: Any) -> None:
        """Takes the arguments of a `Flight`, in its order."""
        super().__init__(*of)
        self._waits: _Wait | None = None

    def wait(self, pendings: Sequence[Pending], tokens: Callable[[], Sequence[Any]]) -> None:
        """Waits until one of these is known. `tokens` returns the tokens of all work enqueued here."""
        self._waits = _Wait(tokens)
        try:
            wait_any(pendings)
        finally:
            self._waits = None
            self.moved = time.monotonic()

    @property
    def mark(self) -> float:
        """As for any flight; but it changes at each read during a wait if all enqueued work is done."""
        waits = self._waits
        return time.monotonic() if waits is not None and waits.is_idle() else super().mark


class _Wait:
    """One wait, and whether all work enqueued before it is done. Most waits complete before that is checked."""

    __slots__ = ("_is_done", "_is_watched", "_tokens")

    def __init__(self, tokens: Callable[[], Sequence[Any]]) -> None:
        self._tokens = tokens
        self._is_done = False
        self._is_watched = False

    def is_idle(self) -> bool:
        """Checks whether the work is done. The first check starts a thread that waits: tokens cannot be polled."""
        if not self._is_watched:
            self._is_watched = True
            started(threading.Thread(target=self._wait, args=(self._tokens(),), name="pathways-idle", daemon=True))
        return self._is_done

    def _wait(self, tokens: Sequence[Any]) -> None:
        for token in tokens:
            with contextlib.suppress(*FAILURES):  # the results carry the error
                token.block_until_ready()
        self._is_done = True
