"""Observers of runs: told of every step, they may record it, or have it fail on purpose.

While there is no observer nothing is asked, and steps are enqueued at full speed.
"""

import time
from collections.abc import Sequence

from pathways.dialect.plan.nouns import Plan
from pathways.runtime.host.run.frame import Frame, Step
from pathways.runtime.host.run.poison import Poison, lost_among
from pathways.runtime.host.run.runs_in_flight import Flight


class Observer:
    """Hears of every run and step. Each method does nothing; observers override those that they need."""

    def submitted(self, number: int, plan: Plan, client: str) -> None:
        """A client has called a plan."""

    def turn(self, number: int) -> None:
        """It is the run's turn to enqueue."""

    def before_step(self, flight: Flight, step: Step, frame: Frame) -> Poison | None:
        """A step is about to be enqueued; where this returns poison, the step's results are that poison instead."""

    def after_step(self, flight: Flight, step: Step, frame: Frame, begin: int, end: int) -> None:
        """A step was enqueued, or failed, between two times (nanoseconds of `time.perf_counter_ns`).

        What this raises ends the run.
        """

    def enqueued(self, number: int) -> None:
        """All of a run is in the queues of devices."""

    def done(self, number: int) -> None:
        """All of a run is done."""


def enqueue_observed(observers: Sequence[Observer], steps: Sequence[Step], frame: Frame, flight: Flight) -> None:
    """Enqueues steps one by one, and tells the observers of each. Steps on lost devices fail."""
    for step in steps:
        asked = (o.before_step(flight, step, frame) for o in observers)
        poison = next((p for p in asked if p is not None), None)
        if poison is None and step.island.lost:
            poison = lost_among([step.island], step.devices)
        begin = time.perf_counter_ns()
        if poison is None:
            step.enqueue(frame)
        else:
            step.fail(frame, poison)
        end = time.perf_counter_ns()
        for observer in observers:
            observer.after_step(flight, step, frame, begin, end)
