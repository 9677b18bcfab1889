"""Runs a thread that polls all runs whose work is on devices, and reports those that hang. It must not report a device
that only takes long. Hosts and the client's controller start it.

`hang_rule.py` judges each poll. A run that hangs loses its devices (`hung_launches.py`). A run that may hang is
reported, once and then at doubling intervals, and continues. XLA would abort the whole process for a stuck collective,
so XLA's own time limit is longer than any run (dialect/platforms.py).
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence

from pathways.dialect.diagnostics import Diagnostic, Exit, PathwaysError
from pathways.runtime.errors import Hang
from pathways.runtime.host.devices import callbacks
from pathways.runtime.host.devices.callbacks import Inside
from pathways.runtime.host.devices.in_flight_limit import DeviceQueue
from pathways.runtime.host.observe import hang_report
from pathways.runtime.host.observe.cpu_time import CpuTime, of_thread
from pathways.runtime.host.observe.hang_rule import Doubling, Evidence, Stillness, Verdict, judge
from pathways.runtime.host.run.hung_launches import give_up_run
from pathways.runtime.host.run.runs_in_flight import Flight, Flights, Launch
from pathways.runtime.journal import last_events
from pathways.runtime.threads import started
from pathways.runtime.time_limits import time_limit

TIMEOUT = "PATHWAYS_HANG_TIMEOUT"
"""The environment variable for the seconds without progress after which a run may be called hung; 0: never."""
MAX_POLL_INTERVAL_S = 0.5
"""Maximum number of seconds between two polls."""
DOOMED_RUN_TIMEOUT_S = 2.0
"""Seconds after a hang within which runs that had stopped before must progress, or count as hung. Errors need far less
time to reach them."""


class Watchdog:
    """Polls all runs in flight, on a thread that lives while there are any.

    `on_host`: devices compute with this process's own CPU time, which then proves whether they compute. `end` marks the
    devices of a hang as lost.
    """

    def __init__(
        self,
        flights: Flights,
        on_host: bool,
        end: Callable[[Hang, Mapping[Hashable, DeviceQueue]], None],
        timeout: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        suspect: Callable[[Hang], None] | None = None,
    ) -> None:
        """`suspect` is notified of a hang if other hosts share the island: one may compute what this host waits for.

        Raises PWC0707 if the environment variable is not a number of seconds.
        """
        self.timeout = time_limit(TIMEOUT, "120", may_be_zero=True) if timeout is None else timeout
        self._flights = flights
        self._clock = clock
        self._on_host = on_host
        self._end = end
        self._suspect = suspect
        self._idle = 0.0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._period = min(MAX_POLL_INTERVAL_S, self.timeout / 4)
        self._stillness = Stillness(2 * self._period)
        self._reported = Doubling(self.timeout)
        self._cpu = CpuTime()
        self.ends_process = False
        """Whether the process exits if a hang blocks a thread that cannot be freed, as `pwc run` requires."""
        self._given_up: set[int] = set()
        self._doomed: set[int] = set()
        """Runs that had made no progress for too long when another run was found to hang."""

    def ensure(self) -> None:
        """Starts the thread if there is none. Called when a run begins."""
        with self._lock:
            if self._thread is None and self.timeout:
                thread = threading.Thread(target=self._watch, name="pathways-watchdog", daemon=True)
                if started(thread):  # else the next run tries again
                    self._thread = thread

    def report_progress(self) -> tuple[float, list[str]]:
        """Returns the seconds for which this process has computed nothing, and the launches of its runs, as lines."""
        flights = self._flights.all()
        lines = [line for f in flights for line in hang_report.perhaps(f, 0, 0).calls.splitlines()]
        return self._idle if flights else float(1 << 30), lines

    @property
    def is_watching(self) -> bool:
        return self._thread is not None or not self.timeout

    def _watch(self) -> None:
        idle = 0
        try:
            while idle < 3 and not self._flights.ending:
                time.sleep(self._period)
                idle = 0 if self.poll() else idle + 1
        finally:
            with self._lock:
                self._thread = None
        if self._flights.all() and not self._flights.ending:  # a run began in between
            self.ensure()

    def poll(self) -> int:
        """Polls all runs, and ends or reports those that hang; returns the number of runs."""
        flights = self._flights.all()
        self._stillness.poll(self._clock())
        still = {f.number: self._stillness.of(f.number, f.mark) for f in flights}
        slow = any(seconds >= self.timeout / 2 for seconds in still.values())
        self._cpu.poll(closely=slow)
        inside = list(callbacks.inside())
        used = {call: of_thread(call.native) if call.progress is None else call.progress() for call in inside}
        elsewhere = tuple(used[call] for call in inside if call.progress is not None)
        waiting = {call: self._stillness.of(call, mark) for call, mark in used.items() if mark is not None}
        idle = self._idle = self._stillness.of("process", (self._cpu.process, elsewhere))
        devices = self._stillness.of("devices", self._cpu.devices)
        inline = self._inline({f.thread for f in flights if f.thread}) if slow else {}
        self._stillness.keep({*still, *waiting, "process", "devices", *(("thread", t) for t in inline)})
        self._reported.keep(set(still))
        self._doomed &= set(still)
        for flight in flights if slow or self._doomed else ():
            calls = {call.launch: waiting[call] for call in waiting if _waits_in(flight, call)}
            seen = Evidence(
                still=still[flight.number],
                idle=idle if self._on_host else None,
                devices_idle=self._devices_idle(devices, inline.get(flight.thread)),
                in_callback=max(calls.values(), default=0.0),
                beside=any(s < self.timeout for n, s in still.items() if n != flight.number),
            )
            verdict = judge(
                seen, min(DOOMED_RUN_TIMEOUT_S, self.timeout) if flight.number in self._doomed else self.timeout
            )
            if verdict is Verdict.HUNG and self._suspect is not None:
                if self._reported.is_due(flight.number, seen.still):
                    self._suspect(
                        hang_report.hang(flight, len(flights) - 1, self.timeout, hang_report.not_done(flight))
                    )
                continue
            if verdict is Verdict.HUNG and flight.abandoned:
                self._stuck(flight)
            elif verdict is Verdict.HUNG:
                named = {name for name, seconds in calls.items() if seconds >= self.timeout}
                self._lose(flight, flights, named)
                break  # the other runs may continue now
            if verdict is Verdict.SUSPECTED and self._reported.is_due(flight.number, seen.still):
                _print_report(hang_report.perhaps(flight, len(flights) - 1, seen.still))
        return len(flights)

    def _inline(self, threads: set[int]) -> dict[int, float]:
        """Measures for how long enqueuing threads have used no CPU time."""
        natives = {t.ident: t.native_id for t in threading.enumerate() if t.ident in threads and t.native_id}
        return {t: self._stillness.of(("thread", t), of_thread(n)) for t, n in natives.items() if t}

    def _stuck(self, flight: Flight) -> None:
        """Handles a run whose devices are lost, and whose thread waits inside of XLA and cannot be interrupted."""
        if self.ends_process:
            sys.stdout.flush()
            os._exit(Exit.HANG)
        if flight.number not in self._given_up:
            self._given_up.add(flight.number)
            _print_report(hang_report.unreachable(flight))

    def _devices_idle(self, devices: float, inline: float | None) -> float | None:
        """Returns the idle time of the devices. Small computations run on the enqueuing thread (`inline`)."""
        if not self._on_host or self._cpu.devices is None:
            return None
        return devices if inline is None else min(devices, inline)

    def _lose(self, flight: Flight, flights: Sequence[Flight], named: set[str]) -> None:
        """Fails and reports launches that hang, and marks their devices as lost.

        `named`: the computations that are stuck in callbacks.
        """

        def hangs(launch: Launch) -> bool:
            return not named or launch.run.name in named

        self._doomed = {f.number for f in flights if self._stillness.of(f.number, f.mark) >= self.timeout}
        done = give_up_run(flight, flights, hangs)
        report = hang_report.hang(flight, len(flights) - 1, self.timeout, done.stuck)
        try:
            self._end(report, done.lost)
        finally:
            done.publish(report)
        _print_report(report)
        self._stillness = Stillness(2 * self._period)


def _print_report(report: Diagnostic) -> None:
    """Prints a report. A closed or full stderr must not stop the watchdog."""
    with contextlib.suppress(Exception):
        happened = "\n  ".join(["last events:", *last_events()])
        print(PathwaysError(report), happened, sep="\n", file=sys.stderr, flush=True)


def _waits_in(flight: Flight, call: Inside) -> bool:
    return any(launch.run.name == call.launch for _, launch in flight.parts())
