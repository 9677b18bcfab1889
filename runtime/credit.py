"""At most so many executions in flight on a device, whichever program they are of.

Beyond 32, collective programs hang on CPU (jaxlib 0.10, measured), and dispatch blocks anyway. Held is a token an
execution: waiting for the oldest is free while the devices keep up.
"""

import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Any

from pathways.runtime.pjrt import FAILURES

LIMIT = 16


class DeviceQueue:
    """The tokens of executions that may still run on one device, oldest first."""

    __slots__ = ("tokens",)

    def __init__(self) -> None:
        self.tokens: deque[Any] = deque()


class Gang:
    """The devices that one computation runs on; executions are admitted to all of them or none."""

    __slots__ = ("_queues",)

    def __init__(self, queues: Sequence[DeviceQueue]) -> None:
        self._queues = [q.tokens for q in queues]

    def admit(self) -> None:
        """Returns when every device has room for one more."""
        for tokens in self._queues:
            if len(tokens) >= LIMIT:
                _wait(tokens.popleft())

    def started(self, token: Any) -> None:
        for tokens in self._queues:
            tokens.append(token)

    def drain(self) -> None:
        """Returns when nothing is in flight."""
        for tokens in self._queues:
            while tokens:
                _wait(tokens.popleft())


def _wait(token: Any) -> None:
    with contextlib.suppress(*FAILURES):  # the execution's results carry the error to whoever reads them
        token.block_until_ready()
