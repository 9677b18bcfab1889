"""Limits how many runs of each client of this process may be in progress on each island. Further calls wait.
`Attached` uses it.

The limit is one for each client: if clients shared it, the runs of one could fill it, and the scheduler would have none
of the others to choose from.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pathways.runtime.interrupts import uninterrupted
from pathways.runtime.monitor import Monitor

MAX_RUNS_PER_ISLAND = 32
"""A call that needs an island waits while this many runs of its client are in progress there."""
RESUME_AT_RUNS = 24
"""Waiting calls continue when this many runs are left. Waking them at each completion takes longer than a small run."""


Place: TypeAlias = tuple[str, str]
"""A client, by label, and an island."""


@dataclass(eq=False)
class Block:
    """A time in which the calls of a client wait for an island. It ends when few runs are left there."""

    is_over: bool = False


class RunWindow:
    """Counts the runs in progress of each client on each island.

    So a frozen island delays only the calls that need it, and a busy client delays only its own calls.
    """

    def __init__(self, changed: Monitor) -> None:
        """`changed` guards the counts, and is notified when waiting calls can continue."""
        self._changed = changed
        self._left: dict[int, dict[str, int]] = {}
        """Number of hosts that have not completed their partition, by run and island."""
        self._clients: dict[int, str] = {}
        """The client of each of these runs."""
        self._under_way = Counter[Place]()
        self._blocked: dict[Place, Block] = {}
        """The places for which calls wait."""

    @uninterrupted
    def begin(self, run: int, hosts: Mapping[str, int], client: str) -> None:
        """Adds a run of a client on islands, each with its number of hosts."""
        with self._changed.lock:
            self._left[run], self._clients[run] = dict(hosts), client
            self._under_way.update((client, island) for island in hosts)

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
        place = self._clients[run], island
        if not left:
            del self._left[run], self._clients[run]
        self._under_way[place] -= 1
        if not self._under_way[place]:
            del self._under_way[place]
        if place in self._blocked and self._under_way[place] <= RESUME_AT_RUNS:
            self._blocked.pop(place).is_over = True
            self._changed.notify_all()

    def wait(
        self,
        islands: Collection[str],
        client: str,
        is_over: Callable[[], bool],
        before_waiting: Callable[[], object],
    ) -> None:
        """Waits until the client has room on all of the islands, or `is_over`. Calls `before_waiting` before it blocks.

        Later calls of the client wait too, so that no call overtakes another.
        """
        if blocks := self._blocks_of([(client, island) for island in islands]):
            before_waiting()
            self._changed.wait_for(lambda: is_over() or all(block.is_over for block in blocks))

    @uninterrupted
    def _blocks_of(self, places: Collection[Place]) -> list[Block]:
        """Blocks the full places among these; returns the blocks of all blocked ones."""
        with self._changed.lock:
            for place in places:
                if self._under_way[place] >= MAX_RUNS_PER_ISLAND:
                    self._blocked.setdefault(place, Block())
            return [self._blocked[place] for place in places if place in self._blocked]
