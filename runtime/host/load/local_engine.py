"""Runs plans on devices of this process, without a cluster. It implements the interface `Engine`. `client/engine.py`
makes one for each loaded plan.

The thread that runs the plan also enqueues it.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.nouns import Plan
from pathways.runtime.host.devices.executable_cache import Executables
from pathways.runtime.host.devices.in_flight_limit import unfinished
from pathways.runtime.host.devices.islands import PhysicalIsland
from pathways.runtime.host.devices.layouts import Side, prepare_put
from pathways.runtime.host.load.callback_launches import CallbacksOfOneLaunch
from pathways.runtime.host.load.costs import IslandCost, costs_of
from pathways.runtime.host.load.loaded_part import load_part
from pathways.runtime.host.run.dispatch import Dispatch
from pathways.runtime.host.run.fallible import Awaited
from pathways.runtime.host.run.frame import Frame
from pathways.runtime.host.run.progress import drive, enqueue_wave


class LocalEngine:
    """Loads a plan with its bodies and constants, and enqueues its runs.

    Loading raises the errors of compilation and of the order check.
    """

    bytes_between: Mapping[str, int] = MappingProxyType({})

    def __init__(
        self,
        plan: Plan,
        islands: Mapping[str, PhysicalIsland],
        executables: Executables,
        path: str,
        *,
        sequential: bool,
    ) -> None:
        self._loaded = loaded = load_part(plan, islands, executables, path, sequential=sequential)
        self._executables = executables
        prepared, self._waves = loaded.prepared, loaded.waves
        self.sides, self.offsets, self.types, self.size = loaded.sides, prepared.offsets, prepared.types, prepared.size
        self.launches, self._queues = prepared.launches, loaded.queues
        self.times_scheduled = float(max(1, sum(len(w.parts) for w in self._waves)))
        tasks = [task for wave in self._waves for _, task in wave.tasks]
        self.awaits = len(self._waves) > 1 or bool(tasks)
        self.pauses = self.times_scheduled > 1 or bool(tasks)
        steps = [step for wave in self._waves for part in wave.parts for step in part.steps]
        awaited = [task for task in tasks if isinstance(task, Awaited)]
        only_callbacks = len(self._waves) == 1 and len(awaited) == len(tasks)
        self._callback_launchers = launchers = prepared.callback_launchers if only_callbacks else []
        waits_for_others = self.awaits and not launchers
        self.only_step = steps[0] if len(steps) == 1 and steps[0].start and not waits_for_others else None
        self.only_callbacks = (
            CallbacksOfOneLaunch(launchers[0], awaited[0], self.size) if self.only_step and launchers else None
        )

    @property
    def constants(self) -> Sequence[tuple[int, Any]]:
        """The slots that hold arrays before a run starts, with these arrays."""
        return self._loaded.constants

    def put_constants(self) -> None:
        """Puts the plan's constants on its devices again after lost devices have recovered."""
        self._loaded.put_constants()

    def prepare_put(self, number: int, type_: ArrayType, side: Side) -> "Callable[[np.ndarray[Any, Any]], Any]":
        return prepare_put(type_, side)

    def get_ready(self, client: str) -> None:
        """Returns at once: devices of this process are always ready."""

    @property
    def is_quick(self) -> bool:
        """Whether a run that awaits callbacks may be enqueued by its caller.

        This requires that nothing is enqueued after the callbacks, and that they returned quickly in the previous run.
        """
        return bool(self._callback_launchers) and all(launch.is_quick for launch in self._callback_launchers)

    def enqueue(self, frame: Frame, run: Dispatch, *, ahead: bool = False) -> Sequence[Awaited]:
        """Enqueues all waves of a run, each as soon as its awaits have completed.

        `ahead`: for a plan that `is_quick`, does not wait for callbacks; returns the tasks to await.
        """
        frame.base = run.begin(None, self.launches)
        try:
            if ahead or not self.awaits:
                (first,) = self._waves
                enqueue_wave(first, frame, run)
                return [task for _, task in first.tasks if isinstance(task, Awaited)] if ahead else ()
            for pendings in drive(self._waves, frame, run):
                run.wait(pendings)
            return ()
        finally:
            if frame.early:
                frame.tokens[:0] = unfinished(frame.early, self._queues)
            if self.awaits:
                frame.tokens.extend(run.ends.tokens())
                self.times_scheduled += (run.times_scheduled - self.times_scheduled) / 8

    def costs(self) -> dict[str, IslandCost]:
        return costs_of(self._loaded.plan, self.sides, self._executables)
