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


class BodyEnds:
    """The last launches of a run's bodies: when they are done, all of its bodies are."""

    def __init__(self) -> None:
        self._tokens: dict[Any, list[Any]] = {}

    def note(self, who: Any, frame: Frame, *, whole: bool) -> None:
        """Notes those of one run of a body. `whole`: it ran to its end; its earlier runs are done before."""
        tokens = [*frame.early, *frame.tokens]
        self._tokens[who] = tokens if whole else [*self._tokens.get(who, ()), *tokens]

    def tokens(self) -> list[Any]:
        return [token for tokens in self._tokens.values() for token in tokens]


@dataclass(eq=False)
class Dispatch:
    """Enqueues one run while it holds its `ticket`; the watchdog sees its progress in `flight`."""

    control: Control
    ticket: Any
    flight: Flight
    client: ClientState
    promise: Promise | None = None
    """The promise that its results hold where it is enqueued in the background."""
    observers: Sequence[Observer] = ()
    """Observers of this run alone."""
    turns: int = 1
    """The number of turns that it has had."""
    ends: BodyEnds = field(default_factory=BodyEnds)

    def begin(self, who: Any, launches: Sequence[Launch]) -> int:
        """Takes launch ids for what the program (None) or a body is about to launch; returns the first."""
        base = self.control.machine.take_launches(len(launches))
        self.flight.begin(who, base, launches)
        return base

    def enqueue(self, part: Part, frame: Frame, *, last: bool) -> None:
        """Enqueues a part; then, if it is not the last, lets other runs go first."""
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

    def ends_with(self, who: Any, frame: Frame, *, whole: bool) -> None:
        """Notes the tokens of a body's last launches. `whole`: it ran to its end; its earlier runs are done before."""
        self.ends.note(who, frame, whole=whole)

    def _pause(self) -> None:
        self.turns += 1
        self.control.turns.pause(self.ticket, self._patience)

    def _patience(self, ticket: Any) -> None:
        if self.promise is not None:
            self.promise.check()
        self.control.patience(ticket, self.client)
