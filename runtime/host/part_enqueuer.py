"""One run of a host's part of a plan while it is enqueued."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pathways.runtime.host.devices.islands import Machine
from pathways.runtime.host.run.dispatch import BodyEnds
from pathways.runtime.host.run.frame import Frame, Part
from pathways.runtime.host.run.observer import Observer, enqueue_observed
from pathways.runtime.host.run.runs_in_flight import Flight, Launch


@dataclass(frozen=True, eq=False)
class PartEnqueuer:
    """Enqueues one run: no other comes between."""

    machine: Machine
    flight: Flight
    observers: Sequence[Observer]
    ends: BodyEnds = field(default_factory=BodyEnds)
    _frames: dict[int, Frame] = field(default_factory=dict[int, Frame])
    """What is under way: the program, and bodies."""

    def begin(self, who: Any, launches: Sequence[Launch]) -> int:
        base = self.machine.take_launches(len(launches))
        self.flight.begin(who, base, launches)
        return base

    def tokens(self) -> list[Any]:
        """All that is done when what this host has enqueued is. Another thread may ask, while this one waits."""
        return [t for f in tuple(self._frames.values()) for t in (*f.tokens, *f.early)] + self.ends.tokens()

    def enqueue(self, part: Part, frame: Frame, *, last: bool) -> None:
        self._frames[id(frame)] = frame
        if self.observers:
            enqueue_observed(self.observers, part.steps, frame, self.flight)
        else:
            for step in part.steps:
                step.enqueue(frame)
        self.flight.moved = time.monotonic()

    def ends_with(self, who: Any, frame: Frame, *, whole: bool) -> None:
        self._frames.pop(id(frame), None)
        self.ends.note(who, frame, whole=whole)
