"""The cluster controller survives malformed messages, and refuses messages that a sender may not send."""

import contextlib
import json
import os
import random
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from support.fake_cluster import FakePeer, Timers
from support.proofs import KeysOfHosts, next_message

from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.dialect.diagnostics import InternalError, PathwaysError
from pathways.dialect.ranks import ONE_EACH
from pathways.dialect.topology import Island, Topology
from pathways.runtime.control import cluster_controller
from pathways.runtime.control.cluster_controller import ClusterController
from pathways.runtime.control.island_rules import refused_new
from pathways.runtime.control.members import Members
from pathways.runtime.control.scheduling import SCHEDULING_POLICIES, STRIDE
from pathways.runtime.control.sessions import ClientNumbers
from pathways.runtime.launch.launcher import Started
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.client_messages import NO_ANSWER
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.encoding import MESSAGES, frame_bytes, pack_parcels
from pathways.runtime.wire.errors import HostLost
from pathways.runtime.wire.frames import HEADER, ConnectionEnded
from pathways.runtime.wire.ids import first_id
from pathways.runtime.wire.loop import Loop
from pathways.runtime.wire.message import VERSIONS


class InProcessHosts(Started):
    """Starts no process: the hosts are threads of this process."""

    tickets: Sequence[str] = ()

    @property
    def pids(self) -> Sequence[int]:
        return [os.getpid()]

    def start(self, island: Island, epoch: int, tickets: Sequence[str]) -> "InProcessHosts":
        self.tickets = tickets
        return self

    def ended(self) -> str:
        return ""

    def kill(self) -> None:
        """Kills nothing: the stream of the host ends instead."""


class RunningController:
    """Runs a controller in a thread, with a host of one device that reports every run as done at once."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "c")
        self.loop = Loop()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(64)
        launcher = InProcessHosts()
        self.controller = ClusterController(
            self.loop, Topology((Island("island0", devices=1),)), "cpu", SCHEDULING_POLICIES[STRIDE](), launcher,
            self.path,
        )  # fmt: skip
        self.loop.listen(self.listener, self.controller.accept)
        self.thread = threading.Thread(target=self.loop.run, daemon=True)
        self.thread.start()
        self.forgotten: list[int] = []
        self.keys = KeysOfHosts()
        self.made: list[Connection] = []
        self.host = self.connect()
        self.host.post(m.Hello("island0", os.getpid(), VERSIONS, "nowhere", launcher.tickets[0]))
        threading.Thread(target=self._serve, daemon=True).start()

    def connect(self) -> Connection:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(self.path)
        self.made.append(connection := Connection(sock))
        return connection

    def _serve(self) -> None:
        try:
            while True:
                match message := self.host.receive():
                    case m.Connect():
                        self.host.post(m.Answer(message.request, value="{}"))
                    case m.RunPlan():
                        self.host.post(m.Done(message.run, 1000))
                    case m.Expect():
                        self.keys.deliver("island0", message)
                    case m.Forget():
                        self.forgotten.append(message.client)
                        self.host.post(m.Answer(message.request))
                    case _:
                        pass
        except ConnectionEnded:
            return

    def client(self, versions: dict[str, str] = VERSIONS) -> tuple[Connection, m.Message]:
        connection = self.connect()
        connection.post(m.ClientHello("test", os.getpid(), versions))
        return connection, connection.receive()

    def can_run(self) -> bool:
        """Returns whether a new client can complete a run."""
        connection, welcome = self.client()
        assert isinstance(welcome, m.Welcome)
        first = first_id(welcome.client)
        if not json.loads(welcome.hosts["island0"])[1]:
            assert isinstance(next_message(connection), m.HostConnected)
        parcels = pack_parcels([(0, 0, [m.RunPlan(first, first, 0, first, ())])])
        connection.post(m.Introduce(0, first, "work", None, ""))
        connection.post(self.keys.loaded("island0", 0, welcome.client, first))
        connection.post(m.Submit(first, first, 0, 1, (), parcels))
        said = next_message(connection)
        connection.close()
        return isinstance(said, m.Relayed)

    def close(self) -> None:
        self.loop.on_thread(self.controller.close)
        self.thread.join(30)
        for connection in self.made:
            connection.close()
        self.listener.close()
        self.loop.close()
        assert not self.thread.is_alive()


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningController]:
    monkeypatch.setenv("PATHWAYS_HOST_TIMEOUT", "1000")  # the host of the test sends no heartbeats
    made = RunningController(tmp_path)
    yield made
    made.close()


def noise(rng: random.Random) -> bytes:
    """Makes bytes that are no message, a message that a controller does not accept, or a truncated message."""
    match rng.randrange(5):
        case 0:
            return rng.randbytes(rng.randrange(1, 200))
        case 1:
            return HEADER.pack(rng.choice([0, 3, 100, 1 << 30, 1 << 60]), rng.randrange(256)) + rng.randbytes(50)
        case 2:
            payload = rng.randbytes(8 * rng.randrange(12))
            return HEADER.pack(len(payload), rng.randrange(len(MESSAGES))) + payload
        case 3:
            messages: list[m.Message] = [
                m.Fence("island0", ""), m.Done(1, 2), m.Forget(0, 1), m.Ask(1, "nothing"), m.Hold(0, (5, 1)),
                m.Cancel(first_id(9), "{}"), m.Introduce(0, first_id(1), "x", None, ""), m.Hello("island0", 1, {}),
                m.Relayed(0, 0, 0, b""), m.Submit(first_id(1), first_id(1), 0, 1, (), b"abc"), m.Beat(1, 1),
            ]  # fmt: skip
            return frame_bytes(rng.choice(messages))
        case _:
            whole = frame_bytes(m.Introduce(0, first_id(1), "x", None, ""))
            return whole[: rng.randrange(1, len(whole))]


def test_the_controller_serves_clients_after_malformed_bytes(running: RunningController) -> None:
    rng = random.Random(0)
    for number in range(120):
        connection = running.client()[0] if number % 2 else running.connect()
        raw: Any = connection
        with contextlib.suppress(OSError):
            raw._transport.sendall(noise(rng))
        connection.close()
    assert running.can_run()


def test_a_client_of_another_version_is_refused_with_the_difference(running: RunningController) -> None:
    connection, said = running.client(VERSIONS | {"jax": "0.1"})
    assert isinstance(said, m.RunRefused)
    found = read_diagnostic(said.cause)
    assert found.code == "PWC0918" and "jax 0.1 (controller: " in found.text(found.have)
    with pytest.raises(ConnectionEnded):
        connection.receive()
    assert running.can_run()


def test_a_client_that_cancels_another_clients_run_is_disconnected(running: RunningController) -> None:
    victim, welcome = running.client()
    assert isinstance(welcome, m.Welcome)
    thief, _ = running.client()
    thief.post(m.Cancel(first_id(welcome.client), "{}"))
    with pytest.raises(ConnectionEnded):
        while True:
            thief.receive()
    assert running.can_run()
    victim.close()


def test_hosts_are_notified_of_disconnected_clients(running: RunningController) -> None:
    connection, welcome = running.client()
    assert isinstance(welcome, m.Welcome)
    connection.close()
    assert running.can_run()
    pause = threading.Event()
    for _ in range(1000):
        if welcome.client in running.forgotten:
            return
        pause.wait(0.01)
    pytest.fail("the host was not notified")


def test_the_number_of_a_client_is_used_again_when_hosts_have_forgotten_it(running: RunningController) -> None:
    raw: Any = running.controller
    raw._numbers = ClientNumbers(limit=3)
    pause = threading.Event()
    for _ in range(7):
        connection, welcome = running.client()
        for _ in range(1000):
            if not isinstance(welcome, m.RunRefused):
                break
            pause.wait(0.01)  # the last client is not forgotten yet
            connection, welcome = running.client()
        assert isinstance(welcome, m.Welcome) and welcome.client in (1, 2)
        connection.close()


def test_a_process_of_another_user_is_disconnected(running: RunningController, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_controller, "process_at", lambda _: (1, os.getuid() + 1))
    ours, theirs = socket.socketpair()
    with theirs:
        running.controller.accept(ours)
        assert ours.fileno() < 0 and theirs.recv(1) == b""


@pytest.mark.parametrize("what", ["stop", "stacks"])
def test_a_request_to_a_cluster_without_connected_hosts_is_answered_at_once(what: str) -> None:
    timers, peer, islands = Timers(), FakePeer(), Topology((Island("island0", devices=1),))
    loop, to_client = cast("Any", timers), cast("Any", peer)
    controller = ClusterController(loop, islands, "cpu", SCHEDULING_POLICIES[STRIDE](), InProcessHosts(), "here")
    controller.deliver(controller.register_own_client(to_client), m.Ask(7, what))
    delays = [seconds for seconds, _ in timers.set]
    assert not any(delays) and not timers.has_ended, "the answer must be sent before the end"
    while timers.set:
        timers.wait()
    said = peer.got[-1]
    assert isinstance(said, m.Answer) and said.request == 7 and timers.has_ended == (what == "stop")
    assert json.loads(said.value).get("hosts", {}) == ({"island0": NO_ANSWER} if what == "stacks" else {})


def test_a_process_that_sends_nothing_is_dropped(running: RunningController, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_controller, "FIRST_MESSAGE_TIMEOUT_S", 0.05)
    with pytest.raises(ConnectionEnded):
        running.connect().receive()
    assert running.can_run()


def test_a_process_without_a_ticket_is_refused_as_a_host(running: RunningController) -> None:
    for hello in (m.Hello("island0", os.getpid(), VERSIONS), m.Hello("island7", os.getpid(), VERSIONS)):
        connection = running.connect()
        connection.post(hello)
        assert isinstance(connection.receive(), m.RunRefused)
        with pytest.raises(ConnectionEnded):
            connection.receive()
    assert running.can_run()


def test_an_island_whose_hosts_cannot_start_is_reported_as_lost() -> None:
    """The launcher raises an error, for example because keys are missing. Clients that wait receive the cause."""

    class Refusing(InProcessHosts):
        def start(self, island: Island, epoch: int, tickets: Sequence[str]) -> InProcessHosts:
            raise PathwaysError(HostLost(island=island.name, reason="it has no keys"))

    loop, lost = Loop(), list[str]()
    members = Members(loop, Refusing(), [Island("pod", devices=1)], lambda _: None, lambda m, _, c: lost.append(c.code))
    members.begin()
    loop.close()
    assert members.all[0].epoch.state == "away" and lost == ["PWC0910"]


@pytest.mark.parametrize("name", ["pod/0", "../pod", "", "a b", "x" * 65])
def test_an_island_name_that_is_no_valid_file_name_is_refused(name: str) -> None:
    refused = refused_new(Topology((Island("pod", devices=1),)), Island(name, devices=1), ONE_EACH)
    assert refused is not None and refused.code == "PWC0923"


@pytest.mark.parametrize("where", ["submit", "ended"])
def test_a_failure_of_the_controller_fails_one_run_alone(
    where: str, running: RunningController, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client that waits for the run hears of it, under a code; host, client and later runs go on."""
    dispatcher, begun = running.controller.dispatcher, list[object]()
    real = getattr(dispatcher, where)

    def fails_once(*given: object) -> None:
        begun.append(given)
        if len(begun) == 1:
            raise InternalError("a test says so")
        real(*given)

    monkeypatch.setattr(dispatcher, where, fails_once)
    connection, welcome = running.client()
    assert isinstance(welcome, m.Welcome)
    first = first_id(welcome.client)
    if not json.loads(welcome.hosts["island0"])[1]:
        assert isinstance(next_message(connection), m.HostConnected)
    connection.post(m.Introduce(0, first, "work", None, ""))
    connection.post(running.keys.loaded("island0", 0, welcome.client, first))
    said: list[m.Message] = []
    for run in (first, first + 1):
        parcels = pack_parcels([(0, 0, [m.RunPlan(first, run, 0, first + 8 * (run - first), ())])])
        connection.post(m.Submit(run, first, 0, 1, (), parcels))
        said.append(next_message(connection))
        if isinstance(said[-1], m.Relayed):  # the host has ended it before the controller failed
            said[-1] = next_message(connection) if run == first else said[-1]
    refused, relayed = said
    assert isinstance(refused, m.RunRefused) and refused.run == first and "PWC0929" in refused.cause
    assert isinstance(relayed, m.Relayed) and not dispatcher.runs
    assert running.can_run()
