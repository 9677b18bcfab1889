"""What observes the runs of a host, as its controller asks for it: a fault, a recording."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from pathways.runtime.host.devices.executable_cache import Executables
from pathways.runtime.host.devices.islands import PhysicalIsland
from pathways.runtime.host.observe.events import write_events
from pathways.runtime.host.observe.fault_steps import FaultSteps
from pathways.runtime.host.observe.faults import Fault
from pathways.runtime.host.observe.recorder import Recorder
from pathways.runtime.host.run.observer import Observer
from pathways.runtime.wire.ids import client_of


@dataclass(eq=False)
class HostObservers:
    """The observers of all runs of a host."""

    executables: Executables
    take_launches: Callable[[int], int]
    _faults: dict[int, FaultSteps] = field(default_factory=dict[int, FaultSteps])
    """By client: a fault is brought to no other's runs."""
    _recorder: Recorder | None = None

    def of_run(self, run: int, own: Observer | None) -> tuple[Observer, ...]:
        """Those of a run that has one of its `own`, in the order in which they see a step: a fault is recorded."""
        fault = self._faults.get(client_of(run)) if self._faults else None
        return tuple([o for o in (fault, self._recorder, own) if o is not None])

    @property
    def faults(self) -> int:
        """How often the last faults have happened."""
        return sum(steps.fault.happened for steps in self._faults.values())

    def inject(self, client: int, fault: str) -> str:
        """Begins or ends a fault of a client; gives how often its last has happened."""
        last = self._faults.pop(client, None)
        if fault:
            made = Fault(**json.loads(fault))
            self._faults[client] = FaultSteps(made, self.executables, self.take_launches, _kept)
        return str(0 if last is None else last.fault.happened)

    def forget(self, client: int) -> None:
        """Ends the fault of a client that is gone."""
        self._faults.pop(client, None)

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
