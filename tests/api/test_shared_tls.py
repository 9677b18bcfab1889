"""A cluster whose hosts and clients come by TLS, as from other machines: all of it on addresses of this one."""

import contextlib
import json
import queue
import signal
import socket
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.clusters import PATIENCE, becomes, code_of, is_alive
from support.processes import pwc_here, run_python, start_python
from support.shared import SharedCluster, line_of
from support.two_islands import f, g, jit

import pathways as pw
from pathways.api.shared_cluster import start_shared
from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.dialect.topology import parse_topology
from pathways.runtime.launch.local_cluster import MemberPort
from pathways.runtime.launch.reach import ask, connect_to, connect_to_host
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.addresses import port_of, show_address
from pathways.runtime.wire.certificates import make_folders
from pathways.runtime.wire.tls import Listener, join_as, read_keys
from pathways.runtime.wire.versions import VERSIONS

PWC = "from pathways.cli.main import main; main()"
X = np.arange(16.0, dtype=np.float32).reshape(4, 4)
here, there = pw.program(lambda x: f(x)), pw.program(lambda x: g(x))


@pw.program
def both(x: Any) -> Any:
    for _ in range(3):
        x = g(f(x)) / 100
    return x, f(x)


class Joined(SharedCluster):
    """A cluster whose hosts are started one by one, each with an address of its own."""

    def __init__(self, folder: Path, keys: Path, topology: str) -> None:
        self.keys = keys
        self.local = str(folder / "c")
        start_shared(self.local, parse_topology(topology), "stride", MemberPort(("127.0.0.1", 0), keys, True))
        super().__init__(ask(self.local, "status")["bind"])
        self.started: dict[str, subprocess.Popen[str]] = {}

    def status(self) -> dict[str, Any]:
        return ask(self.address, "status", self.keys)

    def join(self, name: str) -> None:
        """Starts a host, and waits until it is there, where it has its island alone."""
        ip = f"127.0.0.{int(name[-1]) + 2}"
        island, _, rank = name.partition("/")
        which = (island, "--rank", rank) if rank else (island,)
        self.started[name] = start_python(
            "-c", PWC, "cluster", "join", self.address, "--island", *which, "--ip", ip, "--keys", str(self.keys)
        )
        if not rank:
            self.is_up(island)

    def is_up(self, island: str) -> None:
        assert self.becomes(lambda said: {i["name"]: i for i in said["islands"]}[island]["state"] == "up")

    def kill(self, island: str, how: signal.Signals = signal.SIGKILL) -> None:
        self.started[island].send_signal(how)

    def said_by(self, island: str) -> str:
        """What a host has printed until its end."""
        return "".join(self.started[island].communicate(timeout=PATIENCE))

    def close(self) -> None:
        with contextlib.suppress(pw.PathwaysError):  # it was stopped
            ask(self.address, "stop", self.keys)
        assert becomes(lambda: not is_alive(self.pid))
        for process in self.started.values():
            assert process.wait(PATIENCE) is not None  # each ends with its stream
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tls") / "keys"
    code, out, _ = pwc_here("cluster", "keys", str(made), "--hosts", "island0,island1", "--clients", "alice")
    assert code == 0
    names = ["authority", "controller", "host.island0", "host.island1", "client.alice"]
    assert [Path(line).name for line in out.split()] == names
    assert all(path.stat().st_mode & 0o077 == 0 for path in made.iterdir())
    return made


@contextlib.contextmanager
def joined(keys: Path, topology: str = "islands=2,devices=2") -> Generator[Joined]:
    with tempfile.TemporaryDirectory(prefix="pw") as folder:
        made = Joined(Path(folder), keys, topology)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture(scope="module")
def cluster(keys: Path) -> Iterator[Joined]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATHWAYS_HOST_TIMEOUT", "3")
        with joined(keys) as made:
            assert [i["state"] for i in made.status()["islands"]] == ["starting"] * 2
            for island in ("island0", "island1"):
                made.join(island)
            yield made


def test_results_are_those_of_one_process(cluster: Joined) -> None:
    wanted = [np.asarray(v) for v in both(X)]
    with pw.connect(cluster.address, keys=cluster.keys / "client.alice") as topology:
        assert topology.names == ("island0", "island1")
        found = [np.asarray(v) for v in both(X)]
        assert "of alice" in str(cluster.status()["clients"])
    for one, other in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert cluster.is_empty()


def test_the_environment_names_it(cluster: Joined) -> None:
    path = f"{Path(__file__).parents[2]}:{Path(__file__).parents[1]}"
    script = """
import numpy as np, pathways as pw
from support.two_islands import f, g
print(float(np.asarray(pw.program(lambda x: g(f(x)))(np.ones((4, 4), np.float32))).sum()))
"""
    keys = {"PATHWAYS_ADDRESS": cluster.address, "PATHWAYS_KEYS": str(cluster.keys / "client.alice")}
    done = run_python("-c", script, PYTHONPATH=path, **keys)
    assert (done.stdout.strip(), done.stderr) == ("576.0", "")
    local = run_python("-c", script, PYTHONPATH=path, **keys | {"PATHWAYS_ADDRESS": cluster.local})
    assert (local.stdout.strip(), local.stderr) == ("576.0", "")
    assert cluster.is_empty()


def test_nothing_listens_but_where_it_is_told(cluster: Joined) -> None:
    """Every port that a host has is at the address that it was given; of the controller, too."""
    for pid, wanted in ((cluster.pid, "127.0.0.1"), *((h.pid, f"127.0.0.{n + 2}") for n, h in hosts_of(cluster))):
        assert {ip for ip, _ in listening(pid)} == {wanted}


def hosts_of(cluster: Joined) -> "list[tuple[int, subprocess.Popen[str]]]":
    return [(int(name[-1]), process) for name, process in cluster.started.items()]


def listening(pid: int) -> list[tuple[str, int]]:
    """Where a process listens (Linux)."""
    mine = set[str]()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            mine.add(str(link.readlink()))
    found: list[tuple[str, int]] = []
    for file in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{file}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in mine:
                ip, port = fields[1].split(":")
                found.append((socket.inet_ntop(socket.AF_INET, bytes.fromhex(ip)[::-1]), int(port, 16)))
    return found


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_another_host_joins_in_the_place_of_one_that_is_gone(cluster: Joined, how: signal.Signals) -> None:
    with pw.connect(cluster.address, keys=cluster.keys):
        both(X)  # places the slices
        kept, lost = there(X), here(X)
        kept.block_until_ready()
        lost.block_until_ready()
        epoch, old = cluster.island("island0")["epoch"], cluster.started["island0"]
        cluster.kill("island0", how)
        assert becomes(lambda: code_of(np.asarray, lost) == "PWC0910")
        assert cluster.island("island0")["state"] == "starting"
        np.testing.assert_array_equal(np.asarray(kept), X @ X.T)
        cluster.join("island0")
        np.testing.assert_array_equal(np.asarray(here(X)), X * 2 + 1)
        assert cluster.island("island0")["epoch"] == epoch + 1
        old.send_signal(signal.SIGCONT)  # the one that was frozen finds that its stream has ended
        said, errors = old.communicate(timeout=PATIENCE)
        assert "island0 joins" in said and ("PWC0910" in errors) == (how == signal.SIGSTOP)
        assert old.returncode == (1 if how == signal.SIGSTOP else -signal.SIGKILL)
    assert cluster.is_empty()


def test_who_is_no_member_is_told_so(cluster: Joined, keys: Path, tmp_path: Path) -> None:
    """With no keys, with another cluster's, and with keys of another role or name."""
    make_folders(tmp_path / "theirs", "keys", ["island0"], ["alice"])
    wrong = tmp_path / "client"
    wrong.mkdir(mode=0o700)
    assert code_of(lambda: pw.connect(cluster.address).__enter__()) == "PWC0913"
    for folder, code in (
        (tmp_path / "theirs", "PWC0913"), (keys / "host.island0", "PWC0914"), (keys / "controller", "PWC0914"),
        (wrong, "PWC0914"), (tmp_path / "nowhere", "PWC0914"),
    ):  # fmt: skip
        assert code_of(lambda folder=folder: pw.connect(cluster.address, keys=folder).__enter__()) == code
    join = ("cluster", "join", cluster.address, "--island")
    for island, folder, code in (
        ("island0", tmp_path / "theirs", "PWC0913"), ("island0", keys / "client.alice", "PWC0914"),
        ("island0", keys / "host.island1", "PWC0914"), ("island7", keys, "PWC0914"), ("island0", keys, "PWC0910"),
    ):  # fmt: skip
        assert code in pwc_here(*join, island, "--keys", str(folder))[2]
    with pw.connect(cluster.address, keys=keys):
        np.testing.assert_array_equal(np.asarray(here(X)), X * 2 + 1)


def test_a_client_s_keys_make_no_controller(keys: Path) -> None:
    """A host that was told another address than its controller's does nothing there."""
    refused: queue.SimpleQueue[pw.PathwaysError] = queue.SimpleQueue()
    poses = Listener(("127.0.0.1", 0), read_keys(keys / "client.alice"), "host", on_refused=refused.put)
    try:
        address = show_address(poses.address)
        _, _, errors = pwc_here("cluster", "join", address, "--island", "island0", "--keys", str(keys))
        assert "PWC0913" in errors and "that of client alice" in errors
        assert code_of(lambda: pw.connect(address, keys=keys).__enter__()) == "PWC0913"
        refused.get(timeout=PATIENCE)
    finally:
        poses.close()


def test_a_host_lets_in_clients_that_its_controller_knows(cluster: Joined, keys: Path) -> None:
    control = connect_to(cluster.address, keys)
    control.post(m.ComeIn("raw", 1, VERSIONS))
    welcome = next(said for said in iter(control.receive, None) if isinstance(said, m.Welcome))
    port = port_of(json.loads(welcome.hosts["island0"])[1]["island0"])
    assert port is not None
    assert code_of(lambda: join_as(port, read_keys(keys / "host.island1"), "host")) == "PWC0913"
    assert code_of(lambda: connect_to_host(show_address(port), "island1", keys, elsewhere=True)) == "PWC0913"
    for ticket, wanted in (("another", "PWC0916"), (welcome.ticket, "")):
        connection = connect_to_host(show_address(port), "island0", keys, elsewhere=True)
        connection.post(m.Attach(7, welcome.client, ticket))
        answer = connection.receive()
        assert isinstance(answer, m.Answer)
        assert (read_diagnostic(answer.error).code if answer.error else "") == wanted
        connection.close()
    control.close()
    assert cluster.is_empty()


def test_the_commands_show_it_from_elsewhere(cluster: Joined) -> None:
    there = ("--address", cluster.address, "--keys", str(cluster.keys))
    assert "island1  2 x cpu" in pwc_here("status", *there)[1]
    assert "island0 |" in pwc_here("stack", *there)[1]
    assert "are on its machine" in pwc_here("cluster", "logs", *there)[1]
    assert "pwc cluster join" in pwc_here("cluster", "logs", "--address", cluster.local)[1]


def test_a_host_ends_with_its_controller_and_says_so(keys: Path) -> None:
    with joined(keys) as cluster:
        cluster.join("island0")
        assert pwc_here("cluster", "stop", "--address", cluster.address, "--keys", str(keys))[0] == 0
        assert "the controller has ended the connection" in cluster.said_by("island0")
        code, _, errors = pwc_here("status", "--address", cluster.address, "--keys", str(keys))
        assert code and "PWC0913" in errors


def test_hosts_that_are_started_here_are_reached_from_here_and_elsewhere(keys: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="pw") as folder:
        local = str(Path(folder) / "c")
        start = ("cluster", "start", "islands=2,devices=2", "--bind", "127.0.0.1:0", "--address", local, "--keys")
        code, said, _ = pwc_here(*start, str(keys))
        try:
            assert code == 0 and "PATHWAYS_KEYS=FOLDER" in said
            elsewhere = ask(local, "status")["bind"]
            for address, with_keys in ((elsewhere, keys), (local, None)):
                with pw.connect(address, keys=with_keys):
                    np.testing.assert_array_equal(np.asarray(there(here(X))), (X * 2 + 1) @ (X * 2 + 1).T)
        finally:
            ask(local, "stop")


def test_a_cluster_that_cannot_start_so_says_why(keys: Path, short_path: Path) -> None:
    start = ("cluster", "start", "--address", str(short_path / "c"), "--keys", str(keys))
    for arguments, said in (
        (("islands=3,devices=2", "--bind", "127.0.0.1:0"), "host.island2"),  # which has no keys
        (("islands=1,devices=2", "--bind", "192.0.2.1:0", "--join"), "Cannot assign requested address"),
        (("islands=1,devices=2", "--bind", "nowhere"), "is not HOST:PORT"),
        (("islands=1,devices=2", "--join"), "--bind and --keys go together"),
    ):
        code, _, errors = pwc_here(*start, *arguments)
        assert code and said in errors, errors
    assert not (short_path / "c").exists()


def test_hosts_that_have_an_island_together_join_one_by_one(tmp_path: Path) -> None:
    """Also where one has ended before the others came, or is gone: they meet anew."""
    keys = tmp_path / "keys"
    names = ["island0/0", "island0/1"]
    assert pwc_here("cluster", "keys", str(keys), "--hosts", ",".join(names), "--clients", "alice")[0] == 0
    whole = NamedSharding(pw.make_virtual_device_set().add_slice(devices=2).mesh("x"), P("x"))
    program = pw.program(lambda v: jit(lambda w: w - w.mean(), in_shardings=whole, out_shardings=whole)(v))
    wanted = np.asarray(program(X))
    with joined(keys, "islands=1,hosts=2,devices=1") as cluster:
        cluster.join(names[0])
        assert line_of(cluster.started[names[0]]) == "island0/0 waits for the other hosts of island0"
        early = cluster.started[names[0]]
        cluster.kill(names[0])
        early.communicate(timeout=PATIENCE)
        for name in names:
            cluster.join(name)
        cluster.is_up("island0")
        with pw.connect(cluster.address, keys=keys / "client.alice"):
            np.testing.assert_allclose(np.asarray(program(X)), wanted, rtol=1e-6)
            old = [cluster.started[name] for name in names]
            cluster.kill(names[1])
            for process in old:
                process.communicate(timeout=PATIENCE)
            for name in names:
                cluster.join(name)
            cluster.is_up("island0")
            np.testing.assert_allclose(np.asarray(program(X)), wanted, rtol=1e-6)
