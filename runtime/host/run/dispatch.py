"""One run while it is enqueued: part by part, giving way to others in between and while it waits."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pathways.runtime.client_state import ClientState
from pathways.runtime.host.devices.islands import Machine
from pathways.runtime.host.run.background import Promise
from pathways.runtime.host.run.frame import Frame, Part
from pathways.runtime.host.run.observer import Observer, enqueue_observed
from pathways.runtime.host.run.progress import Pending, wait_any
from pathways.runtime.host.run.runs_in_flight import Flight, Launch


class TurnGiver(Protocol):
    """Who gives turns on islands; a run holds a ticket (control/admission.py)."""

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
    """What a run asks of the controller (control/controller.py)."""

    @property
    def machine(self) -> Machine: ...
    @property
    def turns(self) -> TurnGiver: ...
    @property
    def observers(self) -> Sequence[Observer]: ...
    def patience(self, ticket: Any, client: ClientState) -> None:
        """Raises where a run waits in vain."""
        ...


@dataclass(eq=False)
class Dispatch:
    """Enqueues one run, whose turn it is (`ticket`), and whose progress is watched (`flight`)."""

    control: Control
    ticket: Any
    flight: Flight
    client: ClientState
    promise: Promise | None = None
    """What its results hold, where it is enqueued in the background."""
    observers: Sequence[Observer] = ()
    """Of this run alone."""
    turns: int = 1
    """How often it was its turn."""
    _ends: dict[Any, list[Any]] = field(default_factory=dict[Any, list[Any]])

    def begin(self, who: Any, launches: Sequence[Launch]) -> int:
        """The first launch id for what the program (None) or a body is about to launch."""
        base = self.control.machine.take_launches(len(launches))
        self.flight.begin(who, base, launches)
        return base

    def enqueue(self, part: Part, frame: Frame, *, last: bool) -> None:
        """Enqueues a part; others may go first behind it, if it is not the last."""
        control = self.control
        if self.observers or control.observers:
            enqueue_observed([*control.observers, *self.observers], part.steps, frame, self.flight)
        else:
            for step in part.steps:
                step.enqueue(frame)
        self.flight.moved = time.monotonic()
        if control.turns.contended and not last:
            self._pause()

    def wait(self, pendings: Sequence[Pending]) -> None:
        """Returns when any of these is known; others may enqueue meanwhile.

        Raises PWC0509 if the client goes, PWC0518 if the run is cancelled.
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

    def ends_with(self, who: Any, tokens: list[Any], *, whole: bool) -> None:
        """Notes a body's last launches. Where it was run as a whole, those of an earlier time are done before."""
        self._ends[who] = tokens if whole else [*self._ends.get(who, ()), *tokens]

    def tokens(self) -> list[Any]:
        """What is done when all bodies are."""
        return [token for tokens in self._ends.values() for token in tokens]

    def _pause(self) -> None:
        self.turns += 1
        self.control.turns.pause(self.ticket, self._patience)

    def _patience(self, ticket: Any) -> None:
        if self.promise is not None:
            self.promise.check()
        self.control.patience(ticket, self.client)
