"""The dispatcher at its limits: what it counts, refuses, forgets, and sends on after each end."""

from typing import Any

import pytest
from support.fake_cluster import PLAN, FakeCluster, FakePeer, refused

from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.topology import Island
from pathways.runtime.control import dispatcher
from pathways.runtime.control.delayed_runs import reasons_to_wait, refuse_hopeless
from pathways.runtime.control.dispatcher import MAX_HELD_BYTES, Dispatcher
from pathways.runtime.control.member import member_after
from pathways.runtime.control.scheduling import SCHEDULING_POLICIES, STRIDE
from pathways.runtime.control.sessions import ClientSession, KnownPlan
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.client_messages import WEIGHT
from pathways.runtime.wire.decided import CANCELLED, DOOMED, ENDED
from pathways.runtime.wire.encoding import frame_bytes, pack_parcels
from pathways.runtime.wire.errors import HostLost
from pathways.runtime.wire.ids import first_id
from pathways.runtime.wire.load_proofs import loaded_as, prove

LOST = HostLost(island="x", reason="a test")


class Gang(FakeCluster):
    """One island of two hosts."""

    def __init__(self) -> None:
        super().__init__(1)
        member = member_after([], Island("island0", devices=1, hosts=2))
        self.members[:] = [member]
        self.join_host(member)
        other: Any = FakePeer()
        member.ranks[1].peer, member.ranks[1].key = other, b"another key"
        self.dispatcher = Dispatcher(self.members, SCHEDULING_POLICIES[STRIDE]())

    def prove(self, session: ClientSession, *plans: bytes) -> None:
        """Each of the two hosts proves that it has loaded a plan."""
        loaded = [loaded_as(plan, ["island0"], session.plans[PLAN].branches, sequential=False) for plan in plans]
        keys = map(session.key_of, self.members[0].ranks)
        proofs = [prove(key, PLAN, what) for key, what in zip(keys, loaded, strict=True)]
        self.dispatcher.loaded(session, m.Loaded(PLAN, 0, " ".join(proofs)))


def got(cluster: FakeCluster, host: int, rank: int = 0) -> list[Any]:
    peer: Any = cluster.members[host].ranks[rank].peer
    return peer.got


def code(session: ClientSession, cluster: FakeCluster, message: m.Submit | m.Loaded | m.Relayed | m.Hold) -> str:
    use: Any = {m.Submit: "submit", m.Loaded: "loaded", m.Relayed: "pass_on", m.Hold: "hold"}[type(message)]
    with pytest.raises(PathwaysError) as caught:
        getattr(cluster.dispatcher, use)(session, message)
    return caught.value.code


def with_branches(cluster: FakeCluster, kind: str, *hosts: str) -> ClientSession:
    client = cluster.client()
    client.plans[PLAN] = KnownPlan("work", {0: (kind, frozenset(hosts))}, cluster.dispatcher.cost_of(""))
    return client


def busy(cluster: FakeCluster, host: int) -> ClientSession:
    """Fills a host with runs of a client, so that runs of others wait."""
    client = cluster.client()
    for number in range(1, 6):
        cluster.submit(client, number, [host])
    return client


def test_an_island_that_returns_keeps_the_numbers_of_its_devices_and_has_its_new_limit() -> None:
    cluster = FakeCluster(2, memory=100)
    add, limits = cluster.dispatcher.add, cluster.dispatcher.ledger.limits
    third = member_after(cluster.members, Island("pod", devices=2))
    assert [add(member) for member in (*cluster.members, third, third)] == [0, 1, 2, 2]
    cluster.members[1].island = Island("island1", devices=1)
    assert add(cluster.members[1]) == 1 and limits == {("island0", 0): 100}


def test_an_island_is_used_by_runs_that_wait_and_by_runs_in_flight() -> None:
    cluster = FakeCluster(3)
    client = cluster.client()
    cluster.submit(client, 1, [0, 1])
    used = [cluster.dispatcher.is_used(member) for member in cluster.members]
    assert used == [True, True, False]


def test_the_costs_of_a_limited_number_of_plans_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "MAX_KEPT_COSTS", 2)
    cost_of = FakeCluster(1).dispatcher.cost_of
    a, b = cost_of("a"), cost_of("b")
    assert cost_of("a") is a and cost_of("b") is b
    c = cost_of("c")
    assert cost_of("b") is b and cost_of("c") is c and cost_of("a") is not a


def test_the_cost_of_a_plan_approaches_the_time_of_its_slowest_host() -> None:
    cluster = FakeCluster(2)
    client = cluster.client()
    cost = client.plans[PLAN].cost
    start = cost.seconds
    for number in range(100):
        run = cluster.submit(client, number, [0, 1])
        cluster.dispatcher.ended(cluster.members[0].ranks[0], run, 9_000_000)
        if not number:
            assert cost.seconds == start, "one of its hosts has not ended"
        cluster.dispatcher.ended(cluster.members[1].ranks[0], run, 1_000_000)
        if not number:
            assert start < cost.seconds < start + 0.004
    assert cost.seconds == pytest.approx(0.009, rel=0.01)
    assert [member.worked for member in cluster.members] == [True, True]


def test_only_known_plans_are_loaded_on_known_islands() -> None:
    cluster = FakeCluster(1)
    client = cluster.client()
    assert code(client, cluster, m.Loaded(PLAN, 1, "")) == "PWC0911"
    assert code(client, cluster, m.Loaded(PLAN + 1, 0, "")) == "PWC0911"
    cluster.dispatcher.loaded(client, m.Loaded(PLAN, 0, "no proof"))
    assert not client.plans[PLAN].loaded


@pytest.mark.parametrize(("second", "code"), [(b"one", ""), (b"another", "PWC0911")])
def test_the_hosts_of_an_island_must_have_loaded_the_same_plan(second: bytes, code: str) -> None:
    cluster = Gang()
    client = cluster.client()
    cluster.prove(client, b"one", second)
    run = cluster.submit(client, 1, [0], loads=False)
    assert refused(client).get(run, "") == code


@pytest.mark.parametrize("islands", [(1,), (0, 1), (1, 0)])
def test_a_run_on_an_unknown_island_is_refused(islands: tuple[int, ...]) -> None:
    cluster = FakeCluster(1)
    client = cluster.client()
    run = m.RunPlan(PLAN, first_id(1), 0, first_id(1), ())
    parcels = pack_parcels([(island, 0, [run]) for island in islands])
    assert code(client, cluster, m.Submit(run.run, PLAN, 0, WEIGHT, (), parcels)) == "PWC0911"


def test_a_run_takes_memory_of_its_own_islands_alone() -> None:
    """Else its end would free memory where no waiting run is looked at."""
    cluster = FakeCluster(2, memory=100)
    client = cluster.client()
    cluster.load(client, 0, [0])
    start = m.RunPlan(PLAN, first_id(1), 0, first_id(1), ())
    parcels = pack_parcels([(0, 0, [start])])
    others, both, own = (
        m.Submit(start.run, PLAN, 0, WEIGHT, pairs, parcels) for pairs in ((1, 60), (0, 1, 1, 60), (0, 60))
    )
    assert code(client, cluster, others) == code(client, cluster, both) == "PWC0911"
    cluster.dispatcher.submit(client, own)
    assert start.run in cluster.dispatcher.runs


def test_a_run_may_take_the_whole_memory_of_a_device_and_no_byte_more() -> None:
    cluster = FakeCluster(2, memory=100)
    client = cluster.client()
    fits, never = cluster.submit(client, 1, [1], memory=100), cluster.submit(client, 2, [1], memory=103)
    (said,) = [x for x in client.peer.got if isinstance(x, m.RunRefused)]  # pyright: ignore[reportAttributeAccessIssue]
    text = str(PathwaysError(read_diagnostic(said.cause)))
    assert said.run == never and "island1" in text and "103 bytes on one device, 3 B more than it has" in text
    cluster.collect_messages()
    assert cluster.pending[1] == [fits]


def test_a_client_holds_at_most_a_limited_number_of_bytes_in_all() -> None:
    cluster = FakeCluster(1)
    client = cluster.client()
    cluster.dispatcher.hold(client, m.Hold(0, (0, MAX_HELD_BYTES - 10)))
    cluster.dispatcher.hold(client, m.Hold(0, (0, 10)))
    assert code(client, cluster, m.Hold(0, (0, 1))) == "PWC0911"


def test_messages_after_runs_go_at_once_if_no_run_waits() -> None:
    cluster = FakeCluster(2)
    client = cluster.client()
    cluster.free_array(client, 1, 3)
    assert got(cluster, 1) == [m.FreeArrays((first_id(1) + 3,))] and not got(cluster, 0)
    frame = frame_bytes(m.FreeArrays((first_id(1),)))
    assert code(client, cluster, m.Relayed(2, 0, 0, frame)) == "PWC0911"


def test_the_bytes_in_line_of_a_client_are_counted_and_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster(1)
    busy(cluster, 0)
    client = cluster.client()
    cluster.submit(client, 1, [0])
    of_run = client.waiting_bytes
    cluster.free_array(client, 0, 1)
    both, waits = client.waiting_bytes, client.lines[0]
    assert of_run > 8 * 5 and both - of_run == len(waits[1].frame)  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setattr(dispatcher, "MAX_WAITING_BYTES", both + of_run)
    cluster.submit(client, 2, [0])
    assert client.waiting_bytes == both + of_run, "exactly the limit is allowed"
    with pytest.raises(PathwaysError, match="bytes in the queue of client of test"):
        cluster.free_array(client, 0, 2)
    monkeypatch.undo()
    client.waiting_bytes = both + of_run  # the refusal ends the client; here it stays
    cluster.collect_messages()
    while any(cluster.pending):
        cluster.end(0)
        cluster.collect_messages()
    assert client.waiting_bytes == 0 and cluster.is_empty()


@pytest.mark.parametrize(("cause", "text"), [(LOST, "a test"), (None, "another host has replaced it")])
def test_a_run_in_line_for_a_replaced_host_is_refused_with_the_cause(cause: HostLost | None, text: str) -> None:
    cluster = FakeCluster(1)
    busy(cluster, 0)
    client = cluster.client()
    waits = cluster.submit(client, 1, [0])
    cluster.collect_messages()
    member = cluster.members[0]
    member.epoch.go()
    cluster.join_host(member)
    member.lost = cause
    while cluster.pending[0]:
        cluster.end(0)
    (said,) = [x for x in client.peer.got if isinstance(x, m.RunRefused)]  # pyright: ignore[reportAttributeAccessIssue]
    assert said.run == waits and text in str(PathwaysError(read_diagnostic(said.cause)))


def test_hosts_leave_a_run_one_by_one() -> None:
    cluster = FakeCluster(3)
    client = cluster.client()
    run = cluster.submit(client, 1, [0, 1])
    hosts = [member.ranks[0] for member in cluster.members]
    cluster.dispatcher.ended(hosts[2], run, 1)
    assert cluster.dispatcher.hosts_at(run) == hosts[:2]
    cluster.dispatcher.ended(hosts[0], run, 1)
    cluster.dispatcher.ended(hosts[0], run, 1)
    assert cluster.dispatcher.hosts_at(run) == [hosts[1]]
    cluster.dispatcher.ended(hosts[1], run, 1)
    assert cluster.dispatcher.hosts_at(run) == [] and cluster.is_empty()
    cluster.dispatcher.ended(hosts[1], run, 1)  # of a run that has ended: ignored


def test_the_loss_of_an_island_ends_only_its_parts_of_runs() -> None:
    cluster = FakeCluster(2)
    client = cluster.client()
    both, other = cluster.submit(client, 1, [0, 1]), cluster.submit(client, 2, [1])
    rank = cluster.members[1].ranks[0]
    cluster.replace_host(0)
    assert cluster.dispatcher.hosts_at(both) == cluster.dispatcher.hosts_at(other) == [rank]


def test_hosts_of_a_run_hear_its_decisions_and_its_loss() -> None:
    cluster = FakeCluster(2)
    client = with_branches(cluster, "while", "island0", "island1")
    run = cluster.submit(client, 1, [0, 1])
    relay = cluster.dispatcher.runs[run].relay
    assert relay is not None
    decided = m.Decided(run, 0, 100, 5, 1)
    relay.deliver("island0", decided)
    assert [got(cluster, host)[-1] for host in range(2)] == [decided, decided]
    old = got(cluster, 1)
    cluster.replace_host(1)
    names = [said.name for said in got(cluster, 0) if isinstance(said, m.Undecided)]
    assert names == [DOOMED], "an island of one host goes by the run, not by each loop"
    assert old[-1] == decided and got(cluster, 1) == [], "another host has taken the place: it hears nothing of the run"


@pytest.mark.parametrize("leaves", [False, True])
def test_loops_of_a_running_run_end_if_it_is_cancelled_or_its_client_leaves(leaves: bool) -> None:
    cluster = Gang()
    client = with_branches(cluster, "while", "island0/0", "island0/1")
    cluster.prove(client, b"one", b"one")
    run = cluster.submit(client, 1, [0], loads=False)
    relay = cluster.dispatcher.runs[run].relay
    assert relay is not None
    relay.deliver("island0/0", m.Decided(run, 0, 100, 5, 1))
    if leaves:
        cluster.dispatcher.left_by(client, LOST)
    else:
        cluster.dispatcher.cancel(run, LOST)
    for rank in range(2):
        said = [x for x in got(cluster, 0, rank) if isinstance(x, m.Undecided)]
        assert [x.name for x in said] == [ENDED, CANCELLED] and {x.cause for x in said} == {said[0].cause}


def test_a_cancelled_run_is_refused_and_lets_those_behind_it_go() -> None:
    cluster = FakeCluster(1, memory=100)
    one, other, third = (cluster.client() for _ in range(3))
    cluster.submit(one, 1, [0], memory=80)
    waits = cluster.submit(other, 1, [0], memory=50)
    behind = cluster.submit(other, 2, [0])
    small = cluster.submit(third, 1, [0], memory=10)
    cluster.collect_messages()
    assert small not in cluster.pending[0]
    cluster.dispatcher.cancel(behind, LOST)
    assert refused(other) == {behind: "PWC0910"}, "it is behind a run of its own client, and not in line yet"
    cluster.dispatcher.cancel(waits, LOST)
    cluster.dispatcher.cancel(waits, LOST)  # it has ended: ignored
    cluster.collect_messages()
    assert refused(other) == {behind: "PWC0910", waits: "PWC0910"} and small in cluster.pending[0]


def test_runs_start_with_the_memory_of_a_client_that_leaves() -> None:
    cluster = FakeCluster(1, memory=100)
    holder, waiter = cluster.client(), cluster.client()
    cluster.dispatcher.hold(holder, m.Hold(0, (0, 60)))
    own, waits = cluster.submit(holder, 1, [0], memory=90), cluster.submit(waiter, 1, [0], memory=50)
    cluster.dispatcher.left_by(holder, LOST)
    cluster.collect_messages()
    assert cluster.pending[0] == [waits] and own not in cluster.dispatcher.runs
    assert not holder.held and not holder.counted


def test_the_first_waiting_run_of_a_client_is_explained() -> None:
    cluster = FakeCluster(2, memory=100)
    client, other = cluster.client(), cluster.client()
    cluster.dispatcher.hold(other, m.Hold(0, (0, 60, 1, 60)))
    cluster.submit(client, 1, [0], memory=50)
    cluster.submit(client, 2, [1], memory=70)
    said = reasons_to_wait(cluster.dispatcher, cluster.sessions)
    assert said == {client.number: "lacks 10 B on island0; client of test 2 holds 60 B"}


def test_hopeless_runs_are_refused_also_behind_runs_that_only_wait() -> None:
    cluster = FakeCluster(2, memory=100)
    busy(cluster, 0)
    client, other = cluster.client(), cluster.client()
    cluster.submit(client, 1, [0])
    cluster.dispatcher.hold(client, m.Hold(0, (1, 60)))
    cluster.dispatcher.hold(other, m.Hold(0, (1, 1)))
    never, after = cluster.submit(client, 2, [1], memory=50), cluster.submit(client, 3, [1])
    refuse_hopeless(cluster.dispatcher, cluster.sessions)
    assert not refused(client), "another client holds a byte, and may free it"
    cluster.dispatcher.hold(other, m.Hold(0, (1, -1)))
    refuse_hopeless(cluster.dispatcher, cluster.sessions)
    (said,) = [x for x in client.peer.got if isinstance(x, m.RunRefused)]  # pyright: ignore[reportAttributeAccessIssue]
    cause: Any = read_diagnostic(said.cause)
    assert (said.run, cause.code, cause.island, cause.held, cause.free) == (never, "PWC0507", "island1", "60 B", "40 B")
    cluster.collect_messages()
    assert cluster.pending[1] == [after]


def test_a_run_waits_for_all_lines_of_its_client() -> None:
    cluster = FakeCluster(2)
    busy(cluster, 1)
    client = cluster.client()
    first, both = cluster.submit(client, 1, [1]), cluster.submit(client, 2, [0, 1])
    runs = cluster.dispatcher.runs
    assert (runs[first].life.state, runs[both].life.state) == ("in line", "behind")


def test_a_host_expects_a_client_under_its_number_ticket_and_certificate() -> None:
    cluster = FakeCluster(1)
    peer: Any = FakePeer()
    client, rank = ClientSession(3, "me", 0, peer, member="me/1"), cluster.members[0].ranks[0]
    assert client.expected_by(rank) == m.Expect(3, client.ticket, "me/1", client.key_of(rank))


FREED = m.FreeArrays((first_id(1),))
PUT = m.PutArray(first_id(1) + 1, first_id(1), 0, b"x")


@pytest.mark.parametrize("refused_as", ["never fits", "cancelled"])
def test_arguments_of_a_refused_run_arrive_after_the_runs_before_it(refused_as: str) -> None:
    cluster = FakeCluster(1, memory=100)
    client = cluster.client()
    busy(cluster, 0)
    ahead = list(cluster.dispatcher.runs)
    cluster.collect_messages()
    first = cluster.submit(client, 100, [0], before=[FREED])
    memory = 103 if refused_as == "never fits" else 0
    second = cluster.submit(client, 200, [0], memory=memory, before=[PUT])
    if refused_as == "cancelled":
        cluster.dispatcher.cancel(second, LOST)
    assert list(refused(client)) == [second]
    peer: Any = cluster.members[0].ranks[0].peer
    assert FREED not in peer.got and PUT not in peer.got
    for run in ahead:
        cluster.dispatcher.ended(cluster.members[0].ranks[0], run, 1000)
    runs = [message.run for message in peer.got if isinstance(message, m.RunPlan)]
    assert peer.got.index(FREED) < peer.got.index(PUT)
    assert first in runs and second not in runs and not client.waiting_bytes
