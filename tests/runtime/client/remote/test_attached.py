"""A client of a cluster connects to the hosts of an island, presents its ticket to each, and reports their loss."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.topology import Island, Topology, write_topology
from pathways.runtime.client.remote.attached import Attached
from pathways.runtime.client.remote.remote_host import show_ticket
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import BadMessage, HostLost
from pathways.runtime.wire.frames import ConnectionEnded

ACCEPTED, REFUSAL = m.Answer(-1), BadMessage(have_="another ticket", rule="yours")
REFUSED = m.Answer(-1, error=write_diagnostic(REFUSAL))
TICKET = m.Attach(-1, 3, "a ticket")


class FakeConnection:
    """A connection to a host that answers the first message as a test says."""

    def __init__(self, answer: m.Message | None) -> None:
        self.answer = answer
        self.posted: list[m.Message] = []
        self.is_closed = False

    def post(self, *messages: m.Message) -> None:
        self.posted += messages

    def receive(self) -> m.Message:
        if self.answer is None:
            raise ConnectionEnded("a test says so")
        return self.answer

    def close(self) -> None:
        self.is_closed = True

    def hand_over(self, loop: object) -> "FakeConnection":
        return self

    def begin(self, *_: object) -> None:
        """Receives nothing."""


class Loop:
    def call(self, work: Callable[[], None]) -> None:
        work()

    def every(self, seconds: float, work: Callable[[], None]) -> None:
        """Sets no timer."""


class ToNobody:
    """The connection to a controller that a test plays."""

    def flush_kept(self) -> None:
        """Has kept nothing."""


def attached(**answers: m.Message | None) -> tuple[Attached, dict[str, FakeConnection]]:
    """A client of a cluster of one island, `pod`, whose hosts answer to the ticket as a test says."""
    hosts = {f"pod/{name[1:]}": FakeConnection(answer) for name, answer in answers.items()}
    topology = write_topology(Topology((Island("pod", devices=len(hosts), hosts=len(hosts)),)))
    spec = json.dumps([0, {name: f"at {name}" for name in hosts}, "", 0])
    welcome = m.Welcome(3, TICKET.ticket, "cpu", topology, "stride", {"pod": spec})
    given: Any = Loop(), "here", ToNobody(), welcome, lambda address, name: hosts[name]
    return Attached(*given), hosts


@pytest.mark.parametrize(
    ("answer", "code"), [(ACCEPTED, ""), (REFUSED, "PWC0911"), (m.Beat(0, 0), "PWC0911"), (None, "ended")]
)
def test_a_connection_to_a_host_that_does_not_accept_the_ticket_is_closed(answer: m.Message | None, code: str) -> None:
    connection = FakeConnection(answer)
    to: Any = connection
    try:
        cause = show_ticket(to, TICKET)
        found = "" if cause is None else cause.code
    except ConnectionEnded:
        found = "ended"
    assert (found, connection.is_closed) == (code, code != "") and connection.posted == [TICKET]


def test_all_connections_to_an_island_are_closed_if_one_host_refuses() -> None:
    client, hosts = attached(_0=ACCEPTED, _1=REFUSED)
    with pytest.raises(PathwaysError) as caught:
        client.host("pod")
    assert caught.value.diagnostic == REFUSAL and all(host.is_closed for host in hosts.values())


def test_the_loss_of_an_island_is_reported_with_its_cause_and_closes_its_connections() -> None:
    client, hosts = attached(_0=ACCEPTED, _1=ACCEPTED)
    assert [member.name for member in client.host("pod").members] == list(hosts)
    assert not any(host.is_closed for host in hosts.values())
    reported: list[Any] = []
    client.on_lost = lambda island, cause: reported.append((island.name, cause))
    cause = HostLost(island="pod", reason="a test says so")
    client.deliver(m.HostDisconnected("pod", 0, write_diagnostic(cause)))
    assert reported == [("pod", cause)] and all(host.is_closed for host in hosts.values())
