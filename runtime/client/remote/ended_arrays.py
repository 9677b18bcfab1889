"""Collects the ids of arrays and plans that a client no longer needs, until one message tells the hosts to free them.
`RemoteIsland` uses it.
"""

import contextlib
from collections import deque
from typing import Protocol

from pathways.runtime.wire import messages as m

MAX_FREED = 1 << 16
"""Maximum number of freed arrays in one message."""

MAX_UNLOADED_WITH_RUN = 1 << 8
"""Maximum number of unloaded plans in the messages of one run."""


class Sink(Protocol):
    """A destination for messages to an island that must be delivered in order with its runs."""

    def post(self, *messages: m.Message) -> None:
        """Sends messages asynchronously; never blocks. Raises ConnectionEnded."""
        ...


class EndedArrays:
    """Freed arrays and unloaded plans. Any thread may add some at any time, also during garbage collection."""

    def __init__(self) -> None:
        self._arrays: deque[int] = deque()
        self._plans: deque[int] = deque()

    def add(self, array: int) -> None:
        self._arrays.append(array)

    def add_plan(self, plan: int) -> None:
        self._plans.append(plan)

    def take(self) -> list[m.Message]:
        """Returns messages about everything collected so far. If several threads call it, each must send its result."""
        found: list[m.Message] = []
        while arrays := _taken(self._arrays, MAX_FREED):
            found.append(m.FreeArrays(tuple(arrays)))
        found += [m.UnloadPlan(plan) for plan in _taken(self._plans, MAX_FREED)]
        return found

    def take_with_run(self) -> list[m.Message]:
        """Returns as many messages as a controller accepts with one run. The rest goes with a later message."""
        arrays = _taken(self._arrays, MAX_FREED)
        found: list[m.Message] = [m.FreeArrays(tuple(arrays))] if arrays else []
        return found + [m.UnloadPlan(plan) for plan in _taken(self._plans, MAX_UNLOADED_WITH_RUN)]


def _taken(numbers: deque[int], count: int) -> list[int]:
    """Removes and returns up to `most` numbers, while other threads add and remove some."""
    found: list[int] = []
    with contextlib.suppress(IndexError):
        while len(found) < count:
            found.append(numbers.popleft())
    return found
