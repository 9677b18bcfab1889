"""When the dispatcher counts the memory of arrays, and that a run which fails leaves its line."""

from typing import Any

import pytest
from support.fake_cluster import FakeCluster, refused

from pathways.dialect.diagnostics import InternalError
from pathways.dialect.topology import Island
from pathways.runtime.wire import messages as m


def test_what_a_run_makes_is_counted_when_the_run_begins() -> None:
    """Else a run that waits for memory would wait for its own results."""
    cluster = FakeCluster(1, memory=100)
    client = cluster.client()
    first = cluster.submit(client, 1, [0], memory=80)
    waiting = cluster.submit(client, 2, [0], memory=80)
    cluster.dispatcher.hold(client, m.Hold(0, (0, 60), waiting))
    assert cluster.dispatcher.ledger.held[("island0", 0)] == 0
    cluster.collect_messages()
    assert cluster.end(0) == first
    assert cluster.dispatcher.runs[waiting].life.state == "on hosts"
    assert cluster.dispatcher.ledger.held[("island0", 0)] == 60 and client.waiting_bytes == 0
    cluster.dispatcher.hold(cluster.client(), m.Hold(0, (0, 5), waiting))  # another client's run: counted at once
    assert cluster.dispatcher.ledger.held[("island0", 0)] == 65


def test_an_island_of_another_size_begins_with_nothing_held() -> None:
    cluster = FakeCluster(1, memory=100)
    client, member = cluster.client(), cluster.members[0]
    cluster.dispatcher.hold(client, m.Hold(0, (0, 60)))
    assert cluster.dispatcher.add(member) == 0 and cluster.dispatcher.ledger.held[("island0", 0)] == 60
    member.island = Island("island0", devices=2, memory=100)
    assert cluster.dispatcher.add(member) == member.first == 1
    assert [cluster.dispatcher.ledger.held[("island0", at)] for at in range(2)] == [0, 0]
    cluster.dispatcher.hold(client, m.Hold(0, (0, -60)))  # the old array is freed: nothing of the new devices
    assert [cluster.dispatcher.ledger.held[("island0", at)] for at in range(2)] == [0, 0]


def test_a_run_that_fails_while_it_begins_leaves_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster(1)
    client = cluster.client()
    real = cluster.dispatcher.scheduler.enqueued

    def fails_once(*given: Any) -> list[int]:
        monkeypatch.undo()
        raise InternalError("a test says so")

    monkeypatch.setattr(cluster.dispatcher.scheduler, "enqueued", fails_once)
    bad = cluster.submit(client, 1, [0])
    good = cluster.submit(client, 2, [0])
    assert cluster.dispatcher.scheduler.enqueued == real
    assert bad not in cluster.dispatcher.runs and cluster.dispatcher.runs[good].life.state == "on hosts"
    assert not client.lines[0]
    assert refused(client) == {bad: "PWC0929"}
