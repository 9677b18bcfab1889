"""Schedules the runs of one process without a cluster. The thread that calls a program waits here until the scheduler
allows its run, and then enqueues the whole run itself. `Controller` and `LoadedPlan` call it.

There is no scheduler thread, since handing work to one takes 40 us. A thread posts an event and processes all posted
events, unless another thread is already doing so. No thread waits for a lock, so a handle may be dropped anywhere.
"""

import threading
import traceback
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from pathways.dialect.activities import Activity, clock
from pathways.runtime.control.scheduling import Request
from pathways.runtime.control.scheduling.ownership import Ownership
from pathways.runtime.control.scheduling.scheduler import Scheduler
from pathways.runtime.interrupts import uninterrupted
from pathways.runtime.journal import note

_T = TypeVar("_T")
QUEUE_POLL_INTERVAL_S = 0.5
"""Interval, in seconds, at which a waiting thread checks whether its run can still be scheduled."""

Event: TypeAlias = Callable[[Scheduler], list[int]]


@dataclass(eq=False, slots=True)
class Ticket:
    """A run's entry in the queue. The gate is open while the run has its slot."""

    request: Request
    gate: Any = field(default_factory=threading.Lock)
    error: Exception | None = None
    """An internal scheduler error at an event of this run. The waiting thread raises it."""

    def __post_init__(self) -> None:
        self.gate.acquire()

    def check(self) -> None:
        """Raises the scheduler's internal error, if there was one."""
        if self.error is not None:
            raise self.error


def _nothing(scheduler: Scheduler) -> list[int]:
    """Does nothing. Posting it processes the events of other threads."""
    return []


class RunQueue:
    """The scheduler of this process, and the tickets of waiting runs."""

    def __init__(self, scheduler: Scheduler, why: Callable[[Request], str] = lambda request: "") -> None:
        self.scheduler = scheduler
        self._why = why
        """Describes what a run waits for."""
        self.contended = False
        """Whether any run waits. Long runs check it between their pieces."""
        self._tickets: dict[int, Ticket] = {}
        self._ownerships: WeakValueDictionary[frozenset[str], Ownership] = WeakValueDictionary()
        self._events: deque[tuple[Event, Ticket | None]] = deque()
        self._lock = threading.Lock()

    def enter(self, request: Request, patience: Callable[[Ticket], None]) -> Ticket:
        """Waits until the run gets a slot. Calls `patience` repeatedly meanwhile; `patience` may raise.

        Removes the run from the queue on any exception, including KeyboardInterrupt.
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

    def ownership(self, islands: frozenset[str]) -> Ownership:
        """Returns the ownership of islands, one for all plans that use just these islands."""
        return self._ownerships.setdefault(islands, Ownership(islands))

    @uninterrupted
    def own(self, owned: Ownership, client: str) -> bool:
        """Makes a client the owner of islands if it has no rival. The caller has the lock of the ownership."""
        if self._events or not self._lock.acquire(False):
            return False
        try:
            return self.scheduler.own(owned, client)
        finally:
            self._lock.release()
            if self._events:
                self.post(_nothing)

    def settle(self, owned: Ownership) -> None:
        """Releases islands after a launch whose ownership has ended meanwhile. The caller has released the lock."""
        self.post(lambda scheduler: scheduler.settle(owned))

    def adopt(self, ticket: Ticket) -> None:
        """Gives a ticket to a run that an owner has launched and that is not complete."""
        self._tickets[ticket.request.number] = ticket
        note("run", ticket.request.number, "was launched")
        self.post(lambda scheduler: scheduler.adopt(ticket.request), ticket)

    def line_up(self, ticket: Ticket) -> None:
        """Enqueues a run in the scheduler. Its gate opens when it gets a slot."""
        self._tickets[ticket.request.number] = ticket
        note("run", ticket.request.number, "was queued")
        self.post(lambda scheduler: scheduler.submit(ticket.request), ticket)

    def yield_slot(self, ticket: Ticket) -> None:
        """Yields the slot to other runs while this run waits for data. `pause` makes the run wait for a slot again."""
        self.post(lambda scheduler: scheduler.yield_slot(ticket.request.number), ticket)

    def pause(self, ticket: Ticket, patience: Callable[[Ticket], None]) -> None:
        """Yields to runs that rank before this run; returns when this run has a slot again."""
        self.post(lambda scheduler: scheduler.pause(ticket.request.number), ticket)
        if not ticket.gate.acquire(blocking=False):
            self._wait(ticket, patience)
        ticket.check()

    def _wait(self, ticket: Ticket, patience: Callable[[Ticket], None]) -> None:
        patience(ticket)
        if ticket.gate.acquire(timeout=QUEUE_POLL_INTERVAL_S):
            return
        since = clock() - QUEUE_POLL_INTERVAL_S
        with Activity(f"{ticket.request.program} waits in the queue", since=since) as waiting:
            while True:
                patience(ticket)
                waiting.detail = self._why(ticket.request)
                if ticket.gate.acquire(timeout=QUEUE_POLL_INTERVAL_S):
                    return

    def enqueued(self, ticket: Ticket, bytes_: Mapping[Hashable, int] | None) -> None:
        note("run", ticket.request.number, "was enqueued")
        self.post(lambda scheduler: scheduler.enqueued(ticket.request.number, bytes_), ticket)

    def finished(self, ticket: Ticket) -> None:
        note("run", ticket.request.number, "ended")
        self._tickets.pop(ticket.request.number, None)
        self.post(lambda scheduler: scheduler.finished(ticket.request.number), ticket)

    def cancel(self, ticket: Ticket) -> None:
        note("run", ticket.request.number, "was removed from the queue")
        self._tickets.pop(ticket.request.number, None)
        self.post(lambda scheduler: scheduler.cancel(ticket.request.number), ticket)

    @uninterrupted
    def ask(self, question: Callable[[Scheduler], _T]) -> _T:
        """Queries the scheduler after all events that were posted before; returns the answer."""
        with self._lock:
            self._process()
            answer = question(self.scheduler)
        self.post(_nothing)  # processes events posted meanwhile
        return answer

    @uninterrupted
    def post(self, event: Event, ticket: Ticket | None = None) -> None:
        """Posts an event of a run. It is processed here, or by the thread that is processing events now."""
        self._events.append((event, ticket))
        while self._events and self._lock.acquire(blocking=False):
            try:
                self._process()
            finally:
                self._lock.release()

    def _started(self, event: Event, ticket: Ticket | None) -> list[int]:
        """Returns the runs that an event starts. If the event raises (a bug), only its own run fails."""
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
                if ticket is None:  # cancelled while it was scheduled
                    self._events.append((lambda scheduler, n=number: scheduler.cancel(n), None))
                else:
                    ticket.gate.release()
        self.contended = self.scheduler.contended


class PassThroughQueue(RunQueue):
    """Admission in a process whose runs are scheduled by a controller: each run may be submitted at once."""

    def line_up(self, ticket: Ticket) -> None:
        note("run", ticket.request.number, "was submitted")
        ticket.gate.release()

    def enqueued(self, ticket: Ticket, bytes_: Mapping[Hashable, int] | None) -> None:
        """Does nothing: the controller tracks the run."""

    def finished(self, ticket: Ticket) -> None:
        note("run", ticket.request.number, "ended")

    def cancel(self, ticket: Ticket) -> None:
        """Does nothing: the run is in no queue."""
