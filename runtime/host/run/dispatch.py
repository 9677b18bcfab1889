"""One run while it is enqueued: part by part, giving way to others in between and while it waits."""

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


class TurnGiver(Protocol):
    """Gives runs their turns on islands; a run holds a ticket (control/admission.py)."""

    @property
    def contended(self) -> bool:
        """Whether another run waits for its turn."""
        ...

    def step_aside(self, ticket: Any) -> None:
        """Lets others go first while a run waits for a value."""
        ...

    def pause(self, ticket: Any, patience: Callable[[Any], None]) -> None:
        """Lets others go first; returns when it is this run's turn again. `patience` is called while it waits."""
        ...


class Control(Protocol):
    """What a run asks of the controller (client/controller.py)."""

    @property
    def machine(self) -> Machine: ...
    @property
    def turns(self) -> TurnGiver: ...
    @property
    def observers(self) -> Sequence[Observer]: ...
    def patience(self, ticket: Any, client: ClientState) -> None:
        """Raises where what a run waits for can never come."""
        ...


@dataclass(eq=False, kw_only=True)
class Dispatch(Enqueuer):
    """Enqueues one run while it holds its `ticket`, and lets others go first between parts."""

    control: Control
    ticket: Any
    client: ClientState
    promise: Promise | None = None
    """The promise that its results hold where it is enqueued in the background."""
    turns: int = 1
    """The number of turns that it has had."""

    def enqueue(self, part: Part, frame: Frame, *, last: bool) -> None:
        seen = self.control.observers
        self.enqueue_steps(part, frame, (*seen, *self.observers) if self.observers else seen)
        if self.control.turns.contended and not last:
            self._pause()

    def wait(self, pendings: Sequence[Pending]) -> None:
        """Waits until any of these is known; other runs may enqueue meanwhile.

        Raises PWC0509 if the client is closed, PWC0518 if the run is cancelled.
        """
        if not any(p.is_known() for p in pendings):
            self.control.turns.step_aside(self.ticket)
            wait_any(pendings)
            self.flight.moved = time.monotonic()
            self._pause()
        elif self.control.turns.contended:
            self._pause()
        if self.client.closed or (self.promise is not None and self.promise.cancelled):
            self._patience(self.ticket)

    def _pause(self) -> None:
        self.turns += 1
        self.control.turns.pause(self.ticket, self._patience)

    def _patience(self, ticket: Any) -> None:
        if self.promise is not None:
            self.promise.check()
        self.control.patience(ticket, self.client)
