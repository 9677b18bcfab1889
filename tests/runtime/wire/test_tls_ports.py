"""A controller at a port admits members of its cluster by their certificates, and no connection delays it."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.clusters import PATIENCE
from support.members import HERE, NOISE, Members
from support.proofs import KeysOfHosts, next_message

from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.topology import Island, Topology
from pathways.runtime.control import cluster_controller
from pathways.runtime.control.cluster_controller import ClusterController
from pathways.runtime.control.scheduling import SCHEDULING_POLICIES, STRIDE
from pathways.runtime.launch.joining import JoiningLauncher
from pathways.runtime.wire import messages as m
from pathways.runtime.wire import tls_ports
from pathways.runtime.wire.addresses import listening_at
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.encoding import pack_parcels
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.identity import Role
from pathways.runtime.wire.ids import first_id
from pathways.runtime.wire.loop import Loop
from pathways.runtime.wire.message import VERSIONS
from pathways.runtime.wire.tls import Keys
from pathways.runtime.wire.tls_ports import LoopListener, join_as


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Members:
    return Members(tmp_path_factory.mktemp("members"))


class RunningController:
    """Runs a controller in a thread, at a port, for two islands of one device each. A handshake may take long."""

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
            self.controller.accept_member, seconds=PATIENCE,
        )  # fmt: skip
        self.thread = threading.Thread(target=self.loop.run, daemon=True)
        self.thread.start()
        self.keys = KeysOfHosts()
        self.made: list[Connection] = []

    def connect(self, role: Role, name: str = "alice", keys: Keys | None = None) -> Connection:
        connection, _ = join_as(self.address, keys or self.members.keys(role, name), "controller")
        self.made.append(connection)
        return connection

    def host(self, name: str = "island0") -> Connection:
        """Connects a host that reports every run as done at once."""
        connection = self.connect("host", name)
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
        threading.Thread(target=self._serve, args=(connection, name), daemon=True).start()
        return connection

    def can_run(self) -> bool:
        """Returns whether a new client can complete a run."""
        connection = self.connect("client")
        connection.post(m.ClientHello("test", 1, VERSIONS))
        welcome = next_message(connection)
        assert isinstance(welcome, m.Welcome)
        first = first_id(welcome.client)
        while not (epoch := json.loads(welcome.hosts["island0"]))[1]:
            came = next_message(connection)
            if isinstance(came, m.HostConnected) and came.island == "island0":
                epoch = [came.epoch]
                break
        connection.post(m.Introduce(0, first, "work", None, ""))
        connection.post(self.keys.loaded("island0", 0, welcome.client, first))
        parcels = pack_parcels([(0, epoch[0], [m.RunPlan(first, first, 0, first, ())])])
        connection.post(m.Submit(first, first, 0, 1, (), parcels))
        said = next_message(connection)
        while isinstance(said, m.HostConnected):  # of the other island, which may join at any time
            said = next_message(connection)
        connection.close()
        return isinstance(said, m.Relayed)

    def _serve(self, connection: Connection, name: str) -> None:
        with contextlib.suppress(ConnectionEnded):
            while True:
                match message := connection.receive():
                    case m.Connect():
                        value = json.dumps(dict.fromkeys(message.invitations, "a"))
                        connection.post(m.Answer(message.request, value=value))
                    case m.Expect():
                        self.keys.deliver(name, message)
                    case m.RunPlan():
                        connection.post(m.Done(message.run, 1000))
                    case _:
                        pass

    def close(self) -> None:
        self.loop.on_thread(self.controller.close)
        self.thread.join(PATIENCE)
        for connection in self.made:
            connection.close()
        self.listener.close()
        self.loop.close()
        assert not self.thread.is_alive()


def answer_of(connection: Connection) -> str:
    """Receives an answer; raises the error of a refusal."""
    said = next_message(connection)
    if isinstance(said, m.RunRefused):
        raise PathwaysError(read_diagnostic(said.cause))
    assert isinstance(said, m.Answer)
    return said.value


@pytest.fixture
def running(members: Members, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningController]:
    monkeypatch.setenv("PATHWAYS_HOST_TIMEOUT", "1000")  # hosts of the test send no heartbeats
    made = RunningController(members)
    yield made
    made.close()


def refusal_code(connection: Connection, message: m.Message) -> str:
    """Sends a message that must be refused; returns the error code, and checks that the stream ends."""
    connection.post(message)
    with pytest.raises(PathwaysError) as caught:
        answer_of(connection)
    with pytest.raises(ConnectionEnded):
        next_message(connection)
    return caught.value.code


def test_hosts_and_clients_join_with_their_certificates(running: RunningController) -> None:
    running.host()
    assert running.can_run()
    running.host("island1")
    assert running.can_run()
    client = running.connect("client")
    client.post(m.Ask(1, "status"))
    status = json.loads(answer_of(client))
    assert [host["pid"] for i in status["islands"] for host in i["hosts"]] == [0, 0]


def test_a_new_host_replaces_a_lost_host(running: RunningController) -> None:
    for epoch in range(8):  # more hosts than may end before they complete a run, if the controller starts them
        host = running.host()
        assert epoch % 4 or running.can_run()
        host.close()
        client = running.connect("client")
        said: dict[str, Any] = {}
        while not said or said["islands"][0]["epoch"] == epoch:
            client.post(m.Ask(1, "status"))
            said = json.loads(answer_of(client))
        assert said["islands"][0]["state"] == "starting"
    running.host()
    assert running.can_run()


def test_members_may_act_only_in_the_role_of_their_certificates(running: RunningController) -> None:
    running.host()
    assert refusal_code(running.connect("host", "island1"), m.ClientHello("x", 1, VERSIONS)) == "PWC0913"
    assert refusal_code(running.connect("client"), m.Hello("island1", 1, VERSIONS)) == "PWC0913"
    assert refusal_code(running.connect("client"), m.Ask(1, "host")) == "PWC0913"
    for request in ("status", "stop", "stacks"):
        assert refusal_code(running.connect("host", "island1"), m.Ask(1, request)) == "PWC0913"
    assert refusal_code(running.connect("host", "island1"), m.Hello("island0", 1, VERSIONS)) == "PWC0910"
    assert refusal_code(running.connect("host", "island7"), m.Ask(1, "host")) == "PWC0910"
    for said in (m.Ask(1, "host"), m.Hello("island0", 1, VERSIONS)):  # island0 already has a host
        assert refusal_code(running.connect("host", "island0"), said) == "PWC0910"
    assert refusal_code(running.connect("host", "island1"), m.Hello("island1", 1, VERSIONS | {"jax": "0"})) == "PWC0910"
    assert refusal_code(running.connect("client"), m.Forget(0, 1)) == "PWC0911"
    assert running.can_run()


STRANGERS: dict[str, Callable[[Members], Keys]] = {
    "of another cluster": lambda a: a.keys("host", "island0", authority="theirs"),
    "expired": lambda a: a.keys("client", "alice", begins=-2),
    "another controller": lambda a: a.keys("controller", "b"),
}


@pytest.mark.parametrize("case", STRANGERS)
def test_processes_with_wrong_certificates_are_refused(
    case: str, running: RunningController, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PathwaysError) as caught:
        running.connect("client", keys=STRANGERS[case](running.members))
    assert caught.value.code == "PWC0913"
    running.host()
    assert running.can_run()
    assert "PWC0913: there is no connection to the process at 127.0.0.1:" in capfd.readouterr().err


@pytest.mark.parametrize("case", NOISE)
def test_malformed_or_stalled_handshakes_end_soon(
    case: str, running: RunningController, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.host()
    with socket.create_connection(running.address) as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(NOISE[case](running.members))
        assert running.can_run()  # so the listener has accepted the connection before
        late = SimpleNamespace(monotonic=lambda: time.monotonic() + PATIENCE)
        with monkeypatch.context() as patch, contextlib.suppress(ConnectionError):
            patch.setattr(tls_ports, "time", late)
            sock.settimeout(PATIENCE)
            b"".join(iter(lambda: sock.recv(1 << 16), b""))  # perhaps a TLS alert, then the end of the stream
    assert running.can_run()


def test_a_thousand_silent_connections_delay_no_member(
    running: RunningController, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    port: Any = running.port
    running.host()
    silent: list[socket.socket] = []
    slow = socket.create_connection(running.address)
    slow.sendall(b"\x16\x03\x01\x02\x00\x01")  # the first bytes of a handshake
    assert running.can_run()  # so the listener has read them
    try:
        for number in range(1000):
            silent.append(socket.create_connection(running.address))
            assert len(port._pending) <= tls_ports.MAX_HANDSHAKES + 1
            assert number % 200 or running.can_run()
        assert running.can_run()
        silent[0].settimeout(PATIENCE)
        assert silent[0].recv(1) == b""  # the oldest connection that sent nothing was dropped
        with pytest.raises(BlockingIOError):
            slow.recv(1, socket.MSG_DONTWAIT)
        for number in range(0, 1000, 10):  # malformed bytes have no effect either
            with contextlib.suppress(OSError):
                silent[number].sendall(b"noise")
        assert running.can_run()
    finally:
        for sock in (slow, *silent):
            sock.close()
    assert len(capfd.readouterr().err.splitlines()) < 100


@pytest.fixture
def crowded(running: RunningController, monkeypatch: pytest.MonkeyPatch) -> RunningController:
    """Allows 16 handshakes at a time."""
    monkeypatch.setattr(tls_ports, "MAX_HANDSHAKES", 16)
    running.host()
    return running


def test_strangers_that_begin_a_handshake_delay_no_member(crowded: RunningController) -> None:
    strangers = [socket.create_connection(crowded.address) for _ in range(16)]
    try:
        for stranger in strangers:
            stranger.sendall(b"\x16")
        assert crowded.can_run()
    finally:
        for stranger in strangers:
            stranger.close()


def test_a_member_that_sends_nothing_is_dropped(running: RunningController, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_controller, "FIRST_MESSAGE_TIMEOUT_S", 0.1)
    silent, host = running.connect("client"), running.host()
    with pytest.raises(ConnectionEnded):
        silent.receive()
    host.post(m.Beat(0, 0))
    begin = time.monotonic()
    while time.monotonic() < begin + 0.2:
        assert running.can_run()  # the host has identified itself, and stays connected


def test_strangers_that_go_on_beginning_handshakes_keep_no_member_out(crowded: RunningController) -> None:
    """A member that has just connected is silent for a moment; meanwhile, strangers have sent some bytes each."""
    sockets: list[socket.socket] = []

    def connect(sent: bytes) -> None:
        sock = socket.create_connection(crowded.address)
        sock.sendall(sent)
        sockets.append(sock)
        assert crowded.can_run()  # so the listener has read it

    try:
        for _ in range(20):
            connect(b"\x16\x03\x01")
        connect(b"")
        for _ in range(6):
            connect(b"\x16\x03\x01")
        with pytest.raises(BlockingIOError):
            sockets[20].recv(1, socket.MSG_DONTWAIT)
        for _ in range(12):
            connect(b"\x16\x03\x01")
        assert sockets[20].recv(1, socket.MSG_DONTWAIT) == b""  # it stayed silent for long
    finally:
        for sock in sockets:
            sock.close()
