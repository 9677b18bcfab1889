"""Implements the scheduling policy `stride`, which gives each client device time in proportion to its weight
(Waldspurger and Weihl, 1995; paper, section 5.2). It is the default.

A client's pass is its used time divided by its weight. The client with the lowest pass goes next. A new or returning
client starts at the current pass, so that no client accumulates time by waiting.
"""

from collections import Counter
from typing import ClassVar

from pathways.runtime.control.scheduling.request import Request


class Stride:
    """Shares device time in proportion to weights. The runs of one client keep their order."""

    name: ClassVar[str] = "stride"

    def __init__(self) -> None:
        self._passes: dict[str, float] = {}
        self._present: Counter[str] = Counter()
        """Number of incomplete runs of each client."""
        self._now = 0.0
        """The pass of the client that was scheduled last. New clients start with it."""

    def rank(self, request: Request) -> tuple[float, int]:
        return self._passes[request.client], request.number

    def submitted(self, request: Request) -> None:
        if not self._present[request.client]:
            self._passes[request.client] = max(self._passes.get(request.client, 0.0), self._now)
        self._present[request.client] += 1

    def started(self, request: Request) -> None:
        client = request.client
        self._now = max(self._now, self._passes[client])
        self._passes[client] += request.seconds / request.weight

    def ended(self, request: Request) -> None:
        self._present[request.client] -= 1
        if not self._present[request.client]:
            del self._present[request.client]
            if self._passes[request.client] <= self._now:
                del self._passes[request.client]
