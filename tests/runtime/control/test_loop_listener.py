"""A controller at a port lets in members of its cluster, each as what its certificate says, and nothing holds it up."""

import contextlib
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.members import HERE, PATIENCE, Members, hello

from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.topology import Island, Topology
from pathways.runtime.control import cluster_controller, loop_listener
from pathways.runtime.control.cluster_controller import ClusterController
from pathways.runtime.control.loop import Loop
from pathways.runtime.control.loop_listener import LoopListener
from pathways.runtime.control.scheduling import SCHEDULING_POLICIES, STRIDE
from pathways.runtime.launch.joining import JoiningLauncher
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.encoding import pack_parcels
from pathways.runtime.wire.frames import HEADER, ConnectionEnded
from pathways.runtime.wire.identity import Role
from pathways.runtime.wire.ids import first_id
from pathways.runtime.wire.port import listening_at
from pathways.runtime.wire.tls import Keys, join_as
from pathways.runtime.wire.versions import VERSIONS

SOON = 0.3
"""Seconds that a handshake may take."""


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Members:
    return Members(tmp_path_factory.mktemp("members"))


class Running:
    """A controller in a thread, at a port, that waits for a host of one device."""

    def __init__(self, members: Members) -> None:
        self.members, self.loop = members, Loop()
        self.listener = listening_at(HERE)
        self.address = self.listener.getsockname()
        topology = Topology((Island("island0", devices=1), Island("island1", devices=1)))
        policy = SCHEDULING_POLICIES[STRIDE]()
        self.controller = ClusterController(
            self.loop, topology, "cpu", policy, JoiningLauncher(Path(), HERE[0]), "here"
        )
        self.port = LoopListener(
            self.loop, self.listener, members.keys("controller"), ("host", "client"),
            self.controller.accept_member, seconds=SOON,
        )  # fmt: skip
        self.thread = threading.Thread(target=self.loop.run, daemon=True)
        self.thread.start()
        self.made: list[Connection] = []

    def come(self, role: Role, name: str = "alice", keys: Keys | None = None) -> Connection:
        connection, _ = join_as(self.address, keys or self.members.keys(role, name), "controller")
        self.made.append(connection)
        return connection

    def host(self, name: str = "island0") -> Connection:
        """A host that comes, and says at once that runs are done."""
        connection = self.come("host", name)
        connection.post(m.Ask(1, "host"))
        spec = json.loads(answer_of(connection))
        ticket = spec.pop("ticket")
        assert spec == {
            "devices": 1,
            "rank": 0,
            "hosts": {},
            "group": "",
            "platform": "cpu",
        }
        connection.post(m.Hello(name, 1, VERSIONS, "nowhere", ticket))
        threading.Thread(target=serve, args=(connection,), daemon=True).start()
        return connection

    def works(self) -> bool:
        """Whether a client that comes now has a run done."""
        connection = self.come("client")
        connection.post(m.ComeIn("test", 1, VERSIONS))
        welcome = next_of(connection)
        assert isinstance(welcome, m.Welcome)
        first = first_id(welcome.client)
        while not (epoch := json.loads(welcome.hosts["island0"]))[1]:
            came = next_of(connection)
            if isinstance(came, m.HostCame) and came.island == "island0":
                epoch = [came.epoch]
                break
        parcels = pack_parcels([(0, epoch[0], m.RunPlan(first, first, 0, first, ()))])
        connection.post(m.Submit(first, first, 1, 0, 1, (), parcels))
        said = next_of(connection)
        while isinstance(said, m.HostCame):  # of another island, at any time
            said = next_of(connection)
        connection.close()
        return isinstance(said, m.Relayed)

    def close(self) -> None:
        self.loop.interrupt(self.controller.close)
        self.thread.join(PATIENCE)
        for connection in self.made:
            connection.close()
        self.port.close()
        self.listener.close()
        self.loop.close()
        assert not self.thread.is_alive()


def serve(connection: Connection) -> None:
    with contextlib.suppress(ConnectionEnded):
        while True:
            match message := connection.receive():
                case m.Connect():
                    value = json.dumps(dict.fromkeys(message.invitations, "a"))
                    connection.post(m.Answer(message.request, value=value))
                case m.RunPlan():
                    connection.post(m.Done(message.run, 1000))
                case _:
                    pass


def next_of(connection: Connection) -> m.Message:
    return next(said for said in iter(connection.receive, None) if not isinstance(said, m.Beat))


def answer_of(connection: Connection) -> str:
    """What was answered. Raises what a refusal says."""
    said = next_of(connection)
    if isinstance(said, m.RunRefused):
        raise PathwaysError(read_diagnostic(said.cause))
    assert isinstance(said, m.Answer)
    return said.value


@pytest.fixture
def running(members: Members, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setenv("PATHWAYS_HOST_TIMEOUT", "1000")  # of its signs of life none is given
    made = Running(members)
    yield made
    made.close()


def code_of(connection: Connection, message: m.Message) -> str:
    """Why what a member says is refused; then its stream ends."""
    connection.post(message)
    with pytest.raises(PathwaysError) as caught:
        answer_of(connection)
    with pytest.raises(ConnectionEnded):
        next_of(connection)
    return caught.value.code


def test_hosts_and_clients_come_by_their_certificates(running: Running) -> None:
    running.host()
    assert running.works()
    running.host("island1")
    assert running.works()
    client = running.come("client")
    client.post(m.Ask(1, "status"))
    status = json.loads(answer_of(client))
    assert [host["pid"] for i in status["islands"] for host in i["hosts"]] == [0, 0]


def test_another_host_comes_in_the_place_of_one_that_is_gone(running: Running) -> None:
    for epoch in range(8):  # more than a host that is started may end before it has done anything
        host = running.host()
        assert epoch % 4 or running.works()
        host.close()
        client = running.come("client")
        said: dict[str, Any] = {}
        while not said or said["islands"][0]["epoch"] == epoch:
            client.post(m.Ask(1, "status"))
            said = json.loads(answer_of(client))
        assert said["islands"][0]["state"] == "starting"
    running.host()
    assert running.works()


def test_members_are_what_their_certificates_say(running: Running) -> None:
    running.host()
    assert code_of(running.come("host", "island1"), m.ComeIn("x", 1, VERSIONS)) == "PWC0913"
    assert code_of(running.come("client"), m.Hello("island1", 1, VERSIONS)) == "PWC0913"
    assert code_of(running.come("client"), m.Ask(1, "host")) == "PWC0913"
    for what in ("status", "stop", "stacks"):
        assert code_of(running.come("host", "island1"), m.Ask(1, what)) == "PWC0913"
    assert code_of(running.come("host", "island1"), m.Hello("island0", 1, VERSIONS)) == "PWC0910"
    assert code_of(running.come("host", "island7"), m.Ask(1, "host")) == "PWC0910"
    for said in (m.Ask(1, "host"), m.Hello("island0", 1, VERSIONS)):  # there is one already
        assert code_of(running.come("host", "island0"), said) == "PWC0910"
    assert code_of(running.come("host", "island1"), m.Hello("island1", 1, VERSIONS | {"jax": "0"})) == "PWC0910"
    assert code_of(running.come("client"), m.Forget(1)) == "PWC0911"
    assert running.works()


STRANGERS: dict[str, Callable[[Members], Keys]] = {
    "of another cluster": lambda a: a.keys("host", "island0", authority="theirs"),
    "expired": lambda a: a.keys("client", "alice", begins=-2),
    "another controller": lambda a: a.keys("controller", "b"),
}


@pytest.mark.parametrize("case", STRANGERS)
def test_strangers_are_not_let_in(case: str, running: Running, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PathwaysError) as caught:
        running.come("client", keys=STRANGERS[case](running.members))
    assert caught.value.code == "PWC0913"
    running.host()
    assert running.works()
    assert "PWC0913: there is no connection with the process at 127.0.0.1:" in capfd.readouterr().err


NOISE: dict[str, Callable[[Members], bytes]] = {
    "a plain frame": lambda _: HEADER.pack(16, 1) + bytes(16),
    "a web browser": lambda _: b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    "random bytes": lambda _: random.Random(1).randbytes(5000),
    "much of a handshake": lambda _: b"\x16\x03\x01\x40\x00\x01\x00\xff\xff" + bytes(1 << 17),
    "silence": lambda _: b"",
    "half a handshake": lambda a: hello(a)[:100],
    "a handshake without an end": hello,
}


@pytest.mark.parametrize("case", NOISE)
def test_noise_and_silence_end_soon(case: str, running: Running) -> None:
    running.host()
    with socket.create_connection(running.address) as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(NOISE[case](running.members))
        assert running.works()
        sock.settimeout(PATIENCE)
        with contextlib.suppress(ConnectionError):
            b"".join(iter(lambda: sock.recv(1 << 16), b""))  # an alert, perhaps; then it is closed
    assert running.works()


def test_a_thousand_that_say_nothing_hold_up_no_member(
    running: Running, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    port: Any = running.port
    port._seconds = PATIENCE
    running.host()
    silent: list[socket.socket] = []
    try:
        for number in range(1000):
            silent.append(socket.create_connection(running.address))
            assert len(port._coming) <= loop_listener.MOST_HANDSHAKES + 1
            assert number % 200 or running.works()
        assert running.works()
        silent[0].settimeout(PATIENCE)
        assert silent[0].recv(1) == b""  # the first was dropped
        for number in range(0, 1000, 10):  # and noise does no more
            with contextlib.suppress(OSError):
                silent[number].sendall(b"noise")
        assert running.works()
    finally:
        for sock in silent:
            sock.close()
    assert len(capfd.readouterr().err.splitlines()) < 100


def test_a_member_that_says_nothing_is_dropped(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_controller, "SAYS", 0.1)
    silent, host = running.come("client"), running.host()
    with pytest.raises(ConnectionEnded):
        silent.receive()
    host.post(m.Beat(0, 0))
    begin = time.monotonic()
    while time.monotonic() < begin + 0.2:
        assert running.works()  # it has said what it is, and stays
