"""One run while it is enqueued: part by part, giving way to others in between and while it waits."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pathways.runtime.clients import ClientState
from pathways.runtime.control.admission import Ticket
from pathways.runtime.control.controller import Controller
from pathways.runtime.host.load.steps import Part
from pathways.runtime.host.observe import faults
from pathways.runtime.host.observe.fault_steps import Look, enqueue_part
from pathways.runtime.host.run.background import Promise
from pathways.runtime.host.run.in_flight import Flight, Launch
from pathways.runtime.host.run.progress import Pending, Slots, wait_any


@dataclass(eq=False)
class Enqueuing:
    """The turn of a run (`ticket`), whose progress is watched (`flight`)."""

    controller: Controller
    ticket: Ticket
    flight: Flight
    client: ClientState
    promise: Promise | None = None
    """What its results hold, where it is enqueued in the background."""
    look: Look | None = None
    """Is called behind every step."""
    turns: int = 1
    """How often it was its turn."""
    _ends: dict[Any, list[Any]] = field(default_factory=dict[Any, list[Any]])

    def begin(self, who: Any, launches: Sequence[Launch]) -> int:
        base = self.controller.machine.take_launches(len(launches))
        self.flight.begin(who, base, launches)
        return base

    def enqueue(self, part: Part, slots: Slots, base: int, *, last: bool) -> None:
        controller = self.controller
        if faults.active or controller.recorder is not None or self.look is not None:
            enqueue_part(controller, part, slots, base, self.flight, self.look)
        else:
            for step in part.steps:
                step(slots, base)
        self.flight.moved = time.monotonic()
        if controller.turns.contended and not last:
            self._pause()

    def wait(self, pendings: Sequence[Pending]) -> None:
        """Returns when any of these is known; others may enqueue meanwhile.

        Raises PWC0509 if the client goes, PWC0518 if the run is cancelled.
        """
        if not any(p.is_known() for p in pendings):
            self.controller.turns.step_aside(self.ticket)
            wait_any(pendings)
            self.flight.moved = time.monotonic()
            self._pause()
        elif self.controller.turns.contended:
            self._pause()
        if self.client.closed or (self.promise is not None and self.promise.cancelled):
            self._patience(self.ticket)

    def ends_with(self, who: Any, tokens: list[Any], *, whole: bool) -> None:
        self._ends[who] = tokens if whole else [*self._ends.get(who, ()), *tokens]

    def tokens(self) -> list[Any]:
        """What is done when all bodies are."""
        return [token for tokens in self._ends.values() for token in tokens]

    def _pause(self) -> None:
        self.turns += 1
        self.controller.turns.pause(self.ticket, self._patience)

    def _patience(self, ticket: Ticket) -> None:
        if self.promise is not None:
            self.promise.check()
        self.controller.patience(ticket, self.client)
