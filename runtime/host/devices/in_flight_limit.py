"""Limits the executions in flight on a device, counted over all programs.

The limit is the platform's (dialect/platforms.py). A device runs its executions in order, so that one token tells
that several are done. How many share a token depends on how long they take: each slow execution has its own, so that
the watchdog sees progress.
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
"""The most executions that share one token; fewer where few may be in flight."""
QUICK, SLOW = 0.05, 0.5
"""Seconds: after a wait that was shorter, tokens become fewer; after a longer one, every execution has one."""
FEW = 16
"""So many tokens are kept sooner than looked for in the queues of devices."""
_ENDLESS = 1 << 30


Token: TypeAlias = tuple[Any, Any]
"""The end of an execution: PJRT's token, and a small result of it where there is one.

To wait for the result is cheap, and ends when the execution is given up; to wait for the token takes a helper
(`waits.py`).
"""


class QueueLost(Exception):
    """A device was lost while an execution waited for room in its queue."""


class DeviceQueue:
    """Executions in flight on one device: tokens with the number of executions that each stands for, oldest first."""

    __slots__ = ("flying", "lost", "most", "moved", "since", "stride", "tokens", "waits")

    def __init__(self, most: int = 16) -> None:
        self.most = most
        """The most executions in flight on the device."""
        self.stride = TOKEN_STRIDE if most > TOKEN_STRIDE else max(1, most // 2)
        self.tokens: deque[tuple[Token, int]] = deque()
        self.since = 0
        """Executions since the last token."""
        self.flying = 0
        """Executions that may not be done."""
        self.moved = 0.0
        """When an execution here was last seen to be done (monotonic seconds)."""
        self.lost = False
        """Whether executions in this queue will never be done."""
        self.waits: set[Gate] = set()
        """Waits that end when the device is lost."""

    @uninterrupted  # or an execution that is done would be counted for ever
    def done(self, oldest: "tuple[Token, int]", now: float) -> None:
        """Removes the oldest executions, which were seen to be done."""
        self.moved = now
        if self.tokens and self.tokens[0] is oldest:
            self.tokens.popleft()
            self.flying -= oldest[1]

    def lose(self) -> None:
        """Marks the queue as lost: ends all waits for it, and admits no more executions."""
        self.lost = True
        self.since = self.flying = _ENDLESS  # so that `admit` checks `lost`
        for gate in list(self.waits):
            gate.open()

    def recover(self) -> None:
        """Empties the queue of a device that is back."""
        self.tokens.clear()
        self.since = self.flying = 0
        self.lost = False


def unfinished(tokens: Sequence[Any], queues: Iterable[DeviceQueue]) -> Sequence[Any]:
    """Drops those of some tokens from `started` that were seen to be done; where they are few they are all kept."""
    if len(tokens) < FEW:
        return tokens
    held = {id(token) for queue in queues for (token, _), _ in list(queue.tokens)}
    return [token for token in tokens if id(token) in held]


class Gang:
    """The devices that one computation runs on; executions are admitted to all of them or none."""

    __slots__ = ("_most", "_queues", "_stride")

    def __init__(self, queues: Sequence[DeviceQueue]) -> None:
        self._queues = tuple(queues)
        self._most = min((q.stride for q in queues), default=1)
        self._stride = 1

    def admit(self) -> bool:
        """Counts one execution, waiting until there is room for it; returns whether `started` wants its token.

        Raises QueueLost where there will never be room.
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
                room = queue.most - self._most + 1  # more may come before the next token
                while queue.flying > room and queue.tokens:
                    self._wait(queue)
        return due

    def started_each(self, tokens: Sequence[Token]) -> None:
        """Keeps the tokens of an execution as `started`, one for each device."""
        for queue, token in zip(self._queues, tokens, strict=True):
            queue.tokens.append((token, queue.since))
            queue.since = 0

    def started(self, token: Token) -> None:
        """Keeps the token of an execution for which `admit` returned True."""
        for queue in self._queues:
            queue.tokens.append((token, queue.since))
            queue.since = 0

    def _wait(self, queue: DeviceQueue) -> None:
        oldest = queue.tokens[0]
        token, result = oldest[0]
        begin = time.monotonic()
        if result is not None and not result.is_deleted():
            try:  # noqa: SIM105 -- a context manager takes longer than the wait for what is done
                result.block_until_ready()
            except FAILURES:  # the execution's results carry the error to all readers
                pass
        else:
            until_done([token], [queue])
        if queue.lost:
            raise QueueLost
        now = time.monotonic()
        queue.done(oldest, now)
        if now - begin > SLOW:
            self._stride = 1
        elif now - begin < QUICK and self._stride < self._most:
            self._stride = min(self._most, 2 * self._stride)
