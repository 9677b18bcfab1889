"""Decides when each run may enqueue its work on devices. It keeps one order of runs on all islands, shares devices
among clients, and respects memory limits. It has no threads: each event returns the runs that may start now.

`Turns` calls it in a process without a cluster, and the dispatcher in the controller of a cluster. Each island has a
queue of waiting runs. All queues have the same order (the policy's rank), so that programs over several islands start
in the same order everywhere.

The first run in a queue starts under three conditions: no other run is enqueuing on the island, other clients have not
too much in flight, and its memory is free. Until then the runs after it wait too, so that no run starves. A run over
several islands starts when it is first on all of them. A paused run may hold memory or slots that earlier runs need, so
it continues before them.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import replace
from weakref import WeakValueDictionary

from pathways.runtime.control.scheduling.memory_ledger import Ledger
from pathways.runtime.control.scheduling.ownership import Ownership
from pathways.runtime.control.scheduling.request import Request, SchedulingPolicy
from pathways.runtime.control.scheduling.waiting_lines import Place, WaitingLines, Wanted
from pathways.runtime.states import QUEUE_ENTRY, Life

DEPTH = 4
"""Maximum runs in flight on an island while clients compete for it. Fewer leave gaps; more delay other clients."""


_NONE: Counter[str] = Counter()


class Scheduler:
    """Processes events, one per method. Each method returns the numbers of the runs that get a slot."""

    def __init__(self, policy: SchedulingPolicy, ledger: Ledger | None = None, depth: int = DEPTH) -> None:
        self.policy = policy
        self.ledger = ledger or Ledger()
        self.depth = depth
        self.entries: dict[int, Life] = {}
        """States of all incomplete runs (runtime/states.py)."""
        self._fresh, self._paused = WaitingLines(), WaitingLines()
        """Runs that wait to start, and runs that have started and wait for another slot."""
        self._wanted = Wanted()
        self.running: dict[int, Request] = {}
        """Runs that have started and are not complete. Their `bytes` are the memory that they have reserved."""
        self.active: dict[str, int] = {}
        """The run that is enqueuing on each island, or the number of an ownership whose launch goes on."""
        self._owned: WeakValueDictionary[str, Ownership] = WeakValueDictionary()
        """The last ownership of each island."""
        self.in_flight: dict[str, Counter[str]] = {}
        """Number of started, incomplete runs on each island, by client."""

    def _move(self, number: int, event: str) -> bool:
        """Applies an event to a run; returns False if the run is already complete, which its thread may learn late."""
        life = self.entries.get(number)
        if life is None:
            return False
        life.transition(event)
        if life.is_over:
            del self.entries[number]
        return True

    @property
    def waiting(self) -> Mapping[int, Request]:
        """Returns all waiting runs by number."""
        return {**self._fresh.requests, **self._paused.requests}

    @property
    def contended(self) -> bool:
        """Whether any run waits."""
        return bool(self._fresh.requests or self._paused.requests)

    def submit(self, request: Request) -> list[int]:
        self.entries.setdefault(request.number, Life(QUEUE_ENTRY)).transition("line up")
        self.policy.submitted(request)
        changed = self._rank_again(request.client)
        return self._line_up(request, self._fresh, changed)

    def own(self, owned: Ownership, client: str) -> bool:
        """Makes a client the owner of islands if it has no rival: no run waits, and no other run or client uses them.

        The caller has the lock of the ownership, which ends when any run asks for one of its islands. The policy does
        not see launches of the owner, unless `adopt` makes them runs like all others.
        """
        if self._fresh.requests or self._paused.requests:
            return False
        for island in owned.islands:
            users = self.in_flight.get(island, _NONE)
            if island in self.active or len(users) > (client in users):
                return False
            other = self._owned.get(island, owned)
            if other is not owned:
                other.client = ""
                if other.lock.locked():
                    return False
        for island in owned.islands:
            self._owned[island] = owned
        owned.client = client
        return True

    def _revoke(self, islands: Collection[str]) -> None:
        """Ends the ownership of islands. A launch that has begun keeps its islands until `settle`."""
        for island in islands:
            if (owned := self._owned.pop(island, None)) is not None:
                owned.client = ""
                if owned.lock.locked():
                    self.active[island] = owned.number

    def settle(self, owned: Ownership) -> list[int]:
        """Releases the islands of an ownership that has ended, if its last launch is over."""
        for island in owned.islands:
            if self.active.get(island) == owned.number and not owned.lock.locked():
                del self.active[island]
        return self._start(owned.islands)

    def adopt(self, request: Request) -> list[int]:
        """Makes a launch of an owner a run like all others. Other runs keep islands that they have got meanwhile."""
        life = self.entries[request.number] = Life(QUEUE_ENTRY)
        life.transition("line up")
        self.policy.submitted(request)
        others = {island: self.active[island] for island in request.islands if island in self.active}
        changed = self._begin(request)
        self.active.update(others)
        return self._start(changed)

    def pause(self, number: int) -> list[int]:
        """Enqueues a long run again, so that runs with a lower rank go first. It may be the next run itself."""
        if not self._move(number, "pause"):
            return []
        request = self.running[number]
        self._leave(request)
        return self._line_up(request, self._paused)

    def yield_slot(self, number: int) -> list[int]:
        """Releases the slot of a run while it waits for data. `pause` enqueues the run again."""
        if not self._move(number, "step aside"):
            return []
        self._leave(self.running[number])
        return self._start(self.running[number].islands)

    def enqueued(self, number: int, bytes_: Mapping[Hashable, int] | None = None) -> list[int]:
        """Releases the slot of a fully enqueued run. `bytes_` stay reserved; handles hold the rest of its memory."""
        if not self._move(number, "be enqueued"):
            return []
        request = self.running[number]
        self._stop_waiting(number)  # it was paused and needs no further slot
        self._leave(request)
        if bytes_ is not None:
            self.ledger.reserve(request.bytes, -1)
            self.ledger.reserve(bytes_)
            self.running[number] = replace(request, bytes=bytes_)
        return self._start(request.islands)

    def finished(self, number: int) -> list[int]:
        """Removes a run that has completed or failed."""
        if not self._move(number, "end"):
            return []
        request = self.running.pop(number)
        self._stop_waiting(number)
        self._leave(request)
        self.ledger.reserve(request.bytes, -1)
        for island in request.islands:
            counts = self.in_flight[island]
            counts[request.client] -= 1
            if not counts[request.client]:
                del counts[request.client]
        self.policy.ended(request)
        return self._start(request.islands | self._rank_again(request.client))

    def cancel(self, number: int) -> list[int]:
        """Removes a run that will not continue, since its thread no longer waits for a slot."""
        if number in self.running:
            return self.finished(number)
        if not self._move(number, "cancel"):
            return []
        request = self._stop_waiting(number)
        assert request is not None
        self.policy.ended(request)
        return self._start(request.islands | self._rank_again(request.client))

    def hold(self, devices: tuple[Hashable, ...], size: int) -> list[int]:
        """Adds bytes that a client holds on each of these devices; negative: fewer."""
        self.ledger.hold(devices, size)
        return self.limits_changed() if size < 0 else []

    def limits_changed(self) -> list[int]:
        """Starts runs that can start after devices have gained memory."""
        return self._start(self._fresh.islands | self._paused.islands)

    def lacks_memory(self, number: int) -> Hashable | None:
        """Returns the device whose memory is all that a run lacks, if no other run will free any; otherwise None."""
        request = self._fresh.requests.get(number)
        if request is None or any(self.in_flight.get(i) or i in self.active for i in request.islands):
            return None
        short = self.ledger.short_of(request.bytes)
        if short is not None and all(self._fresh.first(island) is request for island in request.islands):
            return short
        return None

    def goes_before(self, number: int) -> list[Request]:
        """Returns the runs that a waiting run waits for: on its islands, in progress or earlier in the queue."""
        request = self.waiting.get(number)
        if request is None:
            return []
        mine = self.policy.rank(request)
        ahead = (r for r in self.waiting.values() if self.policy.rank(r) < mine)
        found = {r.number: r for r in (*self.running.values(), *ahead) if r.islands & request.islands}
        found.pop(number, None)
        return list(found.values())

    def _line_up(self, request: Request, lines: WaitingLines, changed: Collection[str] = ()) -> list[int]:
        """Adds a run to the queues of its islands. `changed`: other islands where runs may start."""
        self._revoke(request.islands)
        if not request.islands:  # for example a second `resume` of a client, which waits for nothing
            return [request.number, *self._start({*changed, *self._begin(request)})]
        if not (self._fresh.requests or self._paused.requests) and self._may_start(request):
            self._begin(request)  # at once: no other run waits
            return [request.number]
        lines.add(request, (self.policy.rank(request), request.number))
        self._wanted.add(request)
        return self._start({*request.islands, *changed})

    def _stop_waiting(self, number: int) -> Request | None:
        request = self._fresh.remove(number) or self._paused.remove(number)
        if request is not None:
            self._wanted.add(request, -1)
        return request

    def _rank_again(self, client: str) -> set[str]:
        """Updates the ranks of a client's waiting runs after an event of the client; returns the affected islands."""
        if not (self._fresh.requests or self._paused.requests):
            return set()
        changed = self._fresh.rank_again(client, self.policy.rank)
        return changed | self._paused.rank_again(client, self.policy.rank)

    def _leave(self, request: Request) -> None:
        for island in request.islands:
            if self.active.get(island) == request.number:
                del self.active[island]

    def _start(self, islands: Iterable[str]) -> list[int]:
        """Starts the runs that an event on these islands enables. The event cannot affect runs on other islands, since
        a run's memory is on its own islands."""
        started: list[int] = []
        if not (self._fresh.requests or self._paused.requests):
            return started
        changed = set(islands)
        changed |= self._fresh.spanned_with(changed)
        while (found := self._next(changed)) is not None:
            changed |= found.islands | self._begin(found)
            changed |= self._fresh.spanned_with(changed)
            started.append(found.number)
        return started

    def _next(self, islands: Iterable[str]) -> Request | None:
        """Returns the run with the lowest rank among those that may start on these islands."""
        best: tuple[Place, Request] | None = None
        for island in islands:
            for lines, first in ((self._paused, self._paused.first(island)), (self._fresh, self._first_fresh(island))):
                place = lines.place(first.number) if first is not None else None
                if first is None or place is None or (best is not None and place > best[0]):
                    continue
                if self._is_first(first, place, island) and self._may_start(first):
                    best = place, first
        return None if best is None else best[1]

    def _first_fresh(self, island: str) -> Request | None:
        """Returns the first run that waits to start on an island; skips runs that only clients can unblock."""
        return next((r for r in self._fresh.in_order(island) if not self._waits_for_clients_only(r)), None)

    def _is_first(self, request: Request, place: Place, at: str) -> bool:
        """Whether no other run must get one of its islands first. The run is first in the queue of island `at`.

        Only paused runs go before paused runs.
        """
        others = [island for island in request.islands if island != at]
        if request.number in self.running:
            return all(self._paused.first(island) is request for island in others)
        if self._paused.requests:
            ahead = [first for i in request.islands if (first := self._paused.first(i)) is not None]
            if any(self._paused.place(first.number) < place for first in ahead):
                return False
        return all(self._first_fresh(island) is request for island in others)

    def _waits_for_clients_only(self, request: Request) -> bool:
        """Whether a run waits for memory that no other run will free. A later run in the queue may hold it."""
        busy = any(self.in_flight.get(i) or i in self.active for i in request.islands)
        return not busy and not self.ledger.fits(request.bytes)

    def _may_start(self, request: Request) -> bool:
        if any(island in self.active for island in request.islands):
            return False
        if request.number in self.running:  # a paused run has its memory and counts as in flight
            return True
        return self.ledger.fits(request.bytes) and not any(map(self._is_full, self._contended(request)))

    def _contended(self, request: Request) -> Iterable[str]:
        """Yields the run's islands that other clients want or use. A single client is limited only by device queues."""
        for island in request.islands:
            users = self.in_flight.get(island, _NONE)
            if len(users) > (request.client in users) or self._wanted.by_others(island, request.client):
                yield island

    def _is_full(self, island: str) -> bool:
        return sum(self.in_flight[island].values()) >= self.depth if island in self.in_flight else False

    def _begin(self, request: Request) -> set[str]:
        """Starts or continues a run; returns the islands where ranks of the client's other runs have changed."""
        self._move(request.number, "begin")
        self._stop_waiting(request.number)
        for island in request.islands:
            self.active[island] = request.number
        self.policy.started(request)
        if request.number not in self.running:
            self.running[request.number] = request
            self.ledger.reserve(request.bytes)
            for island in request.islands:
                self.in_flight.setdefault(island, Counter())[request.client] += 1
        return self._rank_again(request.client)
