"""A run on a host that may wait for values of other hosts: to stand still is a hang only while its own devices work."""

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
    """A flight that knows whether it waits for other hosts alone."""

    def __init__(self, *of: Any) -> None:
        """Takes what a `Flight` does, in its order."""
        super().__init__(*of)
        self._waits: _Wait | None = None

    def wait(self, pendings: Sequence[Pending], tokens: Callable[[], Sequence[Any]]) -> None:
        """Waits until one of these is known; `tokens` gives those of all that was enqueued here."""
        self._waits = _Wait(tokens)
        try:
            wait_any(pendings)
        finally:
            self._waits = None
            self.moved = time.monotonic()

    @property
    def mark(self) -> float:
        """As of any flight; while all that it has enqueued is done, it never stands still."""
        waits = self._waits
        return time.monotonic() if waits is not None and waits.is_idle() else super().mark


class _Wait:
    """One wait, and whether all that was enqueued before it is done; most waits are over before that is asked."""

    __slots__ = ("_asked", "_is_done", "_tokens")

    def __init__(self, tokens: Callable[[], Sequence[Any]]) -> None:
        self._tokens = tokens
        self._is_done = False
        self._asked = False

    def is_idle(self) -> bool:
        """Asks; tokens can only be waited for, so that the first to ask starts a thread that does."""
        if not self._asked:
            self._asked = True
            started(threading.Thread(target=self._look, args=(self._tokens(),), name="pathways-idle", daemon=True))
        return self._is_done

    def _look(self, tokens: Sequence[Any]) -> None:
        for token in tokens:
            with contextlib.suppress(*FAILURES):  # the results carry the error
                token.block_until_ready()
        self._is_done = True
