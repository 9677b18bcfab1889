"""Tracks the runs whose work is in the queues of devices (in flight): detects when each is done, and whether it makes
progress. `Host` and the client's controller use it.

Each island has a line; a run on several islands is in the line of the first. The thread of a line waits for the oldest
run's tokens. It polls only twice a second while no caller waits for a run: waking it for each run would cost more than
a small run. Threads end when their line is empty.
"""

import contextlib
import math
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
from pathways.runtime.states import EXECUTION, Life
from pathways.runtime.threads import started

MAX_TIMES = 16
"""Maximum number of remembered executions of a body: more than can be in the queues of its devices."""
IDLE_POLL_INTERVAL_S = 0.5
"""Time between two polls of a line's thread while no caller waits for a run."""


@dataclass(frozen=True)
class Launch:
    """One launch of a computation, and the devices and island that it runs on."""

    run: Run
    island: str
    devices: tuple[Any, ...]
    queues: tuple[DeviceQueue, ...]


@dataclass(eq=False, slots=True)
class Flight:
    """One run in flight. `tokens` are done when all its work is; `queues` are those of all devices that it may use."""

    number: int
    plan: Plan
    queues: Sequence[DeviceQueue]
    tokens: list[Any]
    client: str
    done: Callable[[float], None]
    """Called once at the end, with the seconds for which the run kept its devices busy."""
    launched: dict[Any, deque[tuple[int, Sequence[Launch]]]] = field(default_factory=dict[Any, Any])
    """Launches of the program (None) and its bodies, with each execution's first launch id; old ones are dropped."""
    since: float = field(default_factory=time.monotonic)
    moved: float = field(default_factory=time.monotonic)
    """The time at which it last enqueued something."""
    thread: int = 0
    """The thread that is enqueuing it; 0: none."""
    life: Life = field(default_factory=lambda: Life(EXECUTION))

    def begin(self, owner: Any, base: int, launches: Sequence[Launch]) -> None:
        """Notes the next launches of the program (None) or a body."""
        times = self.launched.get(owner)
        if times is None:
            times = self.launched[owner] = deque(maxlen=MAX_TIMES)
        times.append((base, launches))

    @property
    def abandoned(self) -> bool:
        """Whether some of its enqueued work will never be done."""
        return self.life.state in ("abandoned", "given up")

    def end(self, seconds: float | None = None) -> None:
        """Ends a run that is done. `seconds` is its device time; None: the time since it began."""
        self.life.transition("end")
        self.done(time.monotonic() - self.since if seconds is None else seconds)

    @property
    def mark(self) -> float:
        """A number that changes whenever something is enqueued or done on its devices."""
        return max(self.moved, max((q.moved for q in self.queues), default=0.0))

    def parts(self) -> list[tuple[int, Launch]]:
        """Returns the launches that may not be done yet, in order of launch id."""
        return sorted(
            (part for owner in list(self.launched) for part in self.parts_of(owner)), key=lambda part: part[0]
        )

    def parts_of(self, owner: Any) -> list[tuple[int, Launch]]:
        """Returns the same only for the program (None), or for one body."""
        times = list(self.launched.get(owner, ()))
        return [(base + n, launch) for base, launches in times for n, launch in enumerate(launches)]


_now, _this_thread = time.monotonic, threading.get_ident


class Launching:
    """A run of one launch while a thread launches it.

    It becomes a `Flight` if its results are not ready when the launch returns, or if another thread asks for it.
    """

    __slots__ = ("base", "claims", "client", "due", "flight", "is_launched", "launches", "number", "since", "thread")

    def __init__(self, launches: "LaunchesOfPlan", client: str) -> None:
        self.launches = launches
        self.client = client
        self.number = -1
        """The number of the run; -1: the call does not have its islands."""
        self.base = -1
        """Its launch id."""
        self.since = _now()
        self.thread = _this_thread()
        self.due: bool | None = None
        """Whether the in-flight limit needs its token; None: it would have to wait."""
        self.is_launched = False
        """Whether its launch has begun."""
        self.claims: list[Any] | None = None
        """The handles of arguments that it overwrites, if any."""
        self.flight: Flight | None = None

    def as_flight(self) -> Flight:
        with _BECOMING:
            if self.flight is None:
                flight = Flight(self.number, self.launches.plan, self.launches.queues, [], self.client, _ignore)
                flight.since = flight.moved = self.since
                flight.thread = self.thread
                flight.begin(None, self.base, self.launches.launches)
                self.flight = flight
            return self.flight


@dataclass(frozen=True)
class LaunchesOfPlan:
    """The launches of a run of a plan, and the queues of all devices that it may use."""

    plan: Plan
    queues: Sequence[DeviceQueue]
    launches: Sequence[Launch]


_BECOMING = threading.RLock()


def _ignore(seconds: float) -> None:
    """Does nothing: the thread that launched the run releases its slots."""


class Line:
    """The runs in flight on one island, oldest first, and the thread that waits for them."""

    def __init__(self, name: str, lines: "Flights") -> None:
        self.name = name
        self.flights: deque[Flight] = deque()
        self._ended = -math.inf
        """The time at which a run was last done."""
        self._lines = lines
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @uninterrupted
    def put(self, flight: Flight, *, eager: bool) -> None:
        flight.life.transition("be enqueued")
        with self._lock:
            self.flights.append(flight)
        if flight.abandoned:  # another thread has just abandoned it
            self.abandon([flight])
            return
        if self._thread is None:
            self._ensure()
            if self._thread is None:  # no thread can be started: this one waits
                self._finish(flight)
        if eager and not self._wake.is_set():
            self._wake.set()

    @uninterrupted  # else an interrupt could leave the lock inside of the event held
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
        """Stops waiting for these runs: they will never be done."""
        with self._lock:
            waiting = bool(self.flights) and self.flights[0] in flights
            ours = [f for f in self.flights if f in flights]  # the others are done meanwhile
            self.flights = deque(f for f in self.flights if f not in flights)
            if waiting:  # the thread may be in a wait that never ends; another one replaces it
                self._thread = None
        self._ensure()
        for flight in ours:
            flight.end()

    def _watch(self) -> None:
        idle = 0
        while (idle < 2 or not self._end()) and not self._lines.ending:
            self._wake.wait(IDLE_POLL_INTERVAL_S)
            self._wake.clear()
            idle = 0 if self.flights else idle + 1
            while (flight := self._next()) is not None:
                self._finish(flight)
            if self._thread is not threading.current_thread():
                return

    def _next(self) -> Flight | None:
        """Returns the oldest run, or None if there is none, or another thread has replaced this one."""
        with self._lock:
            return self.flights[0] if self.flights and self._thread is threading.current_thread() else None

    def _end(self) -> bool:
        """Ends the thread of the line if no run is in flight, or another thread has replaced this one."""
        with self._lock:
            if self._thread is not threading.current_thread():
                return True
            if not self.flights:
                self._thread = None
            return not self.flights

    def _finish(self, flight: Flight) -> None:
        """Waits for a run, and ends it, unless it is abandoned meanwhile."""
        for token in flight.tokens:
            with contextlib.suppress(*FAILURES):  # the results carry the error
                token.block_until_ready()
            if flight.abandoned:
                return
            moved = time.monotonic()
            for queue in flight.queues:
                queue.moved = moved
        now = time.monotonic()
        begun, self._ended = max(flight.since, self._ended), now
        with self._lock:
            if flight.abandoned or flight not in self.flights:  # another thread has ended it
                return
            self.flights.remove(flight)
        flight.end(now - begun)


class Flights:
    """The lines of all islands."""

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        self.ending = False
        self.enqueuing: dict[int, Flight | Launching] = {}
        """Runs that are enqueuing now, by number."""
        self._lock = threading.Lock()

    def line(self, name: str) -> Line:
        with self._lock:
            return self.lines.setdefault(name, Line(name, self))

    def all(self) -> list[Flight]:
        """Returns the runs that are enqueuing or in flight, oldest first."""
        begun = list(self.enqueuing.values())  # read first: a run that moves from here to its line is not missed
        enqueuing = [flight.as_flight() if isinstance(flight, Launching) else flight for flight in begun]
        flying = [f for line in list(self.lines.values()) for f in list(line.flights)]
        found = {f.number: f for f in (*enqueuing, *flying)}
        return [found[number] for number in sorted(found)]

    def abandon(self, devices: Container[Hashable]) -> None:
        """Abandons all runs with launches on any of these devices: those launches will never be done."""
        found = [f for f in self.all() if any(d in devices for _, part in f.parts() for d in part.devices)]
        for flight in found:
            flight.life.transition("be abandoned")
        for line in list(self.lines.values()):
            if ours := [f for f in found if f in line.flights]:
                line.abandon(ours)

    def stop(self) -> None:
        """Ends all threads."""
        self.ending = True
        for line in list(self.lines.values()):
            line.stop()

    def hurry(self) -> None:
        """Makes every thread check its runs now, because a caller waits for a run to end."""
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
