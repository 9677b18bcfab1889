"""No silent hang: when nothing moves for too long, a roll-call, and the end of the process (exit code 4).

A stuck collective cannot be cancelled in its own process, and XLA would abort it without a word of what hangs. So the
time that XLA gives itself is set beyond ours (`pjrt.py`).
"""

import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator

from pathways.dialect.diagnostics import Exit, PathwaysError
from pathways.dialect.errors import BadSetting
from pathways.dialect.plan import Run
from pathways.runtime import callbacks, pjrt
from pathways.runtime.errors import Hang
from pathways.runtime.flights import Flight, Flights

TIMEOUT = "PATHWAYS_HANG_TIMEOUT"
"""Names the seconds without progress after which a run counts as hung; 0: never."""
MOST = 8
"""How many lines of each kind a roll-call has."""


def _stated() -> float:
    value = os.environ.get(TIMEOUT, "120")
    with contextlib.suppress(ValueError):
        if (seconds := float(value)) >= 0:
            return seconds
    raise PathwaysError(BadSetting(source=TIMEOUT, value=value, rule="seconds, 0 for ever", example=f"{TIMEOUT}=120"))


class Watchdog:
    """Looks at all runs in flight, from a thread that lives while there are any."""

    def __init__(self, flights: Flights, timeout: float | None = None) -> None:
        """Raises PWC0707 where the environment states no number of seconds."""
        self.timeout = _stated() if timeout is None else timeout
        self._flights = flights
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def ensure(self) -> None:
        """Starts watching; called when a run takes off and nobody watches."""
        with self._lock:
            if self._thread is None and self.timeout:
                thread = threading.Thread(target=self._watch, name="pathways-watchdog", daemon=True)
                thread.start()  # where that fails, the next run tries again
                self._thread = thread

    @property
    def is_watching(self) -> bool:
        return self._thread is not None or not self.timeout

    def _watch(self) -> None:
        idle = 0
        while idle < 3 and not self._flights.ending:
            time.sleep(min(0.5, self.timeout / 4))
            idle = 0 if self._look() else idle + 1
        with self._lock:
            self._thread = None
        if self._flights.all() and not self._flights.ending:  # one came in between
            self.ensure()

    def _look(self) -> int:
        """How many runs are in flight; what it looked at is not held while it sleeps."""
        flights = self._flights.all()
        hung = [f for f in flights if f.still() > self.timeout]
        if hung:
            end(hung[0], flights, self.timeout)
        return len(flights)


def end(flight: Flight, flights: list[Flight], timeout: float) -> None:
    """Says what hangs, and ends the process."""
    error = PathwaysError(roll_call(flight, flights, timeout))
    print(error, file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(Exit.HANG)


def roll_call(flight: Flight, flights: list[Flight], timeout: float) -> Hang:
    """Who waits, where, on what. Asking a device about a launch cancels it: nothing is resumed after this."""
    inside = list(callbacks.inside())
    pending = list(_pending(flight))
    first = pending[0][0] if pending else None
    lines = [f"{run.name} was launched on {where}, and is not done" for run, where in pending[:1]]
    if first is None:
        lines.append("none of its computations: a launch did not come back, or the platform does not say")
    lines += [f"behind it waits {run.name} on {where}" for run, where in pending[1:MOST]]
    if len(pending) > MOST:
        lines.append(f"and {len(pending) - MOST} more")
    for call in inside[:MOST]:
        stack = sys._current_frames().get(call.thread)  # pyright: ignore[reportPrivateUsage]
        at = traceback.extract_stack(stack)[-1] if stack is not None else None
        place = f" at {at.filename}:{at.lineno} in {at.name}" if at is not None else ""
        lines.append(f"a host callback of {call.computation} has not returned for {call.seconds:.1f} s{place}")
    others = len(flights) - 1
    return Hang(
        seconds=f"{timeout:g}",
        program=flight.plan.name,
        run=flight.number,
        client=flight.client,
        calls="\n".join(lines),
        others=f"{others} other runs in flight" if others else "no other run in flight",
        where=None if first is None else first.where,
    )


def _pending(flight: Flight) -> Iterator[tuple[Run, str]]:
    """What was launched and is not done, in order, with the devices on which it waits."""
    parts = sorted((part for times in list(flight.launched.values()) for part in list(times)), key=lambda p: p[0])
    for number, launch in ((base + n, launch) for base, launches in parts for n, launch in enumerate(launches)):
        waiting = [i for i, d in enumerate(launch.devices) if pjrt.is_pending(d, number)]
        if waiting:
            count = len(launch.devices)
            where = f"all {count} devices" if len(waiting) == count else f"devices {', '.join(map(str, waiting))}"
            yield launch.run, f"{where} of {launch.island}"
