"""Waits for launched computations that may fail because they call Python functions (host callbacks). If one fails, an
error value (poison) takes the place of its results. `load/callback_launches.py` launches such computations, and
`load/steps.py` adds the waits to a plan.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.host_callbacks import find
from pathways.dialect.plan.instructions import Run
from pathways.dialect.plan.nouns import Computation
from pathways.dialect.sharding import size_of_axes
from pathways.runtime.errors import UnknownCallback
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.callbacks import CallbackRecord, Watched, describe_exception, result_types
from pathways.runtime.host.devices.in_flight_limit import DeviceQueue, QueueLost
from pathways.runtime.host.devices.waits import until_done
from pathways.runtime.host.run.enqueuer import Enqueuer
from pathways.runtime.host.run.failures import failure_of
from pathways.runtime.host.run.frame import Frame
from pathways.runtime.host.run.hung_launches import hang_of
from pathways.runtime.host.run.poison import Poison
from pathways.runtime.host.run.progress import Work


@dataclass(eq=False)
class Awaited:
    """A computation with host callbacks, which may fail. Its dependents wait for its outcome."""

    run: Run
    island: str
    outputs: list[int]
    mark: int
    """The slot of its `WatchedLaunch`: exceptions, and a token for each device; -1: no callbacks."""
    cause: Callable[[Diagnostic], Poison]
    """Makes poison of an error, or of its first cause, such as the loss of a device."""

    def start(self, frame: Frame, run: Enqueuer) -> Work:
        yield (AwaitedOutcome(self, frame.values),)
        self.wait(frame.values)

    def is_known(self, values: list[Any]) -> bool | None:
        results = [values[i] for i in self.outputs]
        return all(isinstance(r, Poison) or r.is_ready() for r in results) if results else None

    def is_over(self, values: list[Any]) -> bool:
        """Whether its results are known, and so its callbacks have returned; False if that cannot be checked."""
        launched: WatchedLaunch | None = values[self.mark] if self.mark >= 0 else None
        if not self.is_known(values):
            return False
        if launched is not None and not any(isinstance(values[i], Poison) for i in self.outputs):
            launched.ended()
        return True

    def wait(self, values: list[Any]) -> None:
        """Waits until its results are known. If it failed on any device, the results of its whole gang are poison."""
        launched: WatchedLaunch | None = values[self.mark] if self.mark >= 0 else None
        if any(isinstance(values[i], Poison) for i in self.outputs) or (self.mark >= 0 and launched is None):
            return
        problem: Exception | None = None
        try:
            if launched is not None:
                launched.wait()
            for index in self.outputs:
                values[index].block_until_ready()
        except (QueueLost, *pjrt.FAILURES) as error:
            problem = error
        raised = self._raised(launched)
        if problem is None and raised is None:
            return
        poison = self.cause(failed(self.run, self.island, problem or raised or Exception(), raised))
        for index in self.outputs:
            values[index] = poison
        if not self.outputs:  # no result carries the error; printed once, though a run waits twice
            values[self.mark] = None
            print(poison.error(), file=sys.stderr)

    def _raised(self, launched: "WatchedLaunch | None") -> BaseException | None:
        return None if launched is None else next(iter(launched.errors), None)


@dataclass(frozen=True, eq=False)
class AwaitedOutcome:
    """The outcome of an awaited computation in one run."""

    awaited: Awaited
    values: list[Any]

    def is_known(self) -> bool | None:
        return self.awaited.is_known(self.values)

    def wait(self) -> None:
        self.awaited.wait(self.values)


@dataclass(frozen=True, eq=False)
class WatchedLaunch:
    """A launch of a computation with callbacks: their exceptions, the tokens of the launch, and its devices."""

    errors: list[BaseException]
    tokens: Sequence[Any]
    queues: Sequence[DeviceQueue]
    record: CallbackRecord

    @property
    def is_over(self) -> bool:
        """Whether it is known to be done. The record has other exceptions then, since no launch begins before."""
        return self.record.errors is not self.errors

    def ended(self) -> None:
        """Notes that it is done."""
        self.record.end(self.errors)

    def wait(self) -> None:
        """Waits until it is done. Only then can it be launched again: exceptions are kept for one launch.

        Raises QueueLost if it will never be done.
        """
        if not self.is_over and not until_done(self.tokens, self.queues):
            raise QueueLost
        self.ended()


def failed(run: Run, island: str, error: BaseException, raised: BaseException | None = None) -> Diagnostic:
    """Returns the error that users see of a failure: the hang that it follows from, or the exception of a callback."""
    if (hang := hang_of(error)) is not None:
        return hang
    cause = str(error) if raised is None else describe_exception(raised)
    return failure_of(run.name, island, cause, run.where)


def watched_callbacks(run: Run, computation: Computation) -> list[Watched]:
    """Wraps the callbacks of a computation, which share one record."""
    if not computation.callbacks:
        return []
    found: list[Watched] = []
    record = CallbackRecord(on_one_device=size_of_axes(computation.axes) == 1)
    types = result_types(computation.module)
    for index, number in enumerate(computation.callbacks):
        function = find(number)
        if function is None:
            raise PathwaysError(UnknownCallback(computation=run.name, where=run.where))
        found.append(Watched(function, run.name, types.get(index), record))
    return found
