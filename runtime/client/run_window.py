"""Bounds the runs of a client that are under way on each island of a shared cluster."""

import threading
from collections import Counter
from collections.abc import Callable, Collection

WINDOW = 32
"""The most runs of a client that are under way on an island: a call that needs the island waits for fewer."""
ROOM = 24
"""Waiting calls go on when this many are left: to be woken for the end of each would take longer than a small run."""


class RunWindow:
    """Counts the runs under way by island: an island that is frozen delays only the calls that need it."""

    def __init__(self, changed: threading.Condition) -> None:
        """`changed` guards the counts; it is notified when waiting calls can go on."""
        self._changed = changed
        self._runs: dict[int, tuple[Collection[str], int]] = {}
        """By run: its islands, and how many hosts have not ended their part."""
        self._under_way = Counter[str]()
        self._full = set[str]()
        """Islands for which calls wait."""
        self._rooms = Counter[str]()
        """How often each island was full, and had room again."""

    def begin(self, run: int, islands: Collection[str], parts: int) -> None:
        """Counts a run on islands, which so many hosts have a part of."""
        with self._changed:
            self._runs[run] = islands, parts
            self._under_way.update(islands)

    def end(self, run: int, parts: int | None = None) -> None:
        """Notes that hosts have ended their parts of a run; without `parts` all have."""
        with self._changed:
            islands, left = self._runs.get(run, ((), 0))
            if parts is not None and left > parts:
                self._runs[run] = islands, left - parts
                return
            self._runs.pop(run, None)
            self._under_way.subtract(islands)
            for island in islands:
                if island in self._full and self._under_way[island] <= ROOM:
                    self._full.remove(island)
                    self._rooms[island] += 1
                    self._changed.notify_all()

    def wait(self, islands: Collection[str], is_over: Callable[[], bool], at_first: Callable[[], object]) -> None:
        """Waits while an island is full, or until `is_over`; does `at_first` before that.

        All calls that come until there is room wait: none passes another.
        """
        with self._changed:
            self._full.update(island for island in islands if self._under_way[island] >= WINDOW)
            if before := {island: self._rooms[island] for island in islands if island in self._full}:
                at_first()
                self._changed.wait_for(
                    lambda: is_over() or all(self._rooms[island] > was for island, was in before.items())
                )
