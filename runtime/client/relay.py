"""What one host of a run decides is told to all of its hosts, in one order (runtime/host/run/decisions.py).

A host that is gone decides nothing more: from then on all others hear only why, so that none goes on alone. A run is
cancelled in the same way.
"""

import threading
from collections.abc import Sequence
from typing import Protocol

from pathways.dialect.diagnostics import Diagnostic
from pathways.runtime.host.devices.remote_array import RemoteRun
from pathways.runtime.host.run.decisions import Said, doom


class Told(Protocol):
    """A host that takes part in a run."""

    def tell(self, message: Said) -> None:
        """Sends a message some time soon; never waits."""
        ...


class Relay:
    """One run with branches on data. It may be used as soon as it is made: what is said before all
    hosts have heard of the run waits for `begin`."""

    def __init__(self, run: int, hosts: Sequence[Told]) -> None:
        self._run = run
        self._hosts = hosts
        self._lock = threading.Lock()
        self._early: list[Said] | None = []
        self._doomed = self._cancelled = False
        self._parts: list[RemoteRun] = []

    def part(self) -> RemoteRun:
        """Makes the future of what one host executes of the run."""
        self._parts.append(part := RemoteRun(self._cancel))
        return part

    def _cancel(self, cause: Diagnostic) -> bool:
        """Ends the loops of the run, on all hosts; returns False where none of them runs it any more."""
        running = [part for part in self._parts if not part.is_ready()]
        for part in running:
            part.cancelled = cause
        with self._lock:
            if running and not self._cancelled:
                self._doomed = self._cancelled = True
                self._say(doom(self._run, cause, cancelled=True))
        return bool(running)

    def begin(self) -> None:
        """Says that all hosts have heard of the run."""
        with self._lock:
            early, self._early = self._early or [], None
            for said in early:
                self._tell(said)

    def hear(self, said: Said) -> None:
        """Takes what a host has decided."""
        with self._lock:
            if not self._doomed:
                self._say(said)

    def doom(self, cause: Diagnostic) -> None:
        """Says that a host is gone, and why."""
        with self._lock:
            if not self._doomed:
                self._doomed = True
                self._say(doom(self._run, cause, cancelled=False))

    def _say(self, said: Said) -> None:
        if self._early is None:
            self._tell(said)
        else:
            self._early.append(said)

    def _tell(self, said: Said) -> None:
        for host in self._hosts:
            host.tell(said)
