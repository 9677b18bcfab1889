"""Computations that call back to the host, and may fail: when it is known how one ended, and what it is then called."""

import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.host_callbacks import find
from pathways.dialect.plan.instructions import Run
from pathways.dialect.plan.nouns import Computation
from pathways.runtime.errors import ComputationFailed, UnknownCallback
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.callbacks import Watched, result_types
from pathways.runtime.host.devices.in_flight_limit import DeviceQueue, QueueLost
from pathways.runtime.host.devices.waits import until_done
from pathways.runtime.host.run.frame import Frame
from pathways.runtime.host.run.hung_launches import hang_behind
from pathways.runtime.host.run.progress import Enqueuer, Work
from pathways.runtime.host.run.store import Poison


@dataclass(eq=False)
class Awaited:
    """A computation that calls back to the host, and may fail: what depends on it waits."""

    run: Run
    island: str
    outputs: list[int]
    mark: int
    """The slot that says what exceptions there were, and when it is done everywhere; -1: no callbacks."""
    cause: Callable[[Diagnostic], Poison]
    """What a failure follows from: the loss of a device, say."""

    def start(self, frame: Frame, run: Enqueuer) -> Work:
        yield (AwaitedOutcome(self, frame.values),)
        self.wait(frame.values)

    def is_known(self, values: list[Any]) -> bool | None:
        results = [values[i] for i in self.outputs]
        return all(isinstance(r, Poison) or r.is_ready() for r in results) if results else None

    def wait(self, values: list[Any]) -> None:
        """Returns when its results are known; if it failed anywhere, its whole gang's are poison."""
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
        if not self.outputs:  # there is no result that would tell; said once, though whoever waits for it waits twice
            values[self.mark] = None
            print(poison.error(), file=sys.stderr)

    def _raised(self, launched: "WatchedLaunch | None") -> BaseException | None:
        return None if launched is None else next((e for errors in launched.errors for e in errors), None)


@dataclass(frozen=True, eq=False)
class AwaitedOutcome:
    """What an awaited computation gives in one run."""

    awaited: Awaited
    values: list[Any]

    def is_known(self) -> bool | None:
        return self.awaited.is_known(self.values)

    def wait(self) -> None:
        self.awaited.wait(self.values)


@dataclass(frozen=True, eq=False)
class WatchedLaunch:
    """A computation with callbacks was launched: exceptions of each, tokens of its end, and where it runs."""

    errors: list[list[BaseException]]
    tokens: list[Any]
    queues: Sequence[DeviceQueue]

    def wait(self) -> None:
        """Returns when it is done: only then can it be launched again, for an exception is of one launch.

        Raises DeviceLost where it will never be.
        """
        if not until_done(self.tokens, self.queues):
            raise QueueLost


def failed(run: Run, island: str, error: BaseException, raised: BaseException | None = None) -> Diagnostic:
    """What a failure is called: the hang that it follows from, or the exception of a callback."""
    if (hang := hang_behind(error)) is not None:
        return hang
    cause = str(error)
    if raised is not None:
        frames = traceback.extract_tb(raised.__traceback__)
        at = f", raised at {frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
        cause = f"{type(raised).__name__}: {raised}{at}"
    return ComputationFailed(computation=run.name, island=island, cause=cause, where=run.where)


def watched_callbacks(run: Run, computation: Computation) -> list[Watched]:
    if not computation.callbacks:
        return []
    found: list[Watched] = []
    types = result_types(computation.module)
    for index, number in enumerate(computation.callbacks):
        function = find(number)
        if function is None:
            raise PathwaysError(UnknownCallback(computation=run.name, where=run.where))
        found.append(Watched(function, run.name, types.get(index)))
    return found
