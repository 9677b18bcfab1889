"""Records when runs and steps were submitted, enqueued, started and ended, for one file that Perfetto shows.

Recording is off the hot path: without it nothing is checked; with it steps are enqueued one by one between two looks at
the clock, and XLA's profiler says when each device worked on which launch.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pathways.dialect.files import write_whole
from pathways.dialect.plan.instructions import Copy, Recv, Run
from pathways.dialect.plan.nouns import Plan
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.islands import PhysicalIsland
from pathways.runtime.host.observe import perfetto
from pathways.runtime.host.observe.perfetto import DeviceSpan, LaunchSpan, Moved, RunSpan
from pathways.runtime.host.run.frame import Frame, Step
from pathways.runtime.host.run.observer import Observer
from pathways.runtime.host.run.runs_in_flight import Flight

MOST_LAUNCHES = 200_000
"""The most events of a recording: more would make a file that no viewer opens."""


@dataclass(eq=False)
class Recorder(Observer):
    """Records all runs of this process from `start` to `stop`. Times are nanoseconds of `time.perf_counter_ns`."""

    path: Path
    runs: dict[int, RunSpan] = field(default_factory=dict[int, RunSpan])
    launches: dict[int, LaunchSpan] = field(default_factory=dict[int, LaunchSpan])
    moves: list[Moved] = field(default_factory=list[Moved])
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _profile: pjrt.Profile | None = None

    def start(self) -> None:
        self._profile = pjrt.start_profile()

    def submitted(self, number: int, plan: Plan, client: str) -> None:
        with self._lock:
            self.runs[number] = RunSpan(number, plan.name, client, time.perf_counter_ns())

    def turn(self, number: int) -> None:
        if number in self.runs:
            self.runs[number].turn = time.perf_counter_ns()

    def enqueued(self, number: int) -> None:
        if number in self.runs:
            self.runs[number].enqueued = time.perf_counter_ns()

    def done(self, number: int) -> None:
        if number in self.runs:
            self.runs[number].done = time.perf_counter_ns()

    def after_step(self, flight: Flight, step: Step, frame: Frame, begin: int, end: int) -> None:
        instruction, island = step.instruction, step.island
        with self._lock:
            if len(self.launches) >= MOST_LAUNCHES:
                return
            if isinstance(instruction, Run):
                positions = tuple(island.devices.index(d) for d in step.devices)
                base, launch = frame.base, frame.base + step.launch
                devices, plan = step.devices, step.plan
                self.launches[launch] = LaunchSpan(
                    launch, flight.number, base, island.key, positions, instruction, plan, begin, end, devices
                )
            elif isinstance(instruction, Recv | Copy):
                self.moves.append(Moved(flight.number, island.key, instruction, begin, end))

    def stop(self, islands: Sequence[PhysicalIsland]) -> None:
        """Writes the file. Raises PWC0606 where that fails."""
        spans = self._spans()
        text = perfetto.write(list(self.runs.values()), list(self.launches.values()), self.moves, spans, islands)
        write_whole(self.path, text)

    def _spans(self) -> list[DeviceSpan]:
        """Collects when each device worked on which launch, as far as the platform tells."""
        if self._profile is None:
            return []
        spans: list[DeviceSpan] = []
        for (launch, ordinal), (begin, end) in pjrt.stop_profile(self._profile).items():
            known = self.launches.get(launch)
            if known is None:
                continue
            for position, device in zip(known.positions, known.devices, strict=True):
                if pjrt.ordinal(device) == ordinal:
                    spans.append(DeviceSpan(launch, known.island, position, begin, end))
        return spans
