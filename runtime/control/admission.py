"""Turns to enqueue: a client's thread waits for the turn of its run, then enqueues the whole run itself.

There is no scheduler thread: handing work to one takes 40 us. A thread that has an event posts it, and processes all
that are posted unless another thread does so already; no thread waits for a lock, so that a handle may be dropped
anywhere.
"""

import threading
import traceback
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from pathways.dialect.activities import Activity, clock
from pathways.runtime.control.scheduling import Request
from pathways.runtime.control.scheduling.scheduler import Scheduler
from pathways.runtime.interrupts import uninterrupted
from pathways.runtime.journal import note

_T = TypeVar("_T")
PATIENCE = 0.5
"""Seconds after which a waiting thread checks whether its turn can still come."""

Event: TypeAlias = Callable[[Scheduler], list[int]]


@dataclass(eq=False, slots=True)
class Ticket:
    """A run's place in line; the gate is open while it is its turn."""

    request: Request
    gate: Any = field(default_factory=threading.Lock)
    error: Exception | None = None
    """A failure of the scheduler at an event of this run: who waits raises it."""

    def __post_init__(self) -> None:
        self.gate.acquire()

    def check(self) -> None:
        """Raises the failure of the scheduler, if there was one."""
        if self.error is not None:
            raise self.error


class Turns:
    """The scheduler of this process, and the tickets of waiting runs."""

    def __init__(self, scheduler: Scheduler, why: Callable[[Request], str] = lambda request: "") -> None:
        self.scheduler = scheduler
        self._why = why
        """Says for people what a run waits for."""
        self.contended = False
        """Whether any run waits; read between the parts of a long run."""
        self._tickets: dict[int, Ticket] = {}
        self._events: deque[tuple[Event, Ticket | None]] = deque()
        self._lock = threading.Lock()

    def enter(self, request: Request, patience: Callable[[Ticket], None]) -> Ticket:
        """Waits for the turn of a run. `patience` is called again and again meanwhile, and may raise.

        Any exception meanwhile (Ctrl-C, too) takes the run out of line.
        """
        ticket = Ticket(request)
        try:
            self.line_up(ticket)
            if not ticket.gate.acquire(blocking=False):
                self._wait(ticket, patience)
            ticket.check()
        except BaseException:
            self.cancel(ticket)
            raise
        return ticket

    def line_up(self, ticket: Ticket) -> None:
        """Puts a run in line; its gate opens when its turn comes."""
        self._tickets[ticket.request.number] = ticket
        note("run", ticket.request.number, "lined up")
        self.post(lambda scheduler: scheduler.submit(ticket.request), ticket)

    def step_aside(self, ticket: Ticket) -> None:
        """Lets others enqueue for as long as the run waits for data; `pause` brings it back."""
        self.post(lambda scheduler: scheduler.step_aside(ticket.request.number), ticket)

    def pause(self, ticket: Ticket, patience: Callable[[Ticket], None]) -> None:
        """Lets runs that rank before this one go first; returns when it is its turn again."""
        self.post(lambda scheduler: scheduler.pause(ticket.request.number), ticket)
        if not ticket.gate.acquire(blocking=False):
            self._wait(ticket, patience)
        ticket.check()

    def _wait(self, ticket: Ticket, patience: Callable[[Ticket], None]) -> None:
        patience(ticket)
        if ticket.gate.acquire(timeout=PATIENCE):
            return
        since = clock() - PATIENCE
        with Activity(f"{ticket.request.program} waits for its turn", since=since) as waiting:
            while True:
                patience(ticket)
                waiting.detail = self._why(ticket.request)
                if ticket.gate.acquire(timeout=PATIENCE):
                    return

    def enqueued(self, ticket: Ticket, bytes_: Mapping[Hashable, int] | None) -> None:
        note("run", ticket.request.number, "was enqueued")
        self.post(lambda scheduler: scheduler.enqueued(ticket.request.number, bytes_), ticket)

    def finished(self, ticket: Ticket) -> None:
        note("run", ticket.request.number, "ended")
        self._tickets.pop(ticket.request.number, None)
        self.post(lambda scheduler: scheduler.finished(ticket.request.number), ticket)

    def cancel(self, ticket: Ticket) -> None:
        note("run", ticket.request.number, "gave up its turn")
        self._tickets.pop(ticket.request.number, None)
        self.post(lambda scheduler: scheduler.cancel(ticket.request.number), ticket)

    @uninterrupted
    def ask(self, question: Callable[[Scheduler], _T]) -> _T:
        """Asks the scheduler a question after all events that were posted before; returns the answer."""
        with self._lock:
            self._process()
            answer = question(self.scheduler)
        self.post(lambda scheduler: [])  # processes the events that were posted meanwhile
        return answer

    @uninterrupted
    def post(self, event: Event, ticket: Ticket | None = None) -> None:
        """Posts an event, of this run, which is processed here or by the thread that is processing events now."""
        self._events.append((event, ticket))
        while self._events and self._lock.acquire(blocking=False):
            try:
                self._process()
            finally:
                self._lock.release()

    def _started(self, event: Event, ticket: Ticket | None) -> list[int]:
        """Returns the runs that an event starts. If it raises, a bug, its run fails, and no other."""
        try:
            return event(self.scheduler)
        except Exception as error:
            traceback.print_exc()
            if ticket is None:
                return []
            ticket.error = error
            self._tickets.pop(ticket.request.number, None)
            if ticket.gate.locked():
                ticket.gate.release()
            return self._started(lambda scheduler: scheduler.cancel(ticket.request.number), None)

    def _process(self) -> None:
        while self._events:
            event, of = self._events.popleft()
            for number in self._started(event, of):
                ticket = self._tickets.get(number)
                if ticket is None:  # given up while its turn came
                    self._events.append((lambda scheduler, n=number: scheduler.cancel(n), None))
                else:
                    ticket.gate.release()
        self.contended = self.scheduler.contended


class NoTurns(Turns):
    """The turns of a process whose runs a controller schedules: each may be submitted at once."""

    def line_up(self, ticket: Ticket) -> None:
        note("run", ticket.request.number, "was submitted")
        ticket.gate.release()

    def enqueued(self, ticket: Ticket, bytes_: Mapping[Hashable, int] | None) -> None:
        """Does nothing: the controller knows."""

    def finished(self, ticket: Ticket) -> None:
        note("run", ticket.request.number, "ended")

    def cancel(self, ticket: Ticket) -> None:
        """Does nothing: no line has the run."""
