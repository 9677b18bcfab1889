"""Adds the observers that a client requests to its runs on a host of a cluster: fault injection, or recording for
`pw.trace`. `Host` uses it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.errors import DeviceLost
from pathways.runtime.host.devices.executable_cache import Executables
from pathways.runtime.host.devices.islands import PhysicalIsland
from pathways.runtime.host.observe.events import write_events
from pathways.runtime.host.observe.fault_steps import FaultSteps
from pathways.runtime.host.observe.faults import read_fault
from pathways.runtime.host.observe.recorder import Profiling, Recorder
from pathways.runtime.host.run.observer import Observer
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import NotOverProcesses
from pathways.runtime.wire.ids import client_of, hash_of_label


@dataclass(eq=False)
class HostObservers:
    """The observers of all runs of a host."""

    executables: Executables
    take_launches: Callable[[int], int]
    post: Callable[[m.Message], None]
    """Sends a message to the controller."""
    is_shared: bool = False
    """Whether other clients use this host, too. Then no fault may lose its devices."""
    _faults: dict[int, FaultSteps] = field(default_factory=dict[int, FaultSteps])
    """By client: a fault happens only in runs of its client."""
    _labels: dict[int, int] = field(default_factory=dict[int, int])
    """By client: the hash of the label that its fault names, if it names one."""
    _recorders: dict[int, Recorder] = field(default_factory=dict[int, Recorder])
    """By client: a client records only its own runs."""
    _profiling: Profiling = field(default_factory=Profiling)

    def of_run(self, run: int, own: Observer | None, label: int = 0) -> tuple[Observer, ...]:
        """Returns a run's observers, with its `own`, in the order in which they see a step: faults are recorded.

        `label` is the hash of the label of the run's client.
        """
        client = client_of(run)
        fault = self._faults.get(client) if self._faults else None
        if self._labels and self._labels.get(client, label) != label:
            fault = None
        recorder = self._recorders.get(client) if self._recorders else None
        return tuple([o for o in (fault, recorder, own) if o is not None])

    def inject(self, client: int, fault: str) -> str:
        """Starts or ends a fault of a client; returns the number of times that its previous fault has happened.

        Raises PWC0911 for invalid input, PWC0912 if the fault would lose arrays of other clients.
        """
        last = self._faults.pop(client, None)
        self._labels.pop(client, None)
        if fault:
            made = read_fault(fault)
            if made.kind == "lose" and self.is_shared:
                have, rule = "a fault of kind 'lose' on a shared cluster", "a fault of kind raise, delay or hang there"
                raise PathwaysError(NotOverProcesses(what="this fault", have_=have, rule=rule))
            if made.client is not None:
                self._labels[client], made.client = hash_of_label(made.client), None
            self._faults[client] = FaultSteps(made, self.executables, self.take_launches, self._lose)
        return str(0 if last is None else last.fault.happened)

    def _lose(self, island: PhysicalIsland, position: int, reason: str) -> None:
        """Reports a device that a fault has lost. The controller replaces all hosts of the island."""
        self.post(m.Unusable(write_diagnostic(DeviceLost(island=island.key, device=position, reason=reason))))

    def forget(self, client: int) -> None:
        """Ends the fault of a disconnected client."""
        self._faults.pop(client, None)
        self._labels.pop(client, None)

    def record(self, client: int, max_launches: int) -> bytes:
        """Ends a client's recording, and returns it. If `most` is not 0, starts one of at most that many launches."""
        recorder = self._recorders.pop(client, None)
        found = b"" if recorder is None else write_events(recorder.stop(), recorder.plans)
        if max_launches > 0:
            begun = Recorder(max_launches=max_launches, profiling=self._profiling)
            begun.start()
            self._recorders[client] = begun
        return found
