"""Runs of many clients go to their hosts in one order, each client has its share, and nothing is left in the end."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.topology import Island
from pathways.runtime.control.dispatcher import Dispatcher
from pathways.runtime.control.member import Member, members_of
from pathways.runtime.control.scheduling import SCHEDULING_POLICIES, STRIDE
from pathways.runtime.control.sessions import ClientSession, KnownPlan
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.client_messages import WEIGHT
from pathways.runtime.wire.encoding import decode, encode, pack_parcels
from pathways.runtime.wire.errors import HostLost
from pathways.runtime.wire.frames import HEADER, frame_of
from pathways.runtime.wire.ids import first_id

PLAN = 7


class FakePeer:
    """The other end of a stream: what it was sent."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def post(self, data: bytes) -> None:
        while data:
            size, kind = HEADER.unpack_from(data)
            self.got.append(decode(kind, data[HEADER.size : HEADER.size + size]))
            data = data[HEADER.size + size :]


class Hall:
    """Hosts that end runs when a test says so, and clients."""

    def __init__(self, hosts: int, memory: int | None = None) -> None:
        self.members = members_of(Island(f"island{n}", devices=1, memory=memory) for n in range(hosts))
        for member in self.members:
            self.comes(member)
        self.dispatcher = Dispatcher(self.members, SCHEDULING_POLICIES[STRIDE]())
        self.sessions: list[ClientSession] = []
        self.pending: list[list[int]] = [[] for _ in self.members]
        """The runs that each host has and has not ended, in the order in which it got them."""
        self.seen: list[list[int]] = [[] for _ in self.members]

    def comes(self, member: Member) -> None:
        peer: Any = FakePeer()
        member.ranks[0].peer = peer
        member.epoch.settle(member.epoch.number, "join")

    def client(self, *, loops: bool = False) -> ClientSession:
        peer: Any = FakePeer()
        session = ClientSession(len(self.sessions) + 1, "test", 0, peer)
        session.plans[PLAN] = KnownPlan("work", {} if loops else None, self.dispatcher.cost_of("work"))
        self.sessions.append(session)
        return session

    def submit(
        self, session: ClientSession, number: int, hosts: Sequence[int], weight: float = 1, memory: int = 0
    ) -> int:
        run = first_id(session.number) + number
        parcels = [(h, self.members[h].epoch.number, m.RunPlan(PLAN, run, 0, run, ())) for h in hosts]
        pairs = tuple(n for h in hosts for n in (h, memory)) if memory else ()
        self.dispatcher.submit(session, m.Submit(run, PLAN, 1, 0, int(weight * WEIGHT), pairs, pack_parcels(parcels)))
        return run

    def frees(self, session: ClientSession, host: int, array: int) -> None:
        frame = b"".join(frame_of(*encode(m.FreeArrays((first_id(session.number) + array,)))))
        self.dispatcher.pass_on(session, m.Relayed(host, self.members[host].epoch.number, 0, frame))

    def look(self) -> None:
        """Takes what hosts were sent."""
        for number, member in enumerate(self.members):
            peer: Any = member.ranks[0].peer
            if peer is None:
                continue
            for message in peer.got:
                if isinstance(message, m.RunPlan):
                    self.pending[number].append(message.run)
                    self.seen[number].append(message.run)
            peer.got.clear()

    def end(self, host: int) -> int:
        """Has a host end the run that it has had longest."""
        run = self.pending[host].pop(0)
        self.dispatcher.ended(self.members[host].ranks[0], run, 1_000_000)
        return run

    def goes(self, host: int) -> None:
        """A host is gone, and another comes."""
        member = self.members[host]
        cause = HostLost(island=member.name, reason="killed")
        member.epoch.go()
        member.ranks[0].peer, member.lost = None, cause
        self.pending[host].clear()
        self.dispatcher.gone(member, cause)
        self.comes(member)

    def is_empty(self) -> bool:
        scheduler = self.dispatcher.scheduler
        return not (
            self.dispatcher.runs
            or scheduler.waiting
            or scheduler.running
            or scheduler.states
            or any(any(counts.values()) for counts in scheduler.in_flight.values())
            or any(self.dispatcher.ledger.reserved.values())
            or any(line for session in self.sessions for line in session.lines.values())
        )


def refused(session: ClientSession) -> dict[int, str]:
    peer: Any = session.peer
    return {x.run: read_diagnostic(x.cause).code for x in peer.got if isinstance(x, m.RunRefused)}


@pytest.mark.parametrize("weights", [(1, 3), (1, 1), (2, 5), (1, 2, 4)])
def test_clients_that_always_want_have_their_shares(weights: tuple[int, ...]) -> None:
    hall = Hall(1)
    clients = [hall.client() for _ in weights]
    numbers = Counter[int]()

    def more(client: ClientSession, weight: float) -> None:
        numbers[client.number] += 1
        hall.submit(client, numbers[client.number], [0], weight)

    for client, weight in zip(clients, weights, strict=True):
        for _ in range(8):
            more(client, weight)
    hall.look()
    had = Counter[int]()
    for _ in range(100 * sum(weights)):
        client = hall.end(0) >> 48
        had[client] += 1
        more(clients[client - 1], weights[client - 1])
        hall.look()
    for client, weight in zip(clients, weights, strict=True):
        assert abs(had[client.number] - 100 * weight) <= 8, had


def test_what_follows_a_run_waits_for_it_and_overtakes_none() -> None:
    hall = Hall(2)
    one, other = hall.client(), hall.client()
    for number in range(1, 6):
        hall.submit(other, number, [0])
    waits = hall.submit(one, 1, [0, 1])
    hall.frees(one, 0, 1)
    hall.frees(one, 1, 1)
    later = hall.submit(one, 2, [1])
    hall.look()
    assert waits not in hall.seen[0] and not hall.seen[1]
    kinds: list[list[Any]] = []
    while waits not in hall.seen[0]:
        hall.end(0)
        peers: list[Any] = [member.ranks[0].peer for member in hall.members]
        kinds = [[type(message) for message in peer.got] for peer in peers]
        hall.look()
    assert kinds == [[m.RunPlan, m.FreeArrays], [m.RunPlan, m.FreeArrays, m.RunPlan]]
    assert hall.seen[1] == [waits, later]


def test_a_run_for_a_host_that_is_gone_is_refused_and_what_follows_goes_on() -> None:
    hall = Hall(2)
    one, other = hall.client(), hall.client()
    busy = [hall.submit(other, number, [0, 1]) for number in range(1, 6)]
    waits, after = hall.submit(one, 1, [0, 1]), hall.submit(one, 2, [1])
    hall.look()
    hall.goes(1)
    hall.look()
    while any(hall.pending):
        for host in range(2):
            while hall.pending[host]:
                hall.end(host)
            hall.look()
    assert set(refused(one)) == {waits} or refused(one) == {waits: "PWC0910", after: "PWC0910"}
    assert set(refused(other)) <= set(busy)
    assert hall.is_empty()


def test_a_run_in_line_says_what_it_waits_for() -> None:
    hall = Hall(1, memory=100)
    one, other, third = hall.client(), hall.client(), hall.client()
    hall.dispatcher.hold(other, m.Hold(0, (0, 60)))
    hall.submit(one, 1, [0], memory=50)
    assert hall.dispatcher.why_held_up(hall.sessions) == {
        one.number: "lacks 10 B on island0; client of test 2 holds 60 B"
    }
    hall.submit(third, 1, [0])  # which needs no memory: it may pass the first, which only clients can help
    hall.dispatcher.hold(other, m.Hold(0, (0, -60)))
    assert hall.dispatcher.why_held_up(hall.sessions) == {}


def test_runs_that_are_ahead_are_what_a_run_waits_for() -> None:
    hall = Hall(1)
    one, other = hall.client(), hall.client()
    for number in range(12):
        hall.submit(one, number, [0])
        hall.submit(other, number, [0])
    why = hall.dispatcher.why_held_up(hall.sessions)
    assert set(why) == {one.number, other.number}
    assert all(text.startswith("behind ") and "client of test" in text for text in why.values())


def test_what_clients_have_had_is_counted_by_client_and_island() -> None:
    hall = Hall(2)
    one, other = hall.client(), hall.client()
    hall.submit(one, 1, [0, 1], weight=3)
    hall.submit(other, 1, [1])
    hall.look()
    hall.end(0)
    assert not one.had, "it has not ended on all of its islands"
    hall.end(1)
    hall.end(1)
    (had,), (others,) = one.had.values(), other.had.values()
    assert (had.weight, had.runs, had.seconds) == (3.0, 1, 0.002), "a millisecond on each of two islands"
    assert (others.weight, others.runs, others.seconds) == (1.0, 1, 0.001)
    assert hall.dispatcher.ended_on == {0: 1, 1: 2}


def test_memory_that_only_its_own_client_has_refuses_a_run() -> None:
    hall = Hall(1, memory=100)
    one, other = hall.client(), hall.client()
    too_large = hall.submit(one, 1, [0], memory=101)
    hall.dispatcher.hold(one, m.Hold(0, (0, 60)))
    waits = hall.submit(one, 2, [0], memory=50)
    hall.dispatcher.hold(other, m.Hold(0, (0, 10)))
    hall.dispatcher.refuse_hopeless(hall.sessions)
    assert refused(one) == {too_large: "PWC0506"}
    hall.dispatcher.hold(other, m.Hold(0, (0, -10)))
    hall.dispatcher.refuse_hopeless(hall.sessions)
    assert refused(one) == {too_large: "PWC0506", waits: "PWC0507"}
    hall.dispatcher.hold(one, m.Hold(0, (0, -60)))
    hall.submit(one, 3, [0], memory=50)
    hall.look()
    hall.end(0)
    assert hall.is_empty()


@pytest.mark.parametrize("seed", range(200))
def test_any_order_of_events_keeps_one_order_and_ends_empty(seed: int) -> None:
    rng = random.Random(seed)
    hall = Hall(rng.randint(1, 4), memory=rng.choice([None, 1000]))
    clients = [hall.client(loops=rng.random() < 0.3) for _ in range(rng.randint(1, 4))]
    there, numbers = list(clients), Counter[int]()
    for _ in range(rng.randint(20, 200)):
        hall.look()
        match rng.choice(["submit"] * 4 + ["end"] * 4 + ["free", "hold", "cancel", "go", "leave"]):
            case "submit" if there:
                client = rng.choice(there)
                numbers[client.number] += 1
                hosts = rng.sample(range(len(hall.members)), rng.randint(1, len(hall.members)))
                hall.submit(client, numbers[client.number], hosts, rng.choice([1, 2, 5]), rng.choice([0, 10, 400]))
            case "end":
                if busy := [h for h, runs in enumerate(hall.pending) if runs]:
                    hall.end(rng.choice(busy))
            case "free" if there:
                hall.frees(rng.choice(there), rng.randrange(len(hall.members)), 1)
            case "hold" if there:
                hall.dispatcher.hold(rng.choice(there), m.Hold(0, (0, rng.choice([5, 100]))))
            case "cancel" if hall.dispatcher.runs:
                run = rng.choice(list(hall.dispatcher.runs))
                hall.dispatcher.cancel(run, HostLost(island="x", reason="cancelled"))
            case "go" if rng.random() < 0.3:
                hall.goes(rng.randrange(len(hall.members)))
            case "leave" if len(there) > 1 and rng.random() < 0.3:
                client = there.pop(rng.randrange(len(there)))
                hall.dispatcher.left_by(client, HostLost(island="x", reason="left"))
            case _:
                pass
    for client in list(there):
        hall.dispatcher.left_by(client, HostLost(island="x", reason="left"))
    hall.look()
    for host, runs in enumerate(hall.pending):
        while runs:
            hall.end(host)
    assert hall.is_empty()
    for one in hall.seen:
        for other in hall.seen:
            common = set(one) & set(other)
            assert [r for r in one if r in common] == [r for r in other if r in common]


@pytest.mark.parametrize(
    "bad",
    [
        [(0, 0, m.RunPlan(PLAN, 9, 0, 9, ()))],
        [(0, 0, m.RunPlan(PLAN + 1, first_id(1) + 1, 0, first_id(1), ()))],
        [(0, 0, m.RunPlan(PLAN, first_id(1) + 1, 0, first_id(2), ()))],
        [(0, 0, m.RunPlan(PLAN, first_id(1) + 1, 0, first_id(1), (-1, first_id(1), first_id(2))))],
        [(0, 0, m.RunPlan(PLAN, first_id(1) + 1, 0, first_id(1), (-2,)))],
        [(0, 0, m.FreeArrays((1, 2, 3, 4, 5)))],
        [(0, 0, m.Forget(2))],
        [(9, 0, m.RunPlan(PLAN, first_id(1) + 1, 0, first_id(1), ()))],
        [],
    ],
)
def test_a_client_starts_nothing_but_its_own_runs(bad: Any) -> None:
    hall = Hall(1)
    client = hall.client()
    with pytest.raises(PathwaysError) as caught:
        hall.dispatcher.submit(client, m.Submit(first_id(1) + 1, PLAN, 1, 0, WEIGHT, (), pack_parcels(bad)))
    assert caught.value.code in ("PWC0911", "PWC0916")
    hall.look()
    assert hall.is_empty() and hall.seen == [[]]


@pytest.mark.parametrize(
    "bad",
    [m.Fence("island0", ""), m.Expect(2, ""), m.Forget(2), m.FreeArrays((first_id(2),)), m.UnloadPlan(first_id(2))],
)
def test_a_client_sends_nothing_but_what_is_its_own(bad: m.Message) -> None:
    hall = Hall(1)
    frame = b"".join(frame_of(*encode(bad)))
    for data in (frame, frame[:-1], frame + b"x", b""):
        with pytest.raises(PathwaysError) as caught:
            hall.dispatcher.pass_on(hall.client(), m.Relayed(0, 0, 0, data))
        assert caught.value.code in ("PWC0911", "PWC0916")


@pytest.mark.parametrize("memory", [(0,), (1, 5), (-1, 5), (0, 1, 7, 1)])
def test_memory_of_no_device_is_refused(memory: tuple[int, ...]) -> None:
    hall = Hall(1, memory=10)
    client = hall.client()
    with pytest.raises(PathwaysError, match="PWC0911"):
        hall.dispatcher.hold(client, m.Hold(0, memory))
    parcels = pack_parcels([(0, 0, m.RunPlan(PLAN, first_id(1) + 1, 0, first_id(1), ()))])
    with pytest.raises(PathwaysError, match="PWC0911"):
        hall.dispatcher.submit(client, m.Submit(first_id(1) + 1, PLAN, 1, 0, WEIGHT, memory, parcels))
    assert hall.is_empty()


def test_later_runs_find_why_there_are_no_results_of_a_refused_one() -> None:
    hall = Hall(1, memory=100)
    client = hall.client()
    peer: Any = hall.members[0].ranks[0].peer
    run = hall.submit(client, 1, [0], memory=101)
    assert [(x.array, read_diagnostic(x.cause).code) for x in peer.got] == [(run, "PWC0506")]


def test_branches_of_other_hosts_than_the_run_s_are_refused() -> None:
    hall = Hall(2)
    client = hall.client()
    client.plans[PLAN] = KnownPlan(
        "work", {0: ("while", frozenset(("island0", "island1")))}, hall.dispatcher.cost_of("")
    )
    with pytest.raises(PathwaysError, match="PWC0911"):
        hall.submit(client, 1, [0])
    assert hall.is_empty()
