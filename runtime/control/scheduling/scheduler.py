"""The schedulers of all islands: which run may put work into queues of devices, and when. Pure: events in, starts out.

Each island has its line of waiting runs, in one order over all islands (the policy's rank), so that programs that span
several islands meet in the same order everywhere. The first in line starts when no other run is enqueuing there, the
island has not too much in flight of others, and its memory is free; until then those behind it wait, too, so that
no run starves. A run that spans islands starts when it is first in line on all of them. A run that paused, and holds
memory or a place in flight that runs before it wait for, goes on before those.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import replace

from pathways.runtime.control.scheduling.memory_ledger import Ledger
from pathways.runtime.control.scheduling.request import Request, SchedulingPolicy
from pathways.runtime.control.scheduling.waiting_lines import Place, WaitingLines, Wanted
from pathways.runtime.states import TURN, Life

DEPTH = 4
"""So many runs may be in flight on an island while clients compete for it. Fewer leave gaps, more are slow to turn."""


_NONE: Counter[str] = Counter()


class Scheduler:
    """Takes events, one a method; each returns the numbers of the runs whose turn has come."""

    def __init__(self, policy: SchedulingPolicy, ledger: Ledger | None = None, depth: int = DEPTH) -> None:
        self.policy = policy
        self.ledger = ledger or Ledger()
        self.depth = depth
        self.turns: dict[int, Life] = {}
        """Of all runs that have not ended (runtime/states.py)."""
        self._fresh, self._paused = WaitingLines(), WaitingLines()
        """Runs that wait to start, and those that were started and wait for another slot."""
        self._wanted = Wanted()
        self.running: dict[int, Request] = {}
        """Runs that were started and are not done: `bytes` is the memory they have reserved."""
        self.active: dict[str, int] = {}
        """The run that is enqueuing on an island."""
        self.in_flight: dict[str, Counter[str]] = {}
        """Runs on an island that are started and not done, by client."""

    def _move(self, number: int, event: str) -> bool:
        """Notes what becomes of a run; returns False where it has ended already, of which its thread may hear late."""
        life = self.turns.get(number)
        if life is None:
            return False
        life.turn(event)
        if life.is_over:
            del self.turns[number]
        return True

    @property
    def waiting(self) -> Mapping[int, Request]:
        """All runs that wait, by number."""
        return {**self._fresh.requests, **self._paused.requests}

    @property
    def contended(self) -> bool:
        """Whether any run waits."""
        return bool(self._fresh.requests or self._paused.requests)

    def submit(self, request: Request) -> list[int]:
        self.turns.setdefault(request.number, Life(TURN)).turn("line up")
        self.policy.submitted(request)
        changed = self._rank_again(request.client)
        return self._line_up(request, self._fresh, changed)

    def pause(self, number: int) -> list[int]:
        """Puts a long run back in line, so that runs that rank before it go first; it may be the next itself."""
        if not self._move(number, "pause"):
            return []
        request = self.running[number]
        self._leave(request)
        return self._line_up(request, self._paused)

    def step_aside(self, number: int) -> list[int]:
        """Takes a run out of line while it waits for data; `pause` puts it back."""
        if not self._move(number, "step aside"):
            return []
        self._leave(self.running[number])
        return self._start(self.running[number].islands)

    def enqueued(self, number: int, bytes_: Mapping[Hashable, int] | None = None) -> list[int]:
        """Ends the turn of a run that is all enqueued; `bytes_` stay reserved, handles hold the rest of its memory."""
        if not self._move(number, "be enqueued"):
            return []
        request = self.running[number]
        self._stop_waiting(number)  # it had paused, and has no further turn
        self._leave(request)
        if bytes_ is not None:
            self.ledger.reserve(request.bytes, -1)
            self.ledger.reserve(bytes_)
            self.running[number] = replace(request, bytes=bytes_)
        return self._start(request.islands)

    def finished(self, number: int) -> list[int]:
        """Removes a run whose work is done or has failed."""
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
        """Removes a run that will not go on: its thread has stopped waiting for its turn."""
        if number in self.running:
            return self.finished(number)
        if not self._move(number, "cancel"):
            return []
        request = self._stop_waiting(number)
        assert request is not None
        self.policy.ended(request)
        return self._start(request.islands | self._rank_again(request.client))

    def hold(self, devices: tuple[Hashable, ...], size: int) -> list[int]:
        """Counts that a client holds so many bytes more on each of some devices; negative: fewer."""
        self.ledger.hold(devices, size)
        return self.limits_changed() if size < 0 else []

    def limits_changed(self) -> list[int]:
        """Starts what may start now that devices have more memory."""
        return self._start(self._fresh.islands | self._paused.islands)

    def lacks_memory(self, number: int) -> Hashable | None:
        """Returns the device whose memory is all that a run waits for, where no other run will free any."""
        request = self._fresh.requests.get(number)
        if request is None or any(self.in_flight.get(i) or i in self.active for i in request.islands):
            return None
        short = self.ledger.short_of(request.bytes)
        if short is not None and all(self._fresh.first(island) is request for island in request.islands):
            return short
        return None

    def goes_before(self, number: int) -> list[Request]:
        """Returns the runs that a waiting run waits for: on its islands, under way or ahead of it in line."""
        request = self.waiting.get(number)
        if request is None:
            return []
        mine = self.policy.rank(request)
        ahead = (r for r in self.waiting.values() if self.policy.rank(r) < mine)
        found = {r.number: r for r in (*self.running.values(), *ahead) if r.islands & request.islands}
        found.pop(number, None)
        return list(found.values())

    def _line_up(self, request: Request, lines: WaitingLines, changed: Collection[str] = ()) -> list[int]:
        """Puts a run in the lines of its islands; `changed` are islands where others may start, too."""
        if not request.islands:  # a second `resume` of a client, for example: it has nothing to wait for
            return [request.number, *self._start({*changed, *self._begin(request)})]
        if not (self._fresh.requests or self._paused.requests) and self._may_start(request):
            self._begin(request)  # at once: no other run waits that could be first, or start now, too
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
        """Moves the waiting runs of a client in their lines, after an event of the client; returns their islands."""
        if not (self._fresh.requests or self._paused.requests):
            return set()
        changed = self._fresh.rank_again(client, self.policy.rank)
        return changed | self._paused.rank_again(client, self.policy.rank)

    def _leave(self, request: Request) -> None:
        for island in request.islands:
            if self.active.get(island) == request.number:
                del self.active[island]

    def _start(self, islands: Iterable[str]) -> list[int]:
        """Starts the runs that an event on these islands allows to start. It cannot affect runs of other islands: the
        memory of a run is on its own islands."""
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
        """Returns the run that ranks first among those that may start on some of these islands."""
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
        """Returns the first run that waits to start on an island, apart from those that only clients can help."""
        return next((r for r in self._fresh.in_order(island) if not self._helped_by_clients_alone(r)), None)

    def _is_first(self, request: Request, place: Place, at: str) -> bool:
        """Returns whether no other run must get one of its islands first; it is the first in its line of island `at`.

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

    def _helped_by_clients_alone(self, request: Request) -> bool:
        """Returns whether a run waits for memory that no run will free; a run behind it in line may be the holder."""
        busy = any(self.in_flight.get(i) or i in self.active for i in request.islands)
        return not busy and not self.ledger.fits(request.bytes)

    def _may_start(self, request: Request) -> bool:
        if any(island in self.active for island in request.islands):
            return False
        if request.number in self.running:  # it paused: it has its memory, and its place in flight
            return True
        return self.ledger.fits(request.bytes) and not any(map(self._is_full, self._contended(request)))

    def _contended(self, request: Request) -> Iterable[str]:
        """Yields its islands that other clients want or use, too. A client alone waits only for its devices' queues."""
        for island in request.islands:
            users = self.in_flight.get(island, _NONE)
            if len(users) > (request.client in users) or self._wanted.by_others(island, request.client):
                yield island

    def _is_full(self, island: str) -> bool:
        return sum(self.in_flight[island].values()) >= self.depth if island in self.in_flight else False

    def _begin(self, request: Request) -> set[str]:
        """Starts a run, or goes on with it; returns the islands where the client's other runs have other ranks now."""
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
