"""Limits how many runs of this client may be in progress on each island of a shared cluster. Further calls wait.
`Attached` uses it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping

from pathways.runtime.interrupts import uninterrupted
from pathways.runtime.monitor import Monitor

MAX_RUNS_PER_ISLAND = 32
"""A call that needs an island waits while this many runs of its client are in progress there."""
RESUME_AT_RUNS = 24
"""Waiting calls continue when this many runs are left. Waking them at each completion takes longer than a small run."""


class RunWindow:
    """Counts the runs in progress on each island, so that a frozen island delays only the calls that need it."""

    def __init__(self, changed: Monitor) -> None:
        """`changed` guards the counts, and is notified when waiting calls can continue."""
        self._changed = changed
        self._left: dict[int, dict[str, int]] = {}
        """Number of hosts that have not completed their partition, by run and island."""
        self._under_way = Counter[str]()
        self._blocked = set[str]()
        """Islands that calls wait for."""
        self._times_freed = Counter[str]()
        """Number of times that each island was blocked and then had few runs again."""

    @uninterrupted
    def begin(self, run: int, hosts: Mapping[str, int]) -> None:
        """Adds a run on islands, each with its number of hosts."""
        with self._changed.lock:
            self._left[run] = dict(hosts)
            self._under_way.update(hosts.keys())

    def has(self, run: int) -> bool:
        """Whether a run is in progress on any island."""
        return run in self._left

    @uninterrupted
    def end_part(self, run: int, island: str) -> None:
        """Records that one host of an island has completed its partition of a run."""
        with self._changed.lock:
            left = self._left.get(run, {}).get(island, 0) - 1
            if left > 0:
                self._left[run][island] = left
            else:
                self._end(run, island)

    @uninterrupted
    def drop(self, run: int) -> None:
        """Removes a run that no host executes."""
        with self._changed.lock:
            for island in list(self._left.get(run, ())):
                self._end(run, island)

    @uninterrupted
    def lose(self, island: str) -> None:
        """Completes all runs on an island whose hosts are lost."""
        with self._changed.lock:
            for run in [run for run, left in self._left.items() if island in left]:
                self._end(run, island)

    def _end(self, run: int, island: str) -> None:
        """Completes a run on an island, unless it is already complete there; wakes waiting calls."""
        left = self._left.get(run, {})
        if left.pop(island, None) is None:
            return
        if not left:
            del self._left[run]
        self._under_way[island] -= 1
        if island in self._blocked and self._under_way[island] <= RESUME_AT_RUNS:
            self._blocked.remove(island)
            self._times_freed[island] += 1
            self._changed.notify_all()

    def wait(self, islands: Collection[str], is_over: Callable[[], bool], before_waiting: Callable[[], object]) -> None:
        """Waits until none of the islands has too many runs, or `is_over`. Calls `before_waiting` before it blocks.

        Later calls wait too, so that no call overtakes another.
        """
        if before := self._times_freed_of(islands):
            before_waiting()
            self._changed.wait_for(
                lambda: is_over() or all(self._times_freed[island] > was for island, was in before.items())
            )

    @uninterrupted
    def _times_freed_of(self, islands: Collection[str]) -> dict[str, int]:
        """Marks the full islands among these as blocked; returns how often each blocked island was freed so far."""
        with self._changed.lock:
            self._blocked.update(island for island in islands if self._under_way[island] >= MAX_RUNS_PER_ISLAND)
            return {island: self._times_freed[island] for island in islands if island in self._blocked}
