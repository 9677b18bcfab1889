"""Defines the interface of observers, which are notified before and after each step of a run. Recordings, fault
injection and NaN checks implement it.

Without an observer nothing is called, and steps are enqueued at full speed.
"""

import time
from collections.abc import Sequence

from pathways.dialect.plan.nouns import Plan
from pathways.runtime.host.run.frame import Frame, Step
from pathways.runtime.host.run.poison import Poison, lost_among
from pathways.runtime.host.run.runs_in_flight import Flight


class Observer:
    """Is notified of every run and step. Each method does nothing; observers override the methods that they need."""

    def submitted(self, number: int, plan: Plan, client: str) -> None:
        """Is called when a client calls a plan."""

    def scheduled(self, number: int) -> None:
        """Is called when the run is scheduled."""

    def before_step(self, flight: Flight, step: Step, frame: Frame) -> Poison | None:
        """Is called before a step is enqueued. If it returns poison, the step's results are that poison instead."""

    def after_step(self, flight: Flight, step: Step, frame: Frame, begin: int, end: int) -> None:
        """Is called when a step was enqueued, or failed, between two times (nanoseconds of `time.perf_counter_ns`).

        An exception in this method ends the run.
        """

    def enqueued(self, number: int) -> None:
        """Is called when all of a run is in the queues of devices."""

    def done(self, number: int) -> None:
        """Is called when all of a run is done."""


def enqueue_observed(observers: Sequence[Observer], steps: Sequence[Step], frame: Frame, flight: Flight) -> None:
    """Enqueues steps one by one, and notifies the observers of each. Steps on lost devices fail."""
    for step in steps:
        results = (o.before_step(flight, step, frame) for o in observers)
        poison = next((p for p in results if p is not None), None)
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
