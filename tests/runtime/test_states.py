"""State tables refuse unknown events, and every state of a run or an edge can reach an end state."""

import gc
import random

import pytest

from pathways.dialect.diagnostics import InternalError
from pathways.runtime.client.buffers import StoredBuffer
from pathways.runtime.control.member import Epoch
from pathways.runtime.control.scheduling import SCHEDULING_POLICIES, Request
from pathways.runtime.control.scheduling.scheduler import Scheduler
from pathways.runtime.host.run.frame import Frame
from pathways.runtime.journal import MAX_KEPT, last_events, note
from pathways.runtime.states import ALL, BUFFER, PEER, QUEUE_ENTRY, RECEIVED, SENT, Life, States

EVENTS = sorted({event for states in ALL for row in states.table.values() for event in row} | {"explode"})


@pytest.mark.parametrize("states", ALL, ids=lambda s: s.what)
def test_every_state_of_a_table_is_reachable(states: States) -> None:
    reached, fresh = {states.first}, [states.first]
    while fresh:
        for state in states.table[fresh.pop()].values():
            assert state in states.table
            fresh += [state] if state not in reached else []
            reached.add(state)
    assert reached == set(states.table)


@pytest.mark.parametrize("states", (QUEUE_ENTRY, SENT, RECEIVED), ids=lambda s: s.what)
def test_every_state_can_reach_an_end_state(states: States) -> None:
    def reaches_end(state: str, seen: frozenset[str]) -> bool:
        following = set(states.table[state].values()) - seen
        return states.is_end(state) or any(reaches_end(s, seen | {s}) for s in following)

    assert all(reaches_end(state, frozenset((state,))) for state in states.table)


def test_events_that_repeat_forever_take_no_memory() -> None:
    """Objects with the same last events share them; a stream that fills and drains for days adds nothing."""
    life = Life(PEER)

    def objects_after(rounds: int) -> int:
        for _ in range(rounds):
            life.transition("fill")
            life.transition("drain")
        return sum(type(thing).__name__ == "_Events" for thing in gc.get_objects())

    assert 0 < objects_after(100) == objects_after(1000)


@pytest.mark.parametrize("states", ALL, ids=lambda s: s.what)
def test_every_event_in_every_state_is_taken_or_refused_with_the_events_before(states: States) -> None:
    for state, row in states.table.items():
        for event in EVENTS:
            life = Life(states)
            life.state = state
            if event in row:
                life.transition(event)
                assert life.state == row[event] and life.is_over == (not states.table[row[event]])
            else:
                with pytest.raises(
                    InternalError, match=f"{states.what} that is {state} cannot {event}; before: nothing"
                ):
                    life.transition(event)
                assert life.state == state
    life = Life(states)
    event = next(iter(states.table[states.first]))
    life.transition(event)
    with pytest.raises(InternalError, match=f"cannot explode; before: {event}"):
        life.transition("explode")


@pytest.mark.parametrize("states", ALL, ids=lambda s: s.what)
def test_an_event_that_a_state_does_not_allow_raises_an_error(states: States) -> None:
    rng, life = random.Random(states.what), Life(states)
    for _ in range(2000):
        event, state = rng.choice(EVENTS), life.state
        if event in states.table[state]:
            life.transition(event)
            assert life.state == states.table[state][event]
        else:
            with pytest.raises(InternalError, match=f"{states.what} that is {state} cannot {event}"):
                life.transition(event)
            assert life.state == state
        if life.is_over:
            life = Life(states)


def test_objects_keep_their_state_when_an_event_is_refused() -> None:
    frame = Frame(0, ())
    frame.transition_edge(SENT, 3, "be offered")
    with pytest.raises(InternalError):
        frame.transition_edge(SENT, 3, "be offered")
    with pytest.raises(InternalError):
        frame.transition_edge(RECEIVED, 4, "arrive")
    assert {number: life.state for number, life in frame.edges.items()} == {3: "offered", 4: "idle"}
    epoch = Epoch()
    epoch.settle(0, "join")
    with pytest.raises(InternalError):
        epoch.settle(0, "join")
    assert (epoch.number, epoch.state) == (0, "up")
    epoch.go()
    epoch.settle(0, "join")  # about the previous epoch: ignored
    assert (epoch.number, epoch.state) == (1, "starting")
    buffer = StoredBuffer.__new__(StoredBuffer)
    Life.__init__(buffer, BUFFER)
    with pytest.raises(InternalError):
        buffer.transition("claim")
    assert buffer.state == "new"


def request(number: int, rng: random.Random) -> Request:
    islands = frozenset(rng.sample(("a", "b", "c"), rng.randint(1, 3)))
    return Request(number, rng.choice(("ann", "bob")), "p", islands, 1.0)


@pytest.mark.parametrize("policy", SCHEDULING_POLICIES)
@pytest.mark.parametrize("seed", range(50))
def test_the_scheduler_refuses_wrong_events_and_ends_all_runs(policy: str, seed: int) -> None:
    """Sends random events, some of them wrong: those change nothing, and all runs can be cancelled."""
    rng = random.Random(seed)
    scheduler = Scheduler(SCHEDULING_POLICIES[policy]())
    begun: list[int] = []
    refused = 0

    def snapshot() -> object:
        counts = {i: dict(c) for i, c in scheduler.in_flight.items()}
        states = {number: life.state for number, life in scheduler.entries.items()}
        return states, dict(scheduler.waiting), dict(scheduler.running), dict(scheduler.active), counts

    for number in range(300):
        before = snapshot()
        which = rng.choice([*scheduler.entries, number])
        event = rng.choice(("submit", "pause", "yield_slot", "enqueued", "finished", "cancel"))
        try:
            begun += scheduler.submit(request(which, rng)) if event == "submit" else getattr(scheduler, event)(which)
        except InternalError:
            assert snapshot() == before
            refused += 1
        assert set(scheduler.entries) == {*scheduler.waiting, *scheduler.running}
    assert refused > 10 and begun
    while scheduler.entries:
        for which in list(scheduler.entries):
            scheduler.cancel(which)
    assert not scheduler.waiting and not scheduler.running and not scheduler.active
    assert not any(scheduler.in_flight.values())


def test_the_journal_keeps_the_last_events() -> None:
    for number in range(2 * MAX_KEPT):
        note("run", number, "ended")
    assert len(last_events(10 * MAX_KEPT)) == MAX_KEPT
    assert last_events(1)[0].endswith(f"s ago  run {2 * MAX_KEPT - 1} ended")
