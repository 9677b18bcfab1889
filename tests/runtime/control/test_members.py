"""Hosts of a cluster connect with each other, hang, and stop sending messages: what the other hosts receive."""

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest
from support.fake_cluster import FakePeer, Timers

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.dialect.diagnostics import Diagnostic
from pathways.dialect.topology import Island
from pathways.runtime.control import members as of_members
from pathways.runtime.control.member import Member, Rank
from pathways.runtime.control.members import JOIN_RETRY_DELAY_S, Members
from pathways.runtime.errors import Hang
from pathways.runtime.launch.launcher import Started
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.credentials import Caller
from pathways.runtime.wire.errors import HostLost
from pathways.runtime.wire.message import VERSIONS

HANG = Hang(seconds="10", program="step", run=3, client="main", calls="its own", others="")


class Host(FakePeer):
    """The connection of a host. It records the reason of its end."""

    last_received = 0.0
    reason = ""

    def end(self, reason: str) -> None:
        self.reason = reason

    def asked(self, kind: type[m.Message]) -> list[Any]:
        return [message for message in self.got if isinstance(message, kind)]


class Process(Started):
    """A process that runs until it is killed."""

    @property
    def pids(self) -> Sequence[int]:
        return [1]

    def ended(self) -> str:
        return ""

    def kill(self) -> None:
        """Kills nothing: the test ends the connection instead."""


class Launcher:
    def start(self, island: Island, epoch: int, tickets: Sequence[str]) -> Process:
        return Process()


class Cluster:
    """The members of a cluster, with what they report."""

    def __init__(self, *islands: Island) -> None:
        self.timers = Timers()
        self.connected: list[str] = []
        self.lost: list[Diagnostic] = []
        loop: Any = self.timers
        self.members = Members(loop, Launcher(), islands, self._connect, self._lose, lambda _: None)
        self.members.begin()

    def _connect(self, member: Member) -> None:
        self.connected.append(member.name)

    def _lose(self, member: Member, epoch: int, cause: Diagnostic) -> None:
        self.lost.append(cause)

    def hello(self, name: str) -> Host:
        """Registers the process of a host."""
        rank, peer = self.members.by_name[name], Host()
        to: Any = peer
        self.members.hello(to, m.Hello(name, 1, VERSIONS, f"at {name}", rank.ticket), Caller(1))
        return peer

    def rank(self, name: str) -> Rank:
        return self.members.by_name[name]

    def answer(self, name: str, request: int, value: Any, error: str = "") -> None:
        self.members.deliver(self.rank(name), m.Answer(request, value=json.dumps(value), error=error))


def pair() -> tuple[Cluster, Host, Host]:
    """Two islands whose hosts have registered and were asked for their addresses."""
    cluster = Cluster(Island("a", devices=1), Island("b", devices=1))
    first, second = cluster.hello("a"), cluster.hello("b")
    cluster.timers.wait()
    return cluster, first, second


def offer(cluster: Cluster, name: str, request: int) -> None:
    """Answers a question for the addresses that a host offers to the others."""
    others = {"a", "b", "c"} - {name}
    cluster.answer(name, request, {other: f"{name} for {other}" for other in others})


def test_hosts_are_connected_after_each_has_the_addresses_of_the_others() -> None:
    cluster, first, second = pair()
    assert [x.asked(m.Connect)[-1].invitations for x in (first, second)] == [{"b": ""}, {"a": ""}]
    offer(cluster, "a", first.asked(m.Connect)[-1].request)
    assert len(second.asked(m.Connect)) == 1, "not before all have answered"
    offer(cluster, "b", second.asked(m.Connect)[-1].request)
    assert [x.asked(m.Connect)[-1].invitations for x in (first, second)] == [{"b": "b for a"}, {"a": "a for b"}]
    cluster.answer("a", first.asked(m.Connect)[-1].request, {})
    assert not cluster.connected and cluster.members.are_meeting
    cluster.answer("b", second.asked(m.Connect)[-1].request, {})
    assert cluster.connected == ["a", "b"] and not cluster.members.are_meeting


def test_late_answers_to_an_earlier_join_are_ignored() -> None:
    """Its addresses lack the host that has registered meanwhile."""
    cluster = Cluster(*(Island(name, devices=1) for name in "abc"))
    hosts = [cluster.hello(name) for name in "ab"]
    cluster.timers.wait()
    early = [host.asked(m.Connect)[-1].request for host in hosts]
    hosts.append(cluster.hello("c"))
    cluster.timers.wait()
    for name, request in zip("ab", early, strict=True):
        offer(cluster, name, request)
    assert [len(host.asked(m.Connect)) for host in hosts] == [2, 2, 1]
    for _ in range(2):
        for name, host in zip("abc", hosts, strict=True):
            offer(cluster, name, host.asked(m.Connect)[-1].request)
    assert cluster.connected == ["a", "b", "c"]


def test_a_host_that_is_lost_during_a_join_is_left_out_of_the_next() -> None:
    cluster, first, second = pair()
    lost = cluster.rank("b").member
    cluster.members.lose(lost, HostLost(island="b", reason="a test"))
    assert second.reason and [fence.island for fence in first.asked(m.Fence)] == ["b"]
    cluster.timers.wait()
    assert [x.invitations for x in first.asked(m.Connect)] == [{"b": ""}, {}]


def test_a_host_that_fails_to_connect_is_asked_again_after_a_delay(capsys: pytest.CaptureFixture[str]) -> None:
    cluster, first, second = pair()
    error = write_diagnostic(HostLost(island="a", reason="no free port"))
    cluster.answer("a", first.asked(m.Connect)[-1].request, {}, error)
    assert "no free port" in capsys.readouterr().err and not cluster.members.are_meeting
    assert cluster.timers.wait() == [JOIN_RETRY_DELAY_S]
    cluster.timers.wait()
    assert [len(host.asked(m.Connect)) for host in (first, second)] == [2, 2] and not cluster.lost


def test_an_island_of_one_host_that_hangs_is_lost_at_once() -> None:
    cluster = Cluster(Island("a", devices=1))
    host = cluster.hello("a")
    cluster.members.unusable(cluster.rank("a"), m.Unusable(write_diagnostic(HANG)))
    assert cluster.lost == [HANG] and host.reason and not host.asked(m.CallRoll)


@pytest.mark.parametrize(("idle", "is_lost"), [(5.0, True), (4.9, False)])
def test_an_island_of_two_hosts_is_lost_by_a_hang_only_if_both_are_idle(idle: float, is_lost: bool) -> None:
    """Otherwise the host that reports the hang only waits for the other host."""
    cluster = Cluster(Island("a", devices=2, hosts=2))
    hosts = {name: cluster.hello(name) for name in ("a/0", "a/1")}
    cluster.members.unusable(cluster.rank("a/0"), m.Unusable(write_diagnostic(HANG)))
    for name, seconds, calls in (("a/0", 10.0, ["f on x"]), ("a/1", idle, [])):
        assert not cluster.lost
        request = hosts[name].asked(m.CallRoll)[-1].request
        cluster.answer(name, request, {"idle": seconds, "calls": calls})
    (cause, *more) = cluster.lost or [None]
    assert not more and (isinstance(cause, Hang) and cause.calls == "a/0: f on x\na/1: no run in flight") == is_lost


@pytest.mark.parametrize("late", [("a/0",), ("a/0", "a/1")])
def test_hosts_without_heartbeats_are_lost_once_for_each_island(
    late: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(Island("a", devices=2, hosts=2), Island("b", devices=1))
    hosts = {name: cluster.hello(name) for name in ("a/0", "a/1", "b")}
    limit = of_members.host_timeout()
    for name, host in hosts.items():
        host.last_received = time.monotonic() - (limit + 5) * (name in late)
    cluster.timers.poll()
    (cause,) = cluster.lost
    assert isinstance(cause, HostLost) and cause.island == "a/0" and "heartbeat timeout" in cause.reason
    assert [bool(host.reason) for host in hosts.values()] == [True, True, False]
