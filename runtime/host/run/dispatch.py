"""Enqueues the computations of one run on devices of the client's process. It pauses between groups of them, and while
it waits for values, so that runs of other clients can be enqueued. `client/loaded_plan.py` makes one for each run.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pathways.runtime.client_state import ClientState
from pathways.runtime.host.devices.islands import Machine
from pathways.runtime.host.run.background import Promise
from pathways.runtime.host.run.enqueuer import Enqueuer
from pathways.runtime.host.run.frame import Frame, Part
from pathways.runtime.host.run.observer import Observer
from pathways.runtime.host.run.progress import Pending, wait_any


class AdmissionControl(Protocol):
    """Schedules runs on islands. A run holds a ticket (control/admission.py)."""

    @property
    def contended(self) -> bool:
        """Whether another run waits to be scheduled."""
        ...

    def yield_slot(self, ticket: Any) -> None:
        """Yields to other runs while a run waits for a value."""
        ...

    def pause(self, ticket: Any, patience: Callable[[Any], None]) -> None:
        """Yields to other runs; returns when this run is scheduled again. Calls `patience` while it waits."""
        ...


class Control(Protocol):
    """The interface of the controller to a run (client/controller.py)."""

    @property
    def machine(self) -> Machine: ...
    @property
    def run_queue(self) -> AdmissionControl: ...
    @property
    def observers(self) -> Sequence[Observer]: ...
    def patience(self, ticket: Any, client: ClientState) -> None:
        """Raises if a run waits for an event that can never happen."""
        ...


@dataclass(eq=False, kw_only=True)
class Dispatch(Enqueuer):
    """Enqueues one run while it holds its `ticket`, and yields to other runs between groups of steps."""

    control: Control
    ticket: Any
    client: ClientState
    promise: Promise | None = None
    """The promise that its results hold if it is enqueued in the background."""
    times_scheduled: int = 1
    """The number of times that it was scheduled."""

    def enqueue(self, part: Part, frame: Frame, *, last: bool) -> None:
        self.enqueue_steps(part, frame)
        if self.control.run_queue.contended and not last:
            self._pause()

    def wait(self, pendings: Sequence[Pending]) -> None:
        """Waits until any of these is known; other runs may enqueue meanwhile.

        Raises PWC0509 if the client is closed, PWC0518 if the run is cancelled.
        """
        if not any(p.is_known() for p in pendings):
            self.control.run_queue.yield_slot(self.ticket)
            wait_any(pendings)
            self.flight.moved = time.monotonic()
            self._pause()
        elif self.control.run_queue.contended:
            self._pause()
        if self._is_stopped:
            self._patience(self.ticket)

    @property
    def all_observers(self) -> Sequence[Observer]:
        """The observers of this run and of all runs."""
        seen = self.control.observers
        return (*seen, *self.observers) if self.observers else seen

    @property
    def may_go_on(self) -> bool:
        return not (self.control.run_queue.contended or self._is_stopped)

    @property
    def _is_stopped(self) -> bool:
        """Whether its client is closed or its run is cancelled."""
        return self.client.closed or (self.promise is not None and self.promise.cancelled)

    def _pause(self) -> None:
        self.times_scheduled += 1
        self.control.run_queue.pause(self.ticket, self._patience)

    def _patience(self, ticket: Any) -> None:
        if self.promise is not None:
            self.promise.check()
        self.control.patience(ticket, self.client)
