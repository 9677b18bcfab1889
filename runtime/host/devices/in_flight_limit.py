"""Limits how many computations are enqueued on a device and not done yet, over all programs. A thread that wants to
enqueue more waits here. Launchers (`host/load/launches.py`) call it before each computation.

The limit is set per platform (`dialect/platforms.py`). A device runs its executions in order, so one token shows that
several are done. The number that share a token depends on their duration: each slow execution has its own, so that the
watchdog sees progress.
"""

import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from pathways.runtime.host.devices.pjrt import FAILURES
from pathways.runtime.host.devices.waits import until_done
from pathways.runtime.interrupts import uninterrupted
from pathways.runtime.monitor import Gate

TOKEN_STRIDE = 8
"""Maximum number of executions that share one token. It is lower if the platform's limit is at most this number."""
QUICK_WAIT_S, SLOW_WAIT_S = 0.05, 0.5
"""A wait shorter than the first lets more executions share a token. After one longer than the second, none share."""
FEW = 16
"""Fewer tokens than this are all kept, since that is cheaper than to search for them in the device queues."""
_ENDLESS = 1 << 30


Token: TypeAlias = tuple[Any, Any]
"""Shows the end of an execution: PJRT's token, and a small result of the execution if there is one.

A wait for the result is cheap, and it also ends if the execution is abandoned. A wait for the token needs a helper
thread (`waits.py`).
"""


class QueueLost(Exception):
    """Raised if a device is lost while an execution waits for room in its queue."""


class DeviceQueue:
    """The executions in flight on one device: tokens, oldest first, each with the count of executions it covers."""

    __slots__ = ("flying", "limit", "lost", "moved", "since", "stride", "tokens", "waits")

    def __init__(self, limit: int = 16) -> None:
        self.limit = limit
        """Maximum number of executions in flight on the device."""
        self.stride = TOKEN_STRIDE if limit > TOKEN_STRIDE else max(1, limit // 2)
        self.tokens: deque[tuple[Token, int]] = deque()
        self.since = 0
        """Number of executions since the last token."""
        self.flying = 0
        """Number of executions that are not known to be done."""
        self.moved = 0.0
        """The last time at which an execution was seen to be done (monotonic seconds)."""
        self.lost = False
        """Whether executions in this queue will never be done."""
        self.waits: set[Gate] = set()
        """Gates that open when the device is lost."""

    @uninterrupted  # else a finished execution would be counted forever
    def done(self, oldest: "tuple[Token, int]", now: float) -> None:
        """Removes the executions of the oldest token, which are done."""
        self.moved = now
        if self.tokens and self.tokens[0] is oldest:
            self.tokens.popleft()
            self.flying -= oldest[1]

    def lose(self) -> None:
        """Marks the queue as lost: ends all waits for it and admits no more executions."""
        self.lost = True
        self.since = self.flying = _ENDLESS  # so that `admit` checks `lost`
        for gate in list(self.waits):
            gate.open()

    def recover(self) -> None:
        """Empties the queue of a device that is available again."""
        self.tokens.clear()
        self.since = self.flying = 0
        self.lost = False


def unfinished(tokens: Sequence[Any], queues: Iterable[DeviceQueue]) -> Sequence[Any]:
    """Returns the tokens passed to `started` that are not known to be done. Fewer than FEW are all returned."""
    if len(tokens) < FEW:
        return tokens
    held = {id(token) for queue in queues for (token, _), _ in list(queue.tokens)}
    return [token for token in tokens if id(token) in held]


class Gang:
    """The devices that one computation runs on. An execution is admitted to all of them or to none."""

    __slots__ = ("_max_stride", "_queues", "_stride")

    def __init__(self, queues: Sequence[DeviceQueue]) -> None:
        self._queues = tuple(queues)
        self._max_stride = min((q.stride for q in queues), default=1)
        self._stride = 1

    def admit(self) -> bool:
        """Waits for room for one execution and counts it; returns whether its token must be passed to `started`.

        Raises QueueLost if a device is lost.
        """
        due, stride = False, self._stride
        for queue in self._queues:
            queue.flying += 1
            queue.since = since = queue.since + 1
            if since >= stride:
                due = True
        if due:
            for queue in self._queues:
                if queue.lost:
                    raise QueueLost
                room = queue.limit - self._max_stride + 1  # more executions may start before the next token
                while queue.flying > room and queue.tokens:
                    self._wait(queue)
        return due

    def next_is_due(self) -> bool | None:
        """Returns what `admit` would return now, or None if it would have to wait. Counts nothing.

        An execution that is done when its launch returns is not counted. Earlier ones may still be in flight.
        """
        due, stride = False, self._stride
        for queue in self._queues:
            if queue.since + 1 >= stride:
                due = True
        for queue in self._queues if due else ():
            is_full = queue.flying + self._max_stride > queue.limit
            if queue.lost or (is_full and not self._has_room(queue)):
                return None
        return due

    def count(self) -> None:
        """Counts an execution that has started and is not done."""
        for queue in self._queues:
            queue.flying += 1
            queue.since += 1

    def _has_room(self, queue: DeviceQueue) -> bool:
        """Whether one more execution may start. Removes those that are done from the queue."""
        while queue.flying + self._max_stride > queue.limit and queue.tokens:
            oldest = queue.tokens[0]
            result = oldest[0][1]
            if result is None or result.is_deleted() or not result.is_ready():
                return False
            queue.done(oldest, time.monotonic())
        return True

    def started_each(self, tokens: Sequence[Token]) -> None:
        """Keeps the tokens of an execution, one for each device. As `started`, but for devices launched one by one."""
        for queue, token in zip(self._queues, tokens, strict=True):
            queue.tokens.append((token, queue.since))
            queue.since = 0

    def started(self, token: Token) -> None:
        """Keeps the token of an execution of the whole gang, for which `admit` returned True."""
        for queue in self._queues:
            queue.tokens.append((token, queue.since))
            queue.since = 0

    def _wait(self, queue: DeviceQueue) -> None:
        oldest = queue.tokens[0]
        token, result = oldest[0]
        begin = time.monotonic()
        if result is not None and not result.is_deleted():
            try:  # noqa: SIM105 -- a context manager costs more than the wait if the result is ready
                result.block_until_ready()
            except FAILURES:  # all readers of the results see the error
                pass
        else:
            until_done([token], [queue])
        if queue.lost:
            raise QueueLost
        now = time.monotonic()
        queue.done(oldest, now)
        if now - begin > SLOW_WAIT_S:
            self._stride = 1
        elif now - begin < QUICK_WAIT_S and self._stride < self._max_stride:
            self._stride = min(self._max_stride, 2 * self._stride)
