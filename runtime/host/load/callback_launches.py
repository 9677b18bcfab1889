"""Starts computations that call Python functions (host callbacks) one at a time. Otherwise an exception could not be
assigned to a run. `steps.py` puts it around each such computation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pathways.runtime.host.devices.callbacks import CallbackRecord
from pathways.runtime.host.devices.in_flight_limit import DeviceQueue
from pathways.runtime.host.load.launches import Launcher
from pathways.runtime.host.run.fallible import Awaited, WatchedLaunch
from pathways.runtime.host.run.frame import AtOnce

MAX_QUICK_S = 0.001
"""Maximum duration of callbacks for which a run may stay on its caller's thread. Starting a thread takes 0.3 ms."""


@dataclass(eq=False)
class OneAtATime:
    """Launches a computation with callbacks. Each launch waits until the previous one is done."""

    launch: Launcher
    record: CallbackRecord
    mark: int
    """The slot of its `WatchedLaunch`."""
    queues: Sequence[DeviceQueue]
    previous: WatchedLaunch | None = None

    @property
    def is_quick(self) -> bool:
        """Whether the previous launch is done, and each of its callbacks returned within MAX_QUICK_S."""
        return self.previous is not None and self.previous.is_over and self.record.longest_s < MAX_QUICK_S

    def __call__(
        self, values: list[Any], inputs: Sequence[int], outputs: Sequence[int], launch_id: int, due: bool, last: bool
    ) -> Sequence[Any]:
        if self.previous is not None:
            self.previous.wait()
        errors = self.record.begin()
        tokens = self.launch(values, inputs, outputs, launch_id, due, last)
        values[self.mark] = self.previous = WatchedLaunch(errors, tokens, self.queues, self.record)
        return tokens

    def as_only_launch(self, launch: AtOnce) -> AtOnce:
        """Prepares launches of a computation that is the only one of its run.

        The caller must check `is_quick` before each launch, since `start` does not wait for the previous one.
        """

        def start(row: Sequence[Any], launch_id: int) -> tuple[Sequence[Any], list[Any]]:
            errors = self.record.begin()
            tokens, made = launch.start(row, launch_id)
            self.previous = WatchedLaunch(errors, tokens, self.queues, self.record)
            return tokens, made

        return launch._replace(start=start)


@dataclass(frozen=True, eq=False)
class CallbacksOfOneLaunch:
    """The callbacks of a plan that consists of one launch. `size` is the number of its slots."""

    launcher: OneAtATime
    awaited: Awaited
    size: int

    def values(self, made: Sequence[Any]) -> list[Any]:
        """Returns the slots of a run after the launch, whose results are `made`. `awaited` waits for them."""
        values: list[Any] = [None] * self.size
        for slot, array in zip(self.awaited.outputs, made, strict=True):
            values[slot] = array
        values[self.awaited.mark] = self.launcher.previous
        return values
