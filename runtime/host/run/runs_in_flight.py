"""Runs that are in the queues of devices: when each is done, and whether anything moves at all.

A line an island (a run that spans several is in the line of the first), each with a thread that waits for the oldest
run's tokens. While nothing waits for what it would tell, the thread looks only twice a second: waking it for each run
would cost more than a small run itself. Threads end when their line is empty.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Container, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pathways.dialect.plan.instructions import Run
from pathways.dialect.plan.nouns import Plan
from pathways.runtime.host.devices.in_flight_limit import DeviceQueue
from pathways.runtime.host.devices.pjrt import FAILURES
from pathways.runtime.interrupts import uninterrupted
from pathways.runtime.threads import started

MOST_TIMES = 16
"""Times of a body that are remembered: more than can be in the queues of its devices."""
IDLE_LOOK = 0.5
"""Seconds between two looks of a thread that is not waited for."""


@dataclass(frozen=True)
class Launch:
    """What is launched, and on which devices of which island."""

    run: Run
    island: str
    devices: tuple[Any, ...]
    queues: tuple[DeviceQueue, ...]


@dataclass(eq=False, slots=True)
class Flight:
    """One run. `tokens` are done when all it enqueued is; `queues` are those of all devices that it may use."""

    number: int
    plan: Plan
    queues: Sequence[DeviceQueue]
    tokens: list[Any]
    client: str
    done: Callable[[float], None]
    """Called once, with the seconds that it kept its devices."""
    launched: dict[Any, deque[tuple[int, Sequence[Launch]]]] = field(default_factory=dict[Any, Any])
    """What the program and its bodies launched, with the first launch id of each time; what is long done goes."""
    since: float = field(default_factory=time.monotonic)
    moved: float = field(default_factory=time.monotonic)
    """When it last got on with enqueuing."""
    thread: int = 0
    """The thread that enqueues it, while one does."""
    abandoned: bool = False
    """Whether some of what it enqueued will never be done."""

    def begin(self, who: Any, base: int, launches: Sequence[Launch]) -> None:
        """The program (None) or a body is about to launch."""
        self.launched.setdefault(who, deque(maxlen=MOST_TIMES)).append((base, launches))

    def end(self) -> None:
        """Ends a run that is known to be done, without a look at its tokens."""
        self.done(time.monotonic() - self.since)

    @property
    def mark(self) -> float:
        """Changes whenever something moves on its devices."""
        return max(self.moved, max((q.moved for q in self.queues), default=0.0))

    def parts(self) -> list[tuple[int, Launch]]:
        """What was launched and may not be done, by launch id, in order."""
        return sorted((part for who in list(self.launched) for part in self.parts_of(who)), key=lambda part: part[0])

    def parts_of(self, who: Any) -> list[tuple[int, Launch]]:
        """The same of the program alone (None), or of a body."""
        times = list(self.launched.get(who, ()))
        return [(base + n, launch) for base, launches in times for n, launch in enumerate(launches)]


class Line:
    """The runs of one island, oldest first."""

    def __init__(self, name: str, lines: "Flights") -> None:
        self.name = name
        self.flights: deque[Flight] = deque()
        self._ended = 0.0
        """When a run was last done."""
        self._lines = lines
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @uninterrupted
    def put(self, flight: Flight, *, eager: bool) -> None:
        with self._lock:
            self.flights.append(flight)
        if flight.abandoned:  # just now
            self.abandon([flight])
            return
        if self._thread is None:
            self._ensure()
            if self._thread is None:  # this thread waits itself: no other can be started
                self._finish(flight)
        if eager:
            self._wake.set()

    @uninterrupted  # or the lock inside of the event is never given back
    def hurry(self) -> None:
        if self.flights:
            self._wake.set()

    def stop(self) -> None:
        self._wake.set()

    def _ensure(self) -> None:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._watch, name=f"pathways-{self.name}", daemon=True)
                if started(thread):
                    self._thread = thread

    def abandon(self, flights: Collection[Flight]) -> None:
        """Waits for these no longer: they will never be done."""
        with self._lock:
            waiting = bool(self.flights) and self.flights[0] in flights
            self.flights = deque(f for f in list(self.flights) if f not in flights)
            if waiting:  # its thread is in a wait that never ends; when it does, the thread sees that it is replaced
                self._thread = None
        self._ensure()
        for flight in flights:
            flight.end()

    def _watch(self) -> None:
        idle = 0
        while (idle < 2 or not self._end()) and not self._lines.ending:
            self._wake.wait(IDLE_LOOK)
            self._wake.clear()
            idle = 0 if self.flights else idle + 1
            while self.flights:
                if not self._finish(self.flights[0]):
                    return

    def _end(self) -> bool:
        with self._lock:
            self._thread = None
            if not self.flights:
                return True
            self._thread = threading.current_thread()  # one came in between
            return False

    def _finish(self, flight: Flight) -> bool:
        """Waits for a flight; False where it was abandoned meanwhile, and another thread is in charge."""
        for token in flight.tokens:
            with contextlib.suppress(*FAILURES):  # the results carry it
                token.block_until_ready()
            if flight.abandoned:
                return False
            moved = time.monotonic()
            for queue in flight.queues:
                queue.moved = moved
        now = time.monotonic()
        begun, self._ended = max(flight.since, self._ended), now
        with self._lock:
            if flight.abandoned:
                return False
            self.flights.popleft()
        flight.done(now - begun)
        return True


class Flights:
    """The lines of all islands."""

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        self.ending = False
        self.enqueuing: dict[int, Flight] = {}
        """Runs whose turn it is."""
        self._lock = threading.Lock()

    def line(self, name: str) -> Line:
        with self._lock:
            return self.lines.setdefault(name, Line(name, self))

    def all(self) -> list[Flight]:
        """Runs that enqueue or are enqueued, the oldest first."""
        enqueuing = self.enqueuing.copy()  # first: a run that goes from here to its line is not missed
        flying = [f for line in list(self.lines.values()) for f in list(line.flights)]
        found = {f.number: f for f in (*enqueuing.values(), *flying)}
        return [found[number] for number in sorted(found)]

    def abandon(self, devices: Container[Hashable]) -> None:
        """Gives up all runs that launched something on any of these devices: it will never be done."""
        found = [f for f in self.all() if any(d in devices for _, part in f.parts() for d in part.devices)]
        for flight in found:
            flight.abandoned = True
        for line in list(self.lines.values()):
            if ours := [f for f in found if f in line.flights]:
                line.abandon(ours)

    def stop(self) -> None:
        """All threads end now."""
        self.ending = True
        for line in list(self.lines.values()):
            line.stop()

    def hurry(self) -> None:
        """Has every thread look now, since one waits for an end."""
        for line in list(self.lines.values()):
            line.hurry()

    @property
    def count(self) -> int:
        return sum(len(line.flights) for line in list(self.lines.values()))

    def drain(self, timeout: float | None = None) -> bool:
        """Waits until nothing is in flight."""
        end = None if timeout is None else time.monotonic() + timeout
        while self.count:
            self.hurry()
            if end is not None and time.monotonic() > end:
                return False
            time.sleep(0.001)
        return True
