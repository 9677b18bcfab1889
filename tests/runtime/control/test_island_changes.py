"""Removing an island waits while hosts connect and, unless it is immediate, while runs use the island."""

from types import SimpleNamespace
from typing import Any

import pytest

from pathways.dialect.diagnostics import Diagnostic
from pathways.dialect.topology import Island, Topology
from pathways.runtime.control.island_changes import IslandChanges
from pathways.runtime.control.member import Member, members_of
from pathways.runtime.wire import messages as m


class Cluster:
    """Two running islands; `poll` is the callback that the loop calls periodically."""

    def __init__(self) -> None:
        islands = tuple(Island(name, devices=1) for name in ("island0", "island1"))
        self.members = SimpleNamespace(all=members_of(islands), are_meeting=False, end=self._end)
        self.used = False
        self.ended: list[str] = []
        self.answers: list[tuple[str, Diagnostic | None]] = []
        dispatcher = SimpleNamespace(is_used=lambda _: self.used)
        loop = SimpleNamespace(every=self._every)
        given: Any = (loop, Topology(islands), self.members, dispatcher, lambda _: None)
        self.changes = IslandChanges(*given)

    def _every(self, seconds: float, poll: Any) -> None:
        self.poll = poll

    def _end(self, member: Member) -> None:
        self.ended.append(member.name)
        member.epoch.settle(member.epoch.number, "stay away")

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
