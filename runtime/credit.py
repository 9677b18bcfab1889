"""At most so many executions in flight on a device, whichever program they are of.

Beyond 32, collective programs hang on CPU (jaxlib 0.10, measured), and dispatch blocks anyway. A device runs what it is
given in order, so a token for every eighth execution is enough: when it is done, so are all before it.
"""

import contextlib
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from pathways.runtime.pjrt import FAILURES

STRIDE = 8
"""One token for so many executions."""
TOKENS = 1
"""So many may be unfinished: at most STRIDE * (TOKENS + 1) = 16 executions are in flight on a device."""


class DeviceQueue:
    """What may still run on one device: unfinished tokens, oldest first, and the executions since the last."""

    __slots__ = ("moved", "since", "tokens")

    def __init__(self) -> None:
        self.tokens: deque[Any] = deque()
        self.since = 0
        self.moved = 0.0
        """When somebody last waited for an execution here, and it was done (monotonic seconds)."""


class Gang:
    """The devices that one computation runs on; executions are admitted to all of them or none."""

    __slots__ = ("_queues",)

    def __init__(self, queues: Sequence[DeviceQueue]) -> None:
        self._queues = tuple(queues)

    def admit(self) -> bool:
        """Counts one execution, waiting until there is room for it; whether `started` wants its token."""
        due = False
        for queue in self._queues:
            queue.since += 1
            if queue.since >= STRIDE:
                due = True
        if due:
            for queue in self._queues:
                if len(queue.tokens) >= TOKENS:
                    _wait(queue.tokens.popleft())
                    queue.moved = time.monotonic()
        return due

    def started_each(self, tokens: Sequence[Any]) -> None:
        """As `started`, with a token of its own for each device."""
        for queue, token in zip(self._queues, tokens, strict=True):
            queue.tokens.append(token)
            queue.since = 0

    def started(self, token: Any) -> None:
        """Keeps the token of the execution that `admit` asked it of."""
        for queue in self._queues:
            queue.tokens.append(token)
            queue.since = 0


def _wait(token: Any) -> None:
    with contextlib.suppress(*FAILURES):  # the execution's results carry the error to whoever reads them
        token.block_until_ready()
