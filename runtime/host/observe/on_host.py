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

NO_FAULT = None, None


@dataclass(eq=False)
class HostObservers:
    """The observers of all runs of a host."""

    executables: Executables
    take_launches: Callable[[int], int]
    post: Callable[[m.Message], None]
    """Sends a message to the controller."""
    is_shared: bool = False
    """Whether other clients use this host, too. Then no fault may lose its devices."""
    _faults: dict[int, tuple[FaultSteps, int | None]] = field(
        default_factory=dict[int, "tuple[FaultSteps, int | None]"]
    )
    """By client: the fault that happens in its runs, and the hash of the label that the fault names, if any."""
    _recorders: dict[int, Recorder] = field(default_factory=dict[int, Recorder])
    """By client: a client records only its own runs."""
    _profiling: Profiling = field(default_factory=Profiling)

    def of_run(self, run: int, own: Observer | None, label: int = 0) -> tuple[Observer, ...]:
        """Returns a run's observers, with its `own`, in the order in which they see a step: faults are recorded.

        `label` is the hash of the label of the run's client.
        """
        client = client_of(run)
        fault, wanted = self._faults.get(client, NO_FAULT) if self._faults else NO_FAULT
        if wanted not in (None, label):
            fault = None
        recorder = self._recorders.get(client) if self._recorders else None
        return tuple([o for o in (fault, recorder, own) if o is not None])

    def inject(self, client: int, fault: str) -> str:
        """Starts or ends a fault of a client; returns the number of times that its previous fault has happened.

        Raises PWC0911 for invalid input, PWC0912 if the fault would lose arrays of other clients.
        """
        last, _ = self._faults.pop(client, NO_FAULT)
        if fault:
            made = read_fault(fault)
            if made.kind == "lose" and self.is_shared:
                have, rule = "a fault of kind 'lose' on a shared cluster", "a fault of kind raise, delay or hang there"
                raise PathwaysError(NotOverProcesses(what="this fault", have_=have, rule=rule))
            label, made.client = None if made.client is None else hash_of_label(made.client), None
            self._faults[client] = FaultSteps(made, self.executables, self.take_launches, self._lose), label
        return str(0 if last is None else last.fault.happened)

    def _lose(self, island: PhysicalIsland, position: int, reason: str) -> None:
        """Reports a device that a fault has lost. The controller replaces all hosts of the island."""
        self.post(m.Unusable(write_diagnostic(DeviceLost(island=island.key, device=position, reason=reason))))

    def forget(self, client: int) -> None:
        """Ends the fault of a disconnected client."""
        self._faults.pop(client, None)

    def record(self, client: int, max_launches: int) -> bytes:
        """Ends a client's recording, and returns it. If `max_launches` is positive, starts one of at most that many."""
        recorder = self._recorders.pop(client, None)
        found = b"" if recorder is None else write_events(recorder.stop(), recorder.plans)
        if max_launches > 0:
            begun = Recorder(max_launches=max_launches, profiling=self._profiling)
            begun.start()
            self._recorders[client] = begun
        return found
