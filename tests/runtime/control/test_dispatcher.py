"""The dispatcher sends runs of many clients to hosts in one order and in fair shares, and leaves no state behind."""

import random
from collections import Counter
from typing import Any

import pytest
from support.fake_cluster import PLAN, FakeCluster, refused

from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.runtime.control import sessions
from pathways.runtime.control.delayed_runs import reasons_to_wait, refuse_hopeless
from pathways.runtime.control.sessions import ClientSession, Cost, InsideClient
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.encoding import frame_bytes
from pathways.runtime.wire.errors import HostLost
from pathways.runtime.wire.ids import first_id


@pytest.mark.parametrize("weights", [(1, 3), (1, 1), (2, 5), (1, 2, 4)])
def test_busy_clients_get_shares_in_proportion_to_their_weights(weights: tuple[int, ...]) -> None:
    cluster = FakeCluster(1)
    clients = [cluster.client() for _ in weights]
    numbers = Counter[int]()

    def more(client: ClientSession, weight: float) -> None:
        numbers[client.number] += 1
        cluster.submit(client, numbers[client.number], [0], weight)

    for client, weight in zip(clients, weights, strict=True):
        for _ in range(8):
            more(client, weight)
    cluster.collect_messages()
    had = Counter[int]()
    for _ in range(100 * sum(weights)):
        client = cluster.end(0) >> 48
        had[client] += 1
        more(clients[client - 1], weights[client - 1])
        cluster.collect_messages()
    for client, weight in zip(clients, weights, strict=True):
        assert abs(had[client.number] - 100 * weight) <= 8, had


def test_messages_after_a_waiting_run_are_sent_after_it() -> None:
    cluster = FakeCluster(2)
    one, other = cluster.client(), cluster.client()
    for number in range(1, 6):
        cluster.submit(other, number, [0])
    waits = cluster.submit(one, 1, [0, 1])
    cluster.free_array(one, 0, 1)
    cluster.free_array(one, 1, 1)
    later = cluster.submit(one, 2, [1])
    cluster.collect_messages()
    assert waits not in cluster.seen[0] and not cluster.seen[1]
    kinds: list[list[Any]] = []
    while waits not in cluster.seen[0]:
        cluster.end(0)
        peers: list[Any] = [member.ranks[0].peer for member in cluster.members]
        kinds = [[type(message) for message in peer.got] for peer in peers]
        cluster.collect_messages()
    assert kinds == [[m.RunPlan, m.FreeArrays], [m.RunPlan, m.FreeArrays, m.RunPlan]]
    assert cluster.seen[1] == [waits, later]


def test_a_run_for_a_lost_host_is_refused_and_other_runs_continue() -> None:
    cluster = FakeCluster(2)
    one, other = cluster.client(), cluster.client()
    busy = [cluster.submit(other, number, [0, 1]) for number in range(1, 6)]
    waits, after = cluster.submit(one, 1, [0, 1]), cluster.submit(one, 2, [1])
    cluster.collect_messages()
    cluster.replace_host(1)
    cluster.collect_messages()
    while any(cluster.pending):
        for host in range(2):
            while cluster.pending[host]:
                cluster.end(host)
            cluster.collect_messages()
    assert set(refused(one)) == {waits} or refused(one) == {waits: "PWC0910", after: "PWC0910"}
    assert set(refused(other)) <= set(busy)
    assert cluster.is_empty()


def test_a_waiting_run_reports_the_memory_that_it_lacks() -> None:
    cluster = FakeCluster(1, memory=100)
    one, other, third = cluster.client(), cluster.client(), cluster.client()
    cluster.dispatcher.hold(other, m.Hold(0, (0, 60)))
    cluster.submit(one, 1, [0], memory=50)
    assert reasons_to_wait(cluster.dispatcher, cluster.sessions) == {
        one.number: "lacks 10 B on island0; client of test 2 holds 60 B"
    }
    cluster.submit(third, 1, [0])  # needs no memory: may overtake the first, which waits for memory of clients
    cluster.dispatcher.hold(other, m.Hold(0, (0, -60)))
    assert reasons_to_wait(cluster.dispatcher, cluster.sessions) == {}


def test_a_waiting_run_reports_the_runs_ahead_of_it() -> None:
    cluster = FakeCluster(1)
    one, other = cluster.client(), cluster.client()
    for number in range(12):
        cluster.submit(one, number, [0])
        cluster.submit(other, number, [0])
    why = reasons_to_wait(cluster.dispatcher, cluster.sessions)
    assert set(why) == {one.number, other.number}
    assert all(text.startswith("after ") and "client of test" in text for text in why.values())


def test_completed_runs_are_counted_by_client_and_by_island() -> None:
    cluster = FakeCluster(2)
    one, other = cluster.client(), cluster.client()
    cluster.submit(one, 1, [0, 1], weight=3)
    cluster.submit(other, 1, [1])
    cluster.collect_messages()
    cluster.end(0)
    assert not one.had, "the run has not ended on all of its islands"
    cluster.end(1)
    cluster.end(1)
    (had,), (others,) = one.had.values(), other.had.values()
    assert (had.weight, had.runs, had.seconds) == (3.0, 1, 0.002), "a millisecond on each of two islands"
    assert (others.weight, others.runs, others.seconds) == (1.0, 1, 0.001)
    assert cluster.dispatcher.ended_on == {0: 1, 1: 2}


def test_a_run_that_lacks_memory_held_only_by_its_client_is_refused() -> None:
    cluster = FakeCluster(1, memory=100)
    one, other = cluster.client(), cluster.client()
    too_large = cluster.submit(one, 1, [0], memory=101)
    cluster.dispatcher.hold(one, m.Hold(0, (0, 60)))
    waits = cluster.submit(one, 2, [0], memory=50)
    cluster.dispatcher.hold(other, m.Hold(0, (0, 10)))
    refuse_hopeless(cluster.dispatcher, cluster.sessions)
    assert refused(one) == {too_large: "PWC0506"}
    cluster.dispatcher.hold(other, m.Hold(0, (0, -10)))
    refuse_hopeless(cluster.dispatcher, cluster.sessions)
    assert refused(one) == {too_large: "PWC0506", waits: "PWC0507"}
    cluster.dispatcher.hold(one, m.Hold(0, (0, -60)))
    cluster.submit(one, 3, [0], memory=50)
    cluster.collect_messages()
    cluster.end(0)
    assert cluster.is_empty()


@pytest.mark.parametrize("seed", range(200))
def test_random_events_keep_one_order_of_runs_and_leave_no_state(seed: int) -> None:
    rng = random.Random(seed)
    cluster = FakeCluster(rng.randint(1, 4), memory=rng.choice([None, 1000]))
    clients = [cluster.client(loops=rng.random() < 0.3) for _ in range(rng.randint(1, 4))]
    there, numbers = list(clients), Counter[int]()
    for _ in range(rng.randint(20, 200)):
        cluster.collect_messages()
        match rng.choice(["submit"] * 4 + ["end"] * 4 + ["free", "hold", "cancel", "go", "leave"]):
            case "submit" if there:
                client = rng.choice(there)
                numbers[client.number] += 1
                hosts = rng.sample(range(len(cluster.members)), rng.randint(1, len(cluster.members)))
                cluster.submit(client, numbers[client.number], hosts, rng.choice([1, 2, 5]), rng.choice([0, 10, 400]))
            case "end":
                if busy := [h for h, runs in enumerate(cluster.pending) if runs]:
                    cluster.end(rng.choice(busy))
            case "free" if there:
                cluster.free_array(rng.choice(there), rng.randrange(len(cluster.members)), 1)
            case "hold" if there:
                cluster.dispatcher.hold(rng.choice(there), m.Hold(0, (0, rng.choice([5, 100]))))
            case "cancel" if cluster.dispatcher.runs:
                run = rng.choice(list(cluster.dispatcher.runs))
                cluster.dispatcher.cancel(run, HostLost(island="x", reason="cancelled"))
            case "go" if rng.random() < 0.3:
                cluster.replace_host(rng.randrange(len(cluster.members)))
            case "leave" if len(there) > 1 and rng.random() < 0.3:
                client = there.pop(rng.randrange(len(there)))
                cluster.dispatcher.left_by(client, HostLost(island="x", reason="left"))
            case _:
                pass
    for client in list(there):
        cluster.dispatcher.left_by(client, HostLost(island="x", reason="left"))
    cluster.collect_messages()
    for host, runs in enumerate(cluster.pending):
        while runs:
            cluster.end(host)
    assert cluster.is_empty()
    for one in cluster.seen:
        for other in cluster.seen:
            common = set(one) & set(other)
            assert [r for r in one if r in common] == [r for r in other if r in common]


def test_hosts_receive_the_cause_of_a_refused_run() -> None:
    cluster = FakeCluster(1, memory=100)
    client = cluster.client()
    peer: Any = cluster.members[0].ranks[0].peer
    run = cluster.submit(client, 1, [0], memory=101)
    assert [(x.results, read_diagnostic(x.cause).code) for x in peer.got] == [(run, "PWC0506")]


def test_the_bytes_that_a_client_holds_count_up_to_the_limit_of_the_device() -> None:
    """They count in total, because a client of the process may be named after arrays were made for it."""
    cluster = FakeCluster(1, memory=100)
    client, held = cluster.client(), cluster.dispatcher.ledger.held
    device = ("island0", 0)
    for message, counted in ((m.Hold(0, (0, 70)), 70), (m.Hold(0, (0, 1000)), 100), (m.Hold(0, (0, -1030)), 40)):
        cluster.dispatcher.hold(client, message)
        assert held[device] == counted
    client.inside[0] = InsideClient("named later", 0)
    cluster.dispatcher.hold(client, m.Hold(0, (0, -40)))
    assert held[device] == 0
    cluster.dispatcher.hold(client, m.Hold(0, (0, -40)))
    assert held[device] == 0
    cluster.dispatcher.hold(client, m.Hold(0, (0, 90)))
    cluster.dispatcher.left_by(client, HostLost(island="none", reason="it has left"))
    assert held[device] == 0 and cluster.is_empty()


def test_a_plan_that_is_unloaded_is_forgotten() -> None:
    cluster = FakeCluster(1)
    client = cluster.client()
    plan = first_id(client.number)
    client.plans[plan] = client.plans[PLAN]
    frame = frame_bytes(m.UnloadPlan(plan))
    cluster.dispatcher.pass_on(client, m.Relayed(0, 0, 0, frame))
    assert set(client.plans) == {PLAN}


def test_runs_have_transfer_numbers_of_the_controllers_own() -> None:
    """Values of two runs of a client that names one number for both would be dropped as sent twice."""
    cluster = FakeCluster(2)
    client = cluster.client()
    numbers: list[set[int]] = []
    for number in range(20):
        cluster.submit(client, number, [0, 1])
        peers: list[Any] = [member.ranks[0].peer for member in cluster.members]
        numbers.append({message.transfers for peer in peers for message in peer.got})
        cluster.collect_messages()
        cluster.end(0)
        cluster.end(1)
    assert all(len(of_run) == 1 for of_run in numbers), "all islands of a run use the same"
    assert len({number for of_run in numbers for number in of_run}) == 20
    assert len({number % 3 for of_run in numbers for number in of_run}) > 1, "other processes cannot guess them"


def test_a_client_inside_of_a_process_is_forgotten_when_its_last_run_has_ended() -> None:
    cluster = FakeCluster(1)
    client = cluster.client()
    client.inside |= {0: InsideClient("ann", 0), 1: InsideClient("bob", 0)}
    cluster.submit(client, 1, [0])
    cluster.submit(client, 2, [0])
    ann = client.label(0)
    cluster.dispatcher.hold(client, m.Hold(0, (0, 60)))
    cluster.dispatcher.hold(client, m.Hold(0, (0, -60)))
    cluster.collect_messages()
    cluster.end(0)
    assert set(client.had) == {ann}
    client.retire(0)
    assert set(client.had) == {ann} and set(client.inside) == {1}, "one of its runs has not ended"
    cluster.end(0)
    client.retire(1)
    client.retire(7)
    assert not client.had and not client.inside and not client.held and not client.retired


def test_bytes_that_a_closed_client_holds_count_for_unnamed_clients_until_they_are_freed() -> None:
    cluster = FakeCluster(1, memory=100)
    client, device = cluster.client(), ("island0", 0)
    client.inside[0] = InsideClient("ann", 0)
    cluster.dispatcher.hold(client, m.Hold(0, (0, 60)))
    client.retire(0)
    assert list(client.held) == [client.label(sessions.UNNAMED)] and cluster.dispatcher.ledger.held[device] == 60
    cluster.dispatcher.hold(client, m.Hold(0, (0, -60)))  # with the number of a client that was retired
    assert not any(any(held.values()) for held in client.held.values()) and not cluster.dispatcher.ledger.held[device]


def test_bytes_of_a_queued_run_count_for_the_client_that_reported_them() -> None:
    cluster = FakeCluster(1, memory=100)
    one, other = cluster.client(), cluster.client()
    one.inside |= {0: InsideClient("ann", 0), 1: InsideClient("bob", 0)}
    for number in range(1, 6):
        cluster.submit(other, number, [0])
    waiting = cluster.submit(one, 1, [0])
    cluster.dispatcher.hold(one, m.Hold(1, (0, 20), waiting))
    bob = one.label(1)
    one.retire(1)
    cluster.collect_messages()
    while cluster.pending[0]:
        cluster.end(0)
        cluster.collect_messages()
    assert one.held[bob] == {0: 20}


def test_a_client_may_introduce_and_retire_clients_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_INTRODUCED", 4)
    monkeypatch.setattr(sessions, "MAX_INTRODUCED_BYTES", 100)
    client = FakeCluster(1).client()
    for number in range(50):
        client.introduce(m.Introduce(number, -1, f"client{number}", None, ""), 30, lambda digest: Cost())
        client.introduce(m.Introduce(number, -1, "again", None, ""), 30, lambda digest: Cost())
        client.retire(number)
    assert not client.inside and client.introduced_bytes == 0
