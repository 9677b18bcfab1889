"""Records when each run and each computation was submitted, enqueued, started and done. `pw.trace` uses it in its own
process, and `HostObservers` on the hosts of a cluster.

Recording is off the hot path: without it nothing is checked. With it, steps are enqueued one by one between two reads
of the clock. XLA's profiler reports when each device worked on which launch. Times are nanoseconds of
`time.perf_counter_ns`.
"""

import threading
import time
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pathways.dialect.plan.instructions import Copy, Recv, Run
from pathways.dialect.plan.nouns import Plan
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.observe.perfetto import DeviceSpan, LaunchSpan, Moved, Recording, RunSpan
from pathways.runtime.host.run.frame import Frame, Step
from pathways.runtime.host.run.observer import Observer
from pathways.runtime.host.run.runs_in_flight import Flight

MAX_LAUNCHES = 200_000
"""Maximum number of launches in a recording, and of transfers: no viewer opens a larger file."""


@dataclass(eq=False)
class RunRecorder(Observer):
    """Records the times of runs as the controller observes them."""

    runs: dict[int, RunSpan] = field(default_factory=dict[int, RunSpan])
    plans: dict[int, Plan] = field(default_factory=dict[int, Plan])
    """The plans of these runs, by the number of the run."""

    def submitted(self, number: int, plan: Plan, client: str) -> None:
        self.plans[number] = plan
        self.runs[number] = RunSpan(number, plan.name, client, time.perf_counter_ns())

    def scheduled(self, number: int) -> None:
        if number in self.runs:
            self.runs[number].scheduled = time.perf_counter_ns()

    def enqueued(self, number: int) -> None:
        if number in self.runs:
            self.runs[number].enqueued = time.perf_counter_ns()

    def done(self, number: int) -> None:
        if number in self.runs:
            self.runs[number].done = time.perf_counter_ns()


Spans: TypeAlias = dict[tuple[int, int], tuple[int, int]]
"""By launch number and device ordinal: the first start and the last end of the launch on the device."""


@dataclass(eq=False)
class Profiling:
    """Shares XLA's profiler, of which a process has only one, among recordings. All calls are on one thread.

    When one recording ends, the profiler restarts: for a moment the other recordings miss events of devices.
    """

    _session: pjrt.Profile | None = None
    _found: list[Spans] = field(default_factory=list[Spans])
    """The spans of each active recording, up to the time at which another recording last ended."""

    def begin(self) -> Spans:
        """Starts a recording. The returned spans are filled until it ends."""
        found: Spans = {}
        self._session = self._session or pjrt.start_profile()
        self._found.append(found)
        return found

    def end(self, found: Spans) -> None:
        session, self._session = self._session, None
        try:
            seen = {} if session is None else pjrt.stop_profile(session)
            for key, (begin, end) in seen.items():
                for each in self._found:
                    first, last = each.get(key, (begin, end))
                    each[key] = min(first, begin), max(last, end)
        finally:  # this recording ends even if the profiler fails
            self._found = [each for each in self._found if each is not found]
        self._session = pjrt.start_profile() if self._found else None


@dataclass(eq=False)
class Recorder(RunRecorder):
    """Records the work of this process from `start` to `stop`."""

    max_launches: int = MAX_LAUNCHES
    launches: dict[int, LaunchSpan] = field(default_factory=dict[int, LaunchSpan])
    moves: list[Moved] = field(default_factory=list[Moved])
    _devices: dict[int, tuple[pjrt.Device, ...]] = field(default_factory=dict[int, Any])
    """The devices of each launch."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    profiling: Profiling = field(default_factory=Profiling)
    _found: Spans | None = None

    def start(self) -> None:
        self._found = self.profiling.begin()

    def after_step(self, flight: Flight, step: Step, frame: Frame, begin: int, end: int) -> None:
        instruction, island = step.instruction, step.island
        with self._lock:
            self.plans[flight.number] = flight.plan
            island.users.add(self)  # the recording names it, so it stays bound until the recording is written
            if isinstance(instruction, Run) and len(self.launches) < self.max_launches:
                positions = tuple(island.devices.index(d) for d in step.devices)
                base, launch = frame.base, frame.base + step.launch
                self._devices[launch] = step.devices
                self.launches[launch] = LaunchSpan(
                    launch, flight.number, base, island.key, positions, instruction, step.plan, begin, end
                )
            elif isinstance(instruction, Recv | Copy) and len(self.moves) < self.max_launches:
                kind = "receive" if isinstance(instruction, Recv) else "copy"
                self.moves.append(Moved(flight.number, island.key, kind, instruction.step, begin, end))

    def stop(self) -> Recording:
        """Ends the recording, and returns it."""
        spans = self._spans()
        return Recording(list(self.runs.values()), list(self.launches.values()), self.moves, spans)

    def _spans(self) -> list[DeviceSpan]:
        """Collects when each device worked on which launch, if the platform reports it."""
        if self._found is None:
            return []
        self.profiling.end(self._found)
        spans: list[DeviceSpan] = []
        for (launch, ordinal), (begin, end) in self._found.items():
            known = self.launches.get(launch)
            if known is None:
                continue
            for position, device in zip(known.positions, self._devices[launch], strict=True):
                if pjrt.ordinal(device) == ordinal:
                    spans.append(DeviceSpan(launch, known.island, position, begin, end))
        return spans
