"""Removing an island waits while hosts connect and, unless it is immediate, while runs use the island."""

from types import SimpleNamespace
from typing import Any

import pytest

from pathways.dialect.diagnostics import Diagnostic
from pathways.dialect.topology import Island, Topology, write_topology
from pathways.runtime.control.island_changes import IslandChanges
from pathways.runtime.control.member import Member, member_after, members_of
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import HostLost


class Cluster:
    """Two running islands; `poll` is the callback that the loop calls periodically."""

    def __init__(self) -> None:
        islands = tuple(Island(name, devices=1) for name in ("island0", "island1"))
        self.members = SimpleNamespace(
            all=members_of(islands), are_meeting=False, end=self._end, add=self._add, start=lambda _: None
        )
        self.used = False
        self.ended: list[str] = []
        self.answers: list[tuple[str, Diagnostic | None]] = []
        dispatcher = SimpleNamespace(is_used=lambda _: self.used, add=lambda _: 0)
        loop = SimpleNamespace(every=self._every)
        given: Any = (loop, Topology(islands), self.members, dispatcher, lambda _: None)
        self.changes = IslandChanges(*given)

    def _every(self, seconds: float, poll: Any) -> None:
        self.poll = poll

    def _end(self, member: Member) -> None:
        self.ended.append(member.name)
        member.epoch.settle(member.epoch.number, "stay away")

    def _add(self, island: Island) -> Member:
        self.members.all.append(member := member_after(self.members.all, island))
        return member

    def add(self) -> Member:
        """Requests another island; returns its record, whose hosts have not joined."""
        spec = write_topology(Topology((Island("pod", devices=1),)))
        self.changes.change(m.ChangeIslands(0, spec, "", named=True, now=False), lambda *a: self.answers.append(a))
        return self.members.all[-1]

    def remove(self, *, now: bool) -> None:
        self.changes.change(m.ChangeIslands(0, "", "island1", named=True, now=now), lambda *a: self.answers.append(a))


@pytest.mark.parametrize("now", [False, True])
def test_an_island_is_removed_only_after_hosts_have_connected(now: bool) -> None:
    cluster = Cluster()
    cluster.members.are_meeting = True
    cluster.remove(now=now)
    cluster.poll()
    assert cluster.ended == [] and cluster.answers == []
    cluster.members.are_meeting = False
    cluster.poll()
    assert cluster.ended == ["island1"] and cluster.answers == [("island1", None)]


def test_an_island_in_use_is_removed_only_by_an_immediate_removal() -> None:
    cluster = Cluster()
    cluster.used = True
    cluster.remove(now=False)
    cluster.poll()
    assert cluster.ended == []
    cluster.remove(now=True)
    assert cluster.ended == ["island1"]


@pytest.mark.parametrize("externally", [False, True])
def test_an_addition_fails_with_its_hosts_unless_they_may_connect_again(externally: bool) -> None:
    """Hosts that are started externally may exit and connect again at any time."""
    cluster = Cluster()
    member = cluster.add()
    process: Any = SimpleNamespace(is_started_externally=externally)
    member.process, member.lost = process, HostLost(island="pod", reason="a test")
    cluster.poll()
    assert (cluster.answers, cluster.ended) == (([], []) if externally else ([("pod", member.lost)], ["pod"]))
    if externally:
        member.epoch.settle(member.epoch.number, "join")
        cluster.poll()
        assert cluster.answers == [("pod", None)]
