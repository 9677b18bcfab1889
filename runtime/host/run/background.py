"""Enqueues a run on a thread of its own if the run must wait for values in between, for example at a loop on data. The
call of the program still returns at once. `client/loaded_plan.py` starts such runs.

A run with host callbacks, or one that takes results of such a run, is also enqueued in this way. Until a run is
enqueued, each of its results holds a promise in place of an array.
"""

import contextvars
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pathways.dialect.diagnostics import Diagnostic, PathwaysError, Where
from pathways.runtime.client_state import ClientState
from pathways.runtime.errors import RunCancelled
from pathways.runtime.interrupts import uninterrupted
from pathways.runtime.monitor import Gate
from pathways.runtime.threads import started

MAX_BACKGROUND = 64
"""Maximum number of background runs of one client. The next call waits until one of them completes."""
CANCEL_POLL_INTERVAL_S = 0.1
"""Seconds between two checks whether a run that waits for another was cancelled."""
POLL_INTERVAL_S = 0.002
"""Seconds between two checks whether background runs have completed."""
SPARE_S = 0.2
"""Seconds for which the thread of a run waits for another run. To start a thread takes five times as long as to wake
one."""


@dataclass(eq=False)
class Promise:
    """A run in the background. A buffer holds it in place of the array that the run will put there.

    `calls_back`: the run has host callbacks, so that it matters even if its results are not read.
    """

    number: int
    program: str
    client: ClientState
    calls_back: bool
    where: Where | None = None
    cancelled: bool = False
    is_known: bool = False
    """Whether the results are in their buffers."""
    _gates: set[Gate] = field(default_factory=set[Gate])
    """One gate per waiting thread. The threads share no lock, which an interrupt could leave locked."""

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the results are in their buffers; returns whether they are."""
        gate = Gate()
        self._gates.add(gate)
        try:
            if not self.is_known:
                gate.pass_through(timeout)
        finally:
            self._gates.discard(gate)
        return self.is_known

    def resolve(self) -> None:
        """Wakes the threads that wait: the results are in their buffers."""
        self.is_known = True
        for gate in list(self._gates):
            gate.open()

    def check(self) -> None:
        """Raises PWC0518 if the run was cancelled."""
        if self.cancelled:
            raise PathwaysError(self.cancellation)

    @property
    def cancellation(self) -> Diagnostic:
        return RunCancelled(program=self.program, run=self.number, where=self.where)

    def wait_for(self, others: Iterable["Promise"]) -> None:
        """Waits for the runs whose results this run takes. Raises PWC0518 if this run is cancelled meanwhile."""
        for other in others:
            while not other.wait(CANCEL_POLL_INTERVAL_S):
                self.check()


class _Runner(threading.Thread):
    """A thread that does the work of a run, and then of others that come soon.

    Python waits at exit for the threads of its executors, and a run may never end. So these are daemon threads.
    """

    def __init__(self, name: str, work: Callable[[], None], spare: "list[_Runner]") -> None:
        super().__init__(name=name, daemon=True)
        self._work, self._spare, self._gate = work, spare, Gate()

    def run(self) -> None:
        while True:
            self._work()
            self._work, self.name = _nothing, "pathways-run-spare"
            gate = self._gate = Gate()
            self._spare.append(self)
            if not gate.pass_through(SPARE_S):
                try:
                    self._spare.remove(self)
                except ValueError:  # another thread has just taken it from the list
                    gate.pass_through()
                else:
                    return

    def take(self, name: str, work: Callable[[], None]) -> None:
        """Begins another work. The caller has taken the thread from the list of spare ones."""
        self.name, self._work = name, work
        self._gate.open()


def _nothing() -> None:
    """Does nothing: a spare thread must not keep the values of its last run."""


class BackgroundRuns:
    """The background runs of a process."""

    def __init__(self) -> None:
        self.runs: dict[int, Promise] = {}
        self.spare: list[_Runner] = []
        """Threads that wait for another run."""

    def start(self, promise: Promise, work: Callable[[], None]) -> bool:
        """Makes a thread do `work` in the caller's context. First waits while the client has too many runs.

        Returns False if no thread can be started: then the caller must do `work` itself.
        """
        while len(self.of(promise.client)) >= MAX_BACKGROUND:
            time.sleep(POLL_INTERVAL_S)
        context = contextvars.copy_context()

        def run() -> None:
            try:
                context.run(work)
            finally:
                self.runs.pop(promise.number, None)

        name, begun, thread = f"pathways-run-{promise.number}", list[bool](), None
        self.runs[promise.number] = promise
        try:
            if self.take_spare(name, run, begun):
                return True
            thread = _Runner(name, run, self.spare)
            if started(thread):
                return True
            del self.runs[promise.number]
            return False
        except BaseException:
            promise.cancelled = True  # a thread may have begun before Ctrl-C
            if not begun and (thread is None or thread.ident is None):
                self.runs.pop(promise.number, None)
            raise

    @uninterrupted
    def take_spare(self, name: str, work: Callable[[], None], begun: list[bool]) -> bool:
        """Gives the work to a spare thread, if there is one; then adds to `begun`."""
        try:
            self.spare.pop().take(name, work)
        except IndexError:
            return False
        begun.append(True)
        return True

    def of(self, client: ClientState | None = None) -> list[Promise]:
        """Returns the runs of a client, or of all, oldest first."""
        return [p for p in list(self.runs.values()) if client is None or p.client is client]

    def drain(self, client: ClientState | None = None, *, calling_back: bool = False, timeout: float = 1e9) -> bool:
        """Waits until no run of the client (or of any client) is left; returns whether none is left.

        `calling_back`: only runs with host callbacks count.
        """
        end = time.monotonic() + timeout
        while any(p.calls_back or not calling_back for p in self.of(client)):
            if time.monotonic() >= end:
                return False
            time.sleep(POLL_INTERVAL_S)
        return True
