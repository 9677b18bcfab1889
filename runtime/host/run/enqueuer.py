"""Enqueues the computations of one run on devices without letting other runs in between. A host uses it directly. In a
client's process, its subclass `Dispatch` yields to runs of other clients between groups of computations.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.islands import Machine
from pathways.runtime.host.run.frame import Frame, Part
from pathways.runtime.host.run.observer import Observer, enqueue_observed
from pathways.runtime.host.run.runs_in_flight import Flight, Launch
from pathways.runtime.host.run.single_launch import SingleLaunch


class BodyEnds:
    """The last launches of a run's bodies: when they are done, all of its bodies are done."""

    def __init__(self) -> None:
        self._tokens: dict[Any, Sequence[Any]] = {}

    def note(self, owner: Any, tokens: Sequence[Any], *, whole: bool) -> None:
        """Notes the last launches of one run of a body. `whole`: it ran to its end, after all its earlier runs."""
        self._tokens[owner] = tokens if whole else [*self._tokens.get(owner, ()), *tokens]

    def tokens(self) -> list[Any]:
        return [token for tokens in self._tokens.values() for token in tokens]


@dataclass(eq=False)
class Enqueuer:
    """Enqueues one run without others in between. The watchdog sees its progress in `flight`."""

    machine: Machine
    flight: Flight
    observers: Sequence[Observer] = ()
    ends: BodyEnds = field(default_factory=BodyEnds)
    frames: dict[int, Frame] | None = None
    """The active frames of the program and its bodies; None if `tokens` does not need them."""

    def begin(self, owner: Any, launches: Sequence[Launch]) -> int:
        """Takes launch ids for what the program (None) or a body is about to launch; returns the first."""
        base = self.machine.take_launches(len(launches))
        self.flight.begin(owner, base, launches)
        return base

    @property
    def all_observers(self) -> Sequence[Observer]:
        """The observers of this run."""
        return self.observers

    @property
    def may_go_on(self) -> bool:
        """Whether a loop whose next turn is decided may enqueue it, and not first yield to other work."""
        return True

    def tokens(self) -> list[Any]:
        """Returns tokens that are done when all work enqueued here is. Other threads may call it during a wait."""
        frames = tuple((self.frames or {}).values())
        return [t for f in frames for t in (*f.tokens, *f.early)] + self.ends.tokens()

    def enqueue(self, part: Part, frame: Frame, *, last: bool) -> None:
        """Enqueues a group of steps of the program, or of a body. `last`: no group follows it there."""
        if self.frames is not None:
            self.frames[id(frame)] = frame
        self.enqueue_steps(part, frame)

    def enqueue_steps(self, part: Part, frame: Frame) -> None:
        """Enqueues steps, and notifies the observers of each."""
        with pjrt.without_frames():
            if observers := self.all_observers:
                enqueue_observed(observers, part.steps, frame, self.flight)
            else:
                for step in part.steps:
                    step.enqueue(frame)
        self.flight.moved = time.monotonic()

    def ends_with(self, owner: Any, frame: Frame, *, whole: bool) -> None:
        """Notes the tokens of a body's last launches. `whole`: it ran to its end; its earlier runs are done before."""
        if self.frames is not None:
            self.frames.pop(id(frame), None)
        self.ends.note(owner, [*frame.early, *frame.tokens] if frame.early else frame.tokens, whole=whole)

    def launch(self, owner: Any, launches: Sequence[Launch], start: SingleLaunch, operands: list[Any]) -> list[Any]:
        """Launches the body `owner`, which has no other step; returns its results. Empties `operands`."""
        tokens: Sequence[Any] = ()
        try:
            with pjrt.without_frames():
                tokens, results = start(operands, self.begin(owner, launches))
        finally:
            self.ends.note(owner, tokens, whole=bool(tokens))
        operands.clear()
        self.flight.moved = time.monotonic()
        return results
