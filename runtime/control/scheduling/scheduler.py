"""The schedulers of all islands: which run may put work into queues of devices, and when. Pure: events in, starts out.

Each island has its line of waiting runs, in one order over all islands (the policy's rank), so that programs that span
several islands meet in the same order everywhere. The first in line starts when no other run is enqueuing there, the
island has not too much in flight of others, and its memory is free; until then those behind it wait, too, so that
no run starves. A run that spans islands starts when it is first in line on all of them. A run that paused, and holds
memory or a place in flight that runs before it wait for, goes on before those.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace

from pathways.runtime.control.scheduling.memory_ledger import Ledger
from pathways.runtime.control.scheduling.request import Request, SchedulingPolicy
from pathways.runtime.states import RUN

DEPTH = 4
"""So many runs may be in flight on an island while clients compete for it. Fewer leave gaps, more are slow to turn."""


_NONE: Counter[str] = Counter()


class Scheduler:
    """Takes events, one a method; each returns the numbers of the runs whose turn has come."""

    def __init__(self, policy: SchedulingPolicy, ledger: Ledger | None = None, depth: int = DEPTH) -> None:
        self.policy = policy
        self.ledger = ledger or Ledger()
        self.depth = depth
        self.states: dict[int, str] = {}
        """Of all runs that have not ended (runtime/states.py)."""
        self.waiting: dict[int, Request] = {}
        self.running: dict[int, Request] = {}
        """Runs that were started and are not done: `bytes` is the memory they have reserved."""
        self.active: dict[str, int] = {}
        """The run that is enqueuing on an island."""
        self.in_flight: dict[str, Counter[str]] = {}
        """Runs on an island that are started and not done, by client."""

    def _move(self, number: int, event: str) -> bool:
        """Notes what becomes of a run; returns False where it has ended already, of which its thread may hear late."""
        state = self.states.get(number)
        if state is None:
            return False
        self.states[number] = state = RUN.after(state, event)
        if RUN.is_end(state):
            del self.states[number]
        return True

    def submit(self, request: Request) -> list[int]:
        self.states[request.number] = RUN.after(self.states.get(request.number, RUN.first), "line up")
        self.policy.submitted(request)
        self.waiting[request.number] = request
        return self._start()

    def pause(self, number: int) -> list[int]:
        """Puts a long run back in line, so that runs that rank before it go first; it may be the next itself."""
        if self._move(number, "pause"):
            request = self.running[number]
            self._leave(request)
            self.waiting[number] = request
        return self._start()

    def step_aside(self, number: int) -> list[int]:
        """Takes a run out of line while it waits for data; `pause` puts it back."""
        if self._move(number, "step aside"):
            self._leave(self.running[number])
        return self._start()

    def enqueued(self, number: int, bytes_: Mapping[Hashable, int] | None = None) -> list[int]:
        """Ends the turn of a run that is all enqueued; `bytes_` stay reserved, handles hold the rest of its memory."""
        if not self._move(number, "be enqueued"):
            return self._start()
        request = self.running[number]
        self.waiting.pop(number, None)  # it had paused, and has no further turn
        self._leave(request)
        if bytes_ is not None:
            self.ledger.reserve(request.bytes, -1)
            self.ledger.reserve(bytes_)
            self.running[number] = replace(request, bytes=bytes_)
        return self._start()

    def finished(self, number: int) -> list[int]:
        """Removes a run whose work is done or has failed."""
        if not self._move(number, "end"):
            return []
        request = self.running.pop(number)
        self.waiting.pop(number, None)
        self._leave(request)
        self.ledger.reserve(request.bytes, -1)
        for island in request.islands:
            counts = self.in_flight[island]
            counts[request.client] -= 1
            if not counts[request.client]:
                del counts[request.client]
        self.policy.ended(request)
        return self._start()

    def cancel(self, number: int) -> list[int]:
        """Removes a run that will not go on: its thread has stopped waiting for its turn."""
        if number in self.running:
            return self.finished(number)
        if self._move(number, "cancel"):
            self.policy.ended(self.waiting.pop(number))
        return self._start()

    def hold(self, devices: tuple[Hashable, ...], size: int) -> list[int]:
        """Counts that a client holds so many bytes more on each of some devices; negative: fewer."""
        self.ledger.hold(devices, size)
        return self._start() if size < 0 else []

    def lacks_memory(self, number: int) -> Hashable | None:
        """Returns the device whose memory is all that a run waits for, where no other run will free any."""
        request = self.waiting.get(number)
        if request is None or any(self.in_flight.get(i) or i in self.active for i in request.islands):
            return None
        ahead = self.policy.rank(request)
        if any(self.policy.rank(r) < ahead and r.islands & request.islands for r in self.waiting.values()):
            return None
        return self.ledger.short_of(request.bytes)

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

    def _leave(self, request: Request) -> None:
        for island in request.islands:
            if self.active.get(island) == request.number:
                del self.active[island]

    def _start(self) -> list[int]:
        started: list[int] = []
        while self.waiting:
            found = self._next()
            if found is None:
                break
            self._begin(found)
            started.append(found.number)
        return started

    def _next(self) -> Request | None:
        if len(self.waiting) == 1:
            (alone,) = self.waiting.values()
            return alone if self._may_start(alone) else None
        blocked: set[str] = set()
        """Islands that a waiting run earlier in this loop must get first."""
        paused: set[str] = set()
        """Islands that a paused run earlier in this loop must get first."""
        for request in sorted(self.waiting.values(), key=self.policy.rank):
            goes_on = request.number in self.running
            if not request.islands & (paused if goes_on else blocked) and self._may_start(request):
                return request
            if goes_on:
                paused |= request.islands
            if goes_on or not self._helped_by_clients_alone(request):
                blocked |= request.islands
        return None

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
            if len(users) > (request.client in users) or (len(self.waiting) > 1 and self._is_wanted(island, request)):
                yield island

    def _is_wanted(self, island: str, request: Request) -> bool:
        """Returns whether another client waits for an island, too."""
        return any(r.client != request.client and island in r.islands for r in self.waiting.values())

    def _is_full(self, island: str) -> bool:
        return sum(self.in_flight[island].values()) >= self.depth if island in self.in_flight else False

    def _begin(self, request: Request) -> None:
        self._move(request.number, "begin")
        del self.waiting[request.number]
        for island in request.islands:
            self.active[island] = request.number
        self.policy.started(request)
        if request.number not in self.running:
            self.running[request.number] = request
            self.ledger.reserve(request.bytes)
            for island in request.islands:
                self.in_flight.setdefault(island, Counter())[request.client] += 1
