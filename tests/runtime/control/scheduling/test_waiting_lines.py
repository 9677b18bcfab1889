"""Tests the scheduler's lines against a scheduler that sorts all waiting runs at each event."""

import random
from collections.abc import Hashable, Iterable

import pytest

from pathways.runtime.control.scheduling import SCHEDULING_POLICIES, Cost, Request
from pathways.runtime.control.scheduling.memory_ledger import Ledger
from pathways.runtime.control.scheduling.scheduler import Scheduler
from pathways.runtime.control.scheduling.waiting_lines import WaitingLines, Wanted

ISLANDS = "wxyz"


class Sorting(Scheduler):
    """Considers all waiting runs in the order of their ranks."""

    def _next(self, islands: Iterable[str]) -> Request | None:
        blocked: set[str] = set()
        paused: set[str] = set()
        for request in sorted(self.waiting.values(), key=lambda r: (self.policy.rank(r), r.number)):
            goes_on = request.number in self.running
            if not request.islands & (paused if goes_on else blocked) and self._may_start(request):
                return request
            if goes_on:
                paused |= request.islands
            if goes_on or not self._waits_for_clients_only(request):
                blocked |= request.islands
        return None


def scheduler(cls: type[Scheduler], policy: str) -> Scheduler:
    ledger = Ledger()
    for island in "xyz":
        ledger.limit((island, 0), 100)
    return cls(SCHEDULING_POLICIES[policy](), ledger, depth=2)


def request(rng: random.Random, number: int) -> Request:
    islands = frozenset(rng.sample(ISLANDS, rng.choice([1, 1, 1, 2, 3])))
    size = rng.choice([0, 0, 20, 60])
    wanted: dict[Hashable, int] = {(island, 0): size for island in sorted(islands & {*"xyz"})} if size else {}
    client = rng.choice("abcdefgh")
    weight, seconds = ord(client) - 96, rng.choice([1e-3, 2e-3])
    return Request(number, client, "program", islands, weight=weight, cost=Cost(seconds), bytes=wanted)


@pytest.mark.parametrize("policy", SCHEDULING_POLICIES)
@pytest.mark.parametrize("seed", range(40))
def test_runs_start_as_if_all_were_sorted_at_each_event(policy: str, seed: int) -> None:
    rng = random.Random(seed)
    ours, sorting = scheduler(Scheduler, policy), scheduler(Sorting, policy)
    held = dict.fromkeys("xyz", 0)
    aside: set[int] = set()
    for number in range(400):
        waiting, running = list(ours.waiting), [n for n in ours.running if n not in ours.waiting]
        enqueuing = sorted(set(ours.active.values()))
        match rng.choice(["submit", "submit", "submit", "enqueued", "enqueued", "finished", "finished", "pause",
                          "aside", "back", "cancel", "hold", "free"]):  # fmt: skip
            case "submit":
                made = request(rng, number)
                found = ours.submit(made), sorting.submit(made)
            case "enqueued" if enqueuing:
                which = rng.choice(enqueuing)
                left = {d: n // 2 for d, n in ours.running[which].bytes.items()} if rng.random() < 0.5 else None
                found = ours.enqueued(which, left), sorting.enqueued(which, left)
            case "finished" if running:
                which = rng.choice(running)
                aside.discard(which)
                found = ours.finished(which), sorting.finished(which)
            case "pause" if enqueuing:
                which = rng.choice(enqueuing)
                found = ours.pause(which), sorting.pause(which)
            case "aside" if enqueuing:
                aside.add(which := rng.choice(enqueuing))
                found = ours.yield_slot(which), sorting.yield_slot(which)
            case "back" if aside:
                aside.remove(which := rng.choice(sorted(aside)))
                found = ours.pause(which), sorting.pause(which)
            case "cancel" if waiting:
                which = rng.choice(waiting)
                found = ours.cancel(which), sorting.cancel(which)
            case ("hold" | "free") as what:
                island = rng.choice("xyz")
                size = rng.choice([10, 50]) if what == "hold" else -min(held[island], 50)
                held[island] += size
                found = tuple(each.hold(((island, 0),), size) for each in (ours, sorting))
            case _:
                continue
        assert found[0] == found[1]
        aside &= set(ours.running)
        assert ours.waiting == sorting.waiting and ours.active == sorting.active
        for which in ours.waiting:
            assert ours.lacks_memory(which) == sorting.lacks_memory(which)


def test_lines_are_empty_when_all_runs_are_removed() -> None:
    rng, lines, wanted = random.Random(0), WaitingLines(), Wanted()
    made = [request(rng, number) for number in range(50)]
    for one in made:
        lines.add(one, ((rng.random(), 0), one.number))
        wanted.add(one)
    assert lines.islands == set(ISLANDS) and wanted.by_others("x", "nobody")
    assert lines.rank_again("a", lambda r: (-1.0, r.number)) == {i for r in made if r.client == "a" for i in r.islands}
    assert all(first is not None and first.client == "a" for first in map(lines.first, ISLANDS))
    for one in made:
        assert lines.remove(one.number) is one and lines.remove(one.number) is None
        wanted.add(one, -1)
    assert not lines.islands and not lines.requests and not lines.spanned_with(ISLANDS)
    assert not wanted.by_others("x", "nobody")
