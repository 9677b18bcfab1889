"""What observes the runs of a host, as its controller asks for it: a fault, a recording."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from pathways.runtime.host.devices.executable_cache import Executables
from pathways.runtime.host.devices.islands import PhysicalIsland
from pathways.runtime.host.observe.events import write_events
from pathways.runtime.host.observe.fault_steps import FaultSteps
from pathways.runtime.host.observe.faults import Fault
from pathways.runtime.host.observe.recorder import Recorder
from pathways.runtime.host.run.observer import Observer


@dataclass(eq=False)
class HostObservers:
    """The observers of all runs of a host."""

    executables: Executables
    take_launches: Callable[[int], int]
    _fault: FaultSteps | None = None
    _recorder: Recorder | None = None

    def of_run(self, own: Observer | None) -> tuple[Observer, ...]:
        """Those of a run that has one of its `own`, in the order in which they see a step: a fault is recorded."""
        return tuple([o for o in (self._fault, self._recorder, own) if o is not None])

    @property
    def faults(self) -> int:
        """How often the last fault has happened."""
        return 0 if self._fault is None else self._fault.fault.happened

    def inject(self, fault: str) -> str:
        """Begins or ends a fault; gives how often the last has happened."""
        happened, self._fault = self.faults, None
        if fault:
            self._fault = FaultSteps(Fault(**json.loads(fault)), self.executables, self.take_launches, _kept)
        return str(happened)

    def record(self, most: int) -> bytes:
        """Begins to record so many launches; 0: ends that, and gives what was recorded."""
        recorder, self._recorder = self._recorder, None
        found = b"" if recorder is None else write_events(recorder.stop(), recorder.plans)
        if most > 0:
            begun = Recorder(most=most)
            begun.start()
            self._recorder = begun
        return found


def _kept(island: PhysicalIsland, position: int, reason: str) -> None:
    """A device of a host is not lost alone: faults of that kind are refused where they are asked for."""
