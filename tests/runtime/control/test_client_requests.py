"""The dispatcher refuses what a client may not ask for: runs, messages behind them, and claims of memory."""

from typing import Any

import pytest
from support.fake_cluster import PLAN, FakeCluster, refused

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.control import dispatcher
from pathways.runtime.control.dispatcher import MAX_HELD_BYTES
from pathways.runtime.control.sessions import KnownPlan
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.client_messages import WEIGHT
from pathways.runtime.wire.encoding import frame_bytes, pack_parcels
from pathways.runtime.wire.ids import first_id
from pathways.runtime.wire.load_proofs import prove


def test_a_run_needs_proof_that_all_its_hosts_have_loaded_the_same_plan_of_just_its_islands() -> None:
    cluster = FakeCluster(3)
    client = cluster.client()

    def code(number: int, hosts: list[int]) -> str:
        run = cluster.submit(client, number, hosts, loads=False)
        cluster.collect_messages()
        for host in hosts:
            if run in cluster.pending[host]:
                cluster.end(host)
        return refused(client).get(run, "")

    both = [0, 1]
    assert code(1, [0]) == "PWC0911", "it is not loaded"
    assert code(2, [0, 1]) == "PWC0911", "neither has loaded it"
    cluster.load(client, 0, both)
    assert code(3, [0, 1]) == "PWC0911", "one has not loaded it"
    cluster.load(client, 1, both, b"another")
    assert code(4, [0, 1]) == "PWC0911", "they have loaded different plans"
    cluster.load(client, 1, [0, 1, 2])
    assert code(5, [0, 1]) == "PWC0911", "one has loaded a plan that another island has a part of"
    cluster.load(client, 1, both, sequential=True)
    assert code(10, [0, 1]) == "PWC0911", "they enqueue it in different orders"
    stranger = prove("00" * 32, PLAN, "work/0")
    for proofs in ("", stranger, f"{stranger} {stranger}"):
        cluster.dispatcher.loaded(client, m.Loaded(PLAN, 1, proofs))
        assert code(6, [0, 1]) == "PWC0911", proofs
    cluster.load(client, 1, both)
    assert not code(7, [0, 1])
    assert [code(11, [0]), code(12, [1])] == ["PWC0911"] * 2, "the other island would wait for its values"
    cluster.replace_host(1)
    assert code(8, [0, 1]) == "PWC0911", "the process in its place has loaded nothing"
    cluster.load(client, 1, both)
    assert not code(9, [0, 1]) and not refused(cluster.client())
    cluster.load(client, 2, [2])
    assert code(14, [0, 1, 2]) == "PWC0911" and not code(15, [2])


@pytest.mark.parametrize(
    "bad",
    [
        [(0, 0, [m.RunPlan(PLAN, 9, 0, 9, ())])],
        [(0, 0, [m.RunPlan(PLAN + 1, first_id(1) + 1, 0, first_id(1), ())])],
        [(0, 0, [m.RunPlan(PLAN, first_id(1) + 1, 0, first_id(2), ())])],
        [(0, 0, [m.RunPlan(PLAN, first_id(1) + 1, 0, first_id(1), (-1, first_id(1), first_id(2)))])],
        [(0, 0, [m.RunPlan(PLAN, first_id(1) + 1, 0, first_id(1), (-2,))])],
        [(0, 0, [m.FreeArrays((1, 2, 3, 4, 5))])],
        [(0, 0, [m.Forget(0, 2)])],
        [(9, 0, [m.RunPlan(PLAN, first_id(1) + 1, 0, first_id(1), ())])],
        [(0, 0, [])],
        [(0, 0, [m.RunPlan(PLAN, first_id(1) + 1, 0, first_id(1), ())] * 2)],
        [],
    ],
)
def test_a_client_can_start_only_its_own_runs(bad: Any) -> None:
    cluster = FakeCluster(1)
    client = cluster.client()
    with pytest.raises(PathwaysError) as caught:
        cluster.dispatcher.submit(client, m.Submit(first_id(1) + 1, PLAN, 0, WEIGHT, (), pack_parcels(bad)))
    assert caught.value.code in ("PWC0911", "PWC0916")
    cluster.collect_messages()
    assert cluster.is_empty() and cluster.seen == [[]]


@pytest.mark.parametrize(
    "bad",
    [
        m.Fence("island0", ""),
        m.Expect(2, "", "", ""),
        m.Forget(0, 2),
        m.FreeArrays((first_id(2),)),
        m.UnloadPlan(first_id(2)),
    ],
)
def test_relayed_messages_that_a_client_may_not_send_are_refused(bad: m.Message) -> None:
    cluster = FakeCluster(1)
    frame = frame_bytes(bad)
    for data in (frame, frame[:-1], frame + b"x", b""):
        with pytest.raises(PathwaysError) as caught:
            cluster.dispatcher.pass_on(cluster.client(), m.Relayed(0, 0, 0, data))
        assert caught.value.code in ("PWC0911", "PWC0916")


@pytest.mark.parametrize("memory", [(0,), (1, 5), (-1, 5), (0, 1, 7, 1)])
def test_memory_of_unknown_devices_is_refused(memory: tuple[int, ...]) -> None:
    cluster = FakeCluster(1, memory=10)
    client = cluster.client()
    with pytest.raises(PathwaysError, match="PWC0911"):
        cluster.dispatcher.hold(client, m.Hold(0, memory))
    parcels = pack_parcels([(0, 0, [m.RunPlan(PLAN, first_id(1) + 1, 0, first_id(1), ())])])
    with pytest.raises(PathwaysError, match="PWC0911"):
        cluster.dispatcher.submit(client, m.Submit(first_id(1) + 1, PLAN, 0, WEIGHT, memory, parcels))
    assert cluster.is_empty()


def test_a_plan_with_branches_on_hosts_outside_the_run_is_refused() -> None:
    cluster = FakeCluster(2)
    client = cluster.client()
    client.plans[PLAN] = KnownPlan(
        "work", {0: ("while", frozenset(("island0", "island1")))}, cluster.dispatcher.cost_of("")
    )
    with pytest.raises(PathwaysError, match="PWC0911"):
        cluster.submit(client, 1, [0])
    assert cluster.is_empty()


def test_claims_of_more_bytes_than_any_device_has_are_refused() -> None:
    cluster = FakeCluster(1, memory=100)
    client = cluster.client()
    for size in (MAX_HELD_BYTES + 1, -MAX_HELD_BYTES - 1):
        with pytest.raises(PathwaysError, match="PWC0911"):
            cluster.dispatcher.hold(client, m.Hold(0, (0, size)))
    assert cluster.is_empty()


def test_a_client_has_a_bounded_number_of_runs_and_bytes_in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends, or is sent to its host, counts no more."""
    monkeypatch.setattr(dispatcher, "MAX_RUNS_PER_CLIENT", 3)
    cluster = FakeCluster(1)
    client = cluster.client()
    for turn in range(3):
        for number in range(3):
            cluster.submit(client, 10 * turn + number, [0])
        with pytest.raises(PathwaysError, match="3 incomplete runs"):
            cluster.submit(client, 10 * turn + 3, [0])
        while cluster.pending[0] or cluster.dispatcher.runs:
            cluster.collect_messages()
            cluster.end(0)
    assert client.runs == 0


def test_two_parcels_for_one_island_are_refused() -> None:
    cluster = FakeCluster(1)
    client = cluster.client()
    run = m.RunPlan(PLAN, first_id(1) + 1, 0, first_id(1), ())
    with pytest.raises(PathwaysError, match="two parcels for island 0"):
        cluster.dispatcher.submit(
            client, m.Submit(run.run, PLAN, 0, WEIGHT, (), pack_parcels([(0, 0, [run]), (0, 0, [run])]))
        )
    assert cluster.is_empty()


def test_a_run_whose_client_hides_a_branch_of_its_plan_is_refused() -> None:
    """Its hosts would wait for ever for decisions that the controller does not pass on."""
    cluster = FakeCluster(2)
    client, other = cluster.client(), cluster.client()
    known = client.plans[PLAN]
    both = frozenset[str](("island0", "island1"))
    real = KnownPlan("work", {4: ("cond", both)}, known.cost)
    hidings: list[dict[int, tuple[str, frozenset[str]]] | None] = [None, {}, {4: ("while", both)}]
    for hidden in hidings:
        client.plans[PLAN] = real
        cluster.load(client, 0, [0, 1])
        cluster.load(client, 1, [0, 1])
        client.plans[PLAN] = KnownPlan("work", hidden, known.cost, dict(real.loaded))
        run = cluster.submit(client, 1, [0, 1], loads=False)
        assert refused(client)[run] == "PWC0911"
    client.plans[PLAN] = real
    run = cluster.submit(client, 2, [0, 1], loads=False)
    assert run not in refused(client) and not refused(other)
