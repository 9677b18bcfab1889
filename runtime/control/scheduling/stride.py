"""Proportional share (stride scheduling: Waldspurger and Weihl, 1995; paper, section 5.2 and Figure 9).

A client's pass is the time it has had, divided by its weight; the client with the least goes next. A client that
comes, or comes back, starts at the pass of those that are there: no client saves up turns by waiting.
"""

from collections import Counter
from typing import ClassVar

from pathways.runtime.control.scheduling.request import Request


class Stride:
    """Time on devices in proportion to weights; the runs of one client in their order."""

    name: ClassVar[str] = "stride"

    def __init__(self) -> None:
        self._passes: dict[str, float] = {}
        self._present: Counter[str] = Counter()
        """Runs of each client that are not done."""
        self._now = 0.0
        """The pass of the client that went last: new clients start with it."""

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
