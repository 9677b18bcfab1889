"""Implements the scheduler's queues of waiting runs: one for each island, sorted by the rank that the policy gives. The
first run of a queue is found in constant time.
"""

import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from pathways.runtime.control.scheduling.request import Request

Place: TypeAlias = tuple[tuple[float, int], int]
"""The rank of a run by the policy, and the run's number. The lowest is first in its queues."""


_NONE: Counter[str] = Counter()


class WaitingLines:
    """Waiting runs, in the queues of all of their islands.

    The rank of a run may change only at an event of its client. `rank_again` then moves the client's runs.
    """

    def __init__(self) -> None:
        self.requests: dict[int, Request] = {}
        self._places: dict[int, Place] = {}
        self._lines: dict[str, list[Place]] = {}
        self._of_client: dict[str, dict[int, None]] = {}
        self._spanned: dict[str, Counter[str]] = {}
        """Per island: all islands of the waiting runs that need this island and memory."""

    def add(self, request: Request, place: Place) -> None:
        number = request.number
        self.requests[number], self._places[number] = request, place
        self._of_client.setdefault(request.client, {})[number] = None
        for island in request.islands:
            bisect.insort(self._lines.setdefault(island, []), place)
        self._count_spanned(request, 1)

    def remove(self, number: int) -> Request | None:
        """Removes a run; returns None if the run does not wait here."""
        request = self.requests.pop(number, None)
        if request is None:
            return None
        place = self._places.pop(number)
        of_client = self._of_client[request.client]
        del of_client[number]
        if not of_client:
            del self._of_client[request.client]
        for island in request.islands:
            line = self._lines[island]
            del line[bisect.bisect_left(line, place)]
            if not line:
                del self._lines[island]
        self._count_spanned(request, -1)
        return request

    def _count_spanned(self, request: Request, sign: int) -> None:
        for island in request.islands if request.bytes and len(request.islands) > 1 else ():
            counts = self._spanned.setdefault(island, Counter())
            for other in request.islands:
                counts[other] += sign
                if not counts[other]:
                    del counts[other]
            if not counts:
                del self._spanned[island]

    def spanned_with(self, islands: Iterable[str]) -> set[str]:
        """Returns the islands of all runs that wait for memory and for one of these islands."""
        return {other for island in islands for other in self._spanned.get(island, ())} if self._spanned else set()

    def rank_again(self, client: str, rank: Callable[[Request], tuple[float, int]]) -> set[str]:
        """Moves the runs of a client whose ranks have changed; returns their islands."""
        changed: set[str] = set()
        for number in list(self._of_client.get(client, ())):
            request = self.requests[number]
            place = rank(request), number
            if place != self._places[number]:
                self.remove(number)
                self.add(request, place)
                changed |= request.islands
        return changed

    def place(self, number: int) -> Place:
        return self._places[number]

    def first(self, island: str) -> Request | None:
        line = self._lines.get(island)
        return self.requests[line[0][1]] if line else None

    def in_order(self, island: str) -> Iterator[Request]:
        """Yields the runs that wait for an island, in queue order."""
        return (self.requests[number] for _, number in self._lines.get(island, ()))

    @property
    def islands(self) -> set[str]:
        """Returns the islands for which runs wait."""
        return set(self._lines)


class Wanted:
    """Counts waiting runs by island and client."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def add(self, request: Request, sign: int = 1) -> None:
        for island in request.islands:
            counts = self._counts.setdefault(island, Counter())
            counts[request.client] += sign
            if not counts[request.client]:
                del counts[request.client]

    def by_others(self, island: str, client: str) -> bool:
        """Whether another client waits for an island."""
        counts = self._counts.get(island, _NONE)
        return len(counts) > (client in counts)
