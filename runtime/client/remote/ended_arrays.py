"""Arrays and plans that have ended here, until their hosts are told."""

import contextlib
from collections import deque
from typing import Protocol

from pathways.runtime.wire import messages as m

MOST_FREED = 1 << 16
"""The most arrays whose end one message tells of."""

MAX_UNLOADED_WITH_RUN = 1 << 8
"""The most plans whose end is told with a run."""


class Sink(Protocol):
    """Where messages to a host go that must keep their order among its runs."""

    def post(self, *messages: m.Message) -> None:
        """Sends messages some time soon; never waits. Raises ConnectionEnded."""
        ...


class EndedArrays:
    """What has ended; any thread may add to it at any time, also while it collects garbage."""

    def __init__(self) -> None:
        self._arrays: deque[int] = deque()
        self._plans: deque[int] = deque()

    def add(self, array: int) -> None:
        self._arrays.append(array)

    def add_plan(self, plan: int) -> None:
        self._plans.append(plan)

    def take(self) -> list[m.Message]:
        """What tells of all that has ended; several threads may take, and each must send what it takes."""
        found: list[m.Message] = []
        while arrays := _taken(self._arrays, MOST_FREED):
            found.append(m.FreeArrays(tuple(arrays)))
        found += [m.UnloadPlan(plan) for plan in _taken(self._plans, MOST_FREED)]
        return found

    def take_with_run(self) -> list[m.Message]:
        """Takes as much as a controller accepts with a run; the rest goes with a later message."""
        arrays = _taken(self._arrays, MOST_FREED)
        found: list[m.Message] = [m.FreeArrays(tuple(arrays))] if arrays else []
        return found + [m.UnloadPlan(plan) for plan in _taken(self._plans, MAX_UNLOADED_WITH_RUN)]


def _taken(numbers: deque[int], most: int) -> list[int]:
    """Takes so many of some numbers, to which other threads add, and of which they take, too."""
    found: list[int] = []
    with contextlib.suppress(IndexError):
        while len(found) < most:
            found.append(numbers.popleft())
    return found
