"""Only processes that were started here, with the same version, are admitted as hosts."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clusters import PATIENCE
from support.processes import start_python

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ranks import RankTable
from pathways.dialect.topology import Island
from pathways.runtime.launch import processes
from pathways.runtime.launch.processes import start_hosts
from pathways.runtime.wire import encoding
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.frames import HEADER, ConnectionEnded
from pathways.runtime.wire.versions import VERSIONS


class StartedProcess:
    """A process that was started here: this process."""

    pid = os.getpid()


welcomed: Any = processes._welcomed  # pyright: ignore[reportPrivateUsage]


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, Connection]]:
    here, there = socket.socketpair()
    connection = Connection(there)
    yield here, connection
    here.close()
    connection.close()


def test_a_process_started_here_is_admitted(pair: tuple[socket.socket, Connection]) -> None:
    pair[1].post(m.Hello("island0", os.getpid(), dict(VERSIONS)))
    found = welcomed(pair[0], {"island0": StartedProcess()}, Path("."))
    assert found.island == "island0"


@pytest.mark.parametrize("case", ["another process", "another user", "another island", "no hello"])
def test_other_processes_are_refused(
    case: str, pair: tuple[socket.socket, Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair[1].post(m.Beat(0, 0) if case == "no hello" else m.Hello("island0", os.getpid(), dict(VERSIONS)))
    started: dict[str, Any] = {"island1" if case == "another island" else "island0": StartedProcess()}
    if case == "another process":
        started["island0"] = type("Other", (), {"pid": 1})()
    if case == "another user":
        monkeypatch.setattr(processes, "process_at", lambda sock: (os.getpid(), os.getuid() + 1))
    assert welcomed(pair[0], started, Path(".")) is None
    assert pair[0].fileno() == -1  # closed


def test_the_error_names_a_host_of_another_version(pair: tuple[socket.socket, Connection]) -> None:
    pair[1].post(m.Hello("island0", os.getpid(), VERSIONS | {"jaxlib": "0.1"}))
    with pytest.raises(PathwaysError, match="island0 is gone") as caught:
        welcomed(pair[0], {"island0": StartedProcess()}, Path("."))
    assert caught.value.code == "PWC0910" and "jaxlib 0.1 there" in str(caught.value)


def test_the_error_of_a_host_that_cannot_start_contains_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    real = subprocess.Popen

    def start(command: list[str], **options: Any) -> Any:
        seen.append(real([sys.executable, "-c", "import sys; print('no room'); sys.exit(3)"], **options))
        return seen[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(PathwaysError) as caught:
        start_hosts([Island("island0", devices=1), Island("island1", devices=1)], "cpu")
    assert caught.value.code == "PWC0910" and "ended with 3: no room" in str(caught.value)
    assert len(seen) == 2 and all(p.poll() is not None for p in seen)


def test_waiting_for_a_host_that_does_not_connect_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    real = subprocess.Popen

    def start(command: list[str], **options: Any) -> Any:
        seen.append(
            real(
                [sys.executable, "-c", "import sys; sys.stdin.read(); import threading; threading.Event().wait()"],
                **options,
            )
        )
        return seen[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(processes, "START", 0.5)
    with pytest.raises(PathwaysError, match="island0 is gone") as caught:
        start_hosts([Island("island0", devices=1)], "cpu")
    assert "did not start" in str(caught.value) and seen[0].poll() is not None


STRANGER = """
import socket, sys
sock = socket.socket(socket.AF_UNIX)
sock.connect(sys.argv[1])
sock.sendall(bytes.fromhex(sys.argv[2]))
print("said hello", flush=True)
try:
    answer = sock.recv(1)
except ConnectionError:
    answer = b""
print("heard", answer)
"""


def test_a_process_not_started_here_does_not_keep_a_host_from_joining(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process connects first, and claims to be the expected host."""
    strangers: list[Any] = []
    real = subprocess.Popen
    kind, payload, _ = encoding.encode(m.Hello("island0", os.getpid(), dict(VERSIONS)))
    hello = (HEADER.pack(len(payload), kind) + payload).hex()

    def start(command: list[str], **options: Any) -> Any:
        address = command[command.index("--socket") + 1]
        stranger = real([sys.executable, "-c", STRANGER, address, hello], stdout=subprocess.PIPE, text=True)
        strangers.append(stranger)
        assert stranger.stdout is not None and stranger.stdout.readline() == "said hello\n"
        return real(command, **options)

    monkeypatch.setattr(subprocess, "Popen", start)
    (host,) = start_hosts([Island("island0", devices=1)], "cpu")
    try:
        (stranger,) = strangers
        assert stranger.communicate(timeout=60)[0] == "heard b''\n"
        assert host.island == "island0" and host.process.pid != stranger.pid
        host.connection.post(m.FetchArray(3, 1, -1))
        answers = [host.connection.receive() for _ in range(2)]
        assert any(isinstance(a, m.Answer) and a.request == 3 and "PWC0911" in a.error for a in answers)
    finally:
        host.connection.close()
        host.end()
    assert host.process.returncode == 0


def test_the_socket_of_a_host_that_ends_before_its_hello_is_closed(
    pair: tuple[socket.socket, Connection], tmp_path: Path
) -> None:
    here, connection = pair
    connection.close()
    with pytest.raises(ConnectionEnded):
        welcomed(here, {"island0": StartedProcess()}, tmp_path)
    assert here.fileno() == -1


@pytest.mark.parametrize("hosts", [1, 2])
def test_the_end_of_one_island_leaves_the_logs_of_others(hosts: int) -> None:
    islands = [Island(f"island{n}", devices=1, hosts=hosts) for n in range(2)]
    started = start_hosts(islands, "cpu", RankTable({"island0": hosts, "island1": hosts} if hosts > 1 else {}))
    folder = started[0].log.parent
    logs = {path.name: path.stem.partition(".")[0] for path in folder.iterdir()}
    assert len(logs) == 2 * (hosts + (hosts > 1)), "one for each host, and for each service where hosts meet"
    for island in ("island0", "island1"):
        assert {path.name for path in folder.iterdir()} >= {name for name, of in logs.items() if of == "island1"}
        for host in started:
            if host.log.stem.partition(".")[0] == island:
                host.connection.close()
                host.end()
    assert not folder.exists()


OWNER = """
import sys
from pathways.dialect.ranks import RankTable
from pathways.dialect.topology import Island
from pathways.runtime.launch.processes import start_hosts
count = int(sys.argv[1])
ranks = RankTable({"a": count, "b": count} if count > 1 else {})
hosts = start_hosts([Island(name, devices=1, hosts=count) for name in "ab"], "cpu", ranks)
print(hosts[0].log.parent, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("count", [1, 2])
def test_hosts_whose_owner_is_killed_leave_no_folder(count: int) -> None:
    with start_python("-c", OWNER, str(count)) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        assert folder.name.startswith("pathways-") and any(folder.iterdir())
        owner.kill()
    until = time.monotonic() + PATIENCE
    while folder.exists():
        assert time.monotonic() < until, [path.name for path in folder.iterdir()]
        threading.Event().wait(0.02)
