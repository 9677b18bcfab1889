"""Tests a cluster whose hosts and clients connect by TLS, as from other machines. Here all use loopback addresses."""

import contextlib
import json
import signal
import socket
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.clusters import PATIENCE, becomes, is_alive
from support.codes import code_of
from support.members import Door, Members
from support.processes import pwc_here, run_python, start_python
from support.shared import SharedCluster, line_of
from support.two_islands import X, both, here, jit, there

import pathways as pw
from pathways.api.shared_cluster import start_shared
from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.dialect.topology import parse_topology
from pathways.runtime.launch.local_cluster import MemberPort
from pathways.runtime.launch.reach import ask, connect_to, connect_to_host
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.addresses import port_of, show_address
from pathways.runtime.wire.certificates import issue, make_folders
from pathways.runtime.wire.message import VERSIONS
from pathways.runtime.wire.tls import read_keys
from pathways.runtime.wire.tls_ports import join_as

PWC = "from pathways.cli.main import main; main()"


class TlsCluster(SharedCluster):
    """A cluster whose hosts are started one by one, each at its own address."""

    def __init__(self, folder: Path, keys: Path, topology: str) -> None:
        self.keys = keys
        self.local = str(folder / "c")
        start_shared(self.local, parse_topology(topology), "stride", MemberPort(("127.0.0.1", 0), keys, True))
        super().__init__(ask(self.local, "status")["bind"])
        self.started: dict[str, subprocess.Popen[str]] = {}

    def status(self) -> dict[str, Any]:
        return ask(self.address, "status", self.keys)

    def join(self, name: str) -> None:
        """Starts a host. If it is the only host of its island, waits until the island is up."""
        ip = f"127.0.0.{int(name[-1]) + 2}"
        island, _, rank = name.partition("/")
        which = (island, "--rank", rank) if rank else (island,)
        self.started[name] = start_python(
            "-c", PWC, "cluster", "join", self.address, "--island", *which, "--ip", ip, "--keys", str(self.keys)
        )
        if not rank:
            self.wait_until_up(island)

    def wait_until_up(self, island: str) -> None:
        assert self.becomes(lambda said: {i["name"]: i for i in said["islands"]}[island]["state"] == "up")

    def kill(self, island: str, how: signal.Signals = signal.SIGKILL) -> None:
        self.started[island].send_signal(how)

    def output_of(self, island: str) -> str:
        """Waits until a host exits; returns what the host has printed."""
        return "".join(self.started[island].communicate(timeout=PATIENCE))

    def close(self) -> None:
        with contextlib.suppress(pw.PathwaysError):  # already stopped by the test
            ask(self.address, "stop", self.keys)
        assert becomes(lambda: not is_alive(self.pid))
        for process in self.started.values():
            assert process.wait(PATIENCE) is not None  # a host exits when its connection ends
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
def tls_cluster(keys: Path, topology: str = "islands=2,devices=2") -> Generator[TlsCluster]:
    with tempfile.TemporaryDirectory(prefix="pw") as folder:
        made = TlsCluster(Path(folder), keys, topology)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture(scope="module")
def cluster(keys: Path) -> Iterator[TlsCluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATHWAYS_HOST_TIMEOUT", "3")
        with tls_cluster(keys) as made:
            assert [i["state"] for i in made.status()["islands"]] == ["starting"] * 2
            for island in ("island0", "island1"):
                made.join(island)
            yield made


@pytest.mark.long("another cluster is started for it: 10 s")
def test_results_equal_those_of_one_process(cluster: TlsCluster) -> None:
    wanted = [np.asarray(v) for v in both(X)]
    with pw.connect(cluster.address, keys=cluster.keys / "client.alice") as topology:
        assert topology.names == ("island0", "island1")
        found = [np.asarray(v) for v in both(X)]
        assert "of alice" in str(cluster.status()["clients"])
    for one, other in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert cluster.is_empty()


def test_a_client_finds_the_cluster_by_environment_variables(cluster: TlsCluster) -> None:
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


def test_processes_listen_only_at_their_given_addresses(cluster: TlsCluster) -> None:
    """Checks every listening port of the hosts and of the controller."""
    for pid, wanted in ((cluster.pid, "127.0.0.1"), *((h.pid, f"127.0.0.{n + 2}") for n, h in hosts_of(cluster))):
        assert {ip for ip, _ in listening(pid)} == {wanted}


def hosts_of(cluster: TlsCluster) -> "list[tuple[int, subprocess.Popen[str]]]":
    return [(int(name[-1]), process) for name, process in cluster.started.items()]


def listening(pid: int) -> list[tuple[str, int]]:
    """Returns the addresses and ports on which a process listens (Linux only)."""
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


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each", keep=("9",))
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_new_host_joins_in_place_of_a_lost_host(cluster: TlsCluster, how: signal.Signals) -> None:
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
        old.send_signal(signal.SIGCONT)  # a frozen host continues, and finds its connection closed
        said, errors = old.communicate(timeout=PATIENCE)
        assert "island0 joins" in said and ("PWC0910" in errors) == (how == signal.SIGSTOP)
        assert old.returncode == (1 if how == signal.SIGSTOP else -signal.SIGKILL)
    assert cluster.is_empty()


def test_clients_and_hosts_with_wrong_keys_are_refused(cluster: TlsCluster, keys: Path, tmp_path: Path) -> None:
    """Tries no keys, keys of another cluster, and keys of another role or name."""
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


def test_a_controller_with_the_keys_of_a_client_is_refused(keys: Path) -> None:
    """A host or client that connects to an impostor instead of its controller refuses the connection."""
    with Door(Members(keys), keys=read_keys(keys / "client.alice")) as impostor:
        address = show_address(impostor.address)
        _, _, errors = pwc_here("cluster", "join", address, "--island", "island0", "--keys", str(keys))
        assert "PWC0913" in errors and "belongs to client alice" in errors
        assert code_of(lambda: pw.connect(address, keys=keys).__enter__()) == "PWC0913"
        assert impostor.reason()


def test_a_host_accepts_only_clients_with_their_own_ticket(cluster: TlsCluster, keys: Path, tmp_path: Path) -> None:
    bob = tmp_path / "client.bob"
    issue(keys / "authority", bob, "client", "bob", begins=datetime.now(UTC), valid=timedelta(days=1))
    control = connect_to(cluster.address, keys)
    control.post(m.ClientHello("raw", 1, VERSIONS))
    welcome = next(said for said in iter(control.receive, None) if isinstance(said, m.Welcome))
    port = port_of(json.loads(welcome.hosts["island0"])[1]["island0"])
    assert port is not None
    assert code_of(lambda: join_as(port, read_keys(keys / "host.island1"), "host")) == "PWC0913"
    assert code_of(lambda: connect_to_host(show_address(port), "island1", keys, elsewhere=True)) == "PWC0913"
    for folder, ticket, wanted in (
        (keys, "another", "PWC0916"),
        (bob, welcome.ticket, "PWC0916"),
        (keys, welcome.ticket, ""),
    ):
        connection = connect_to_host(show_address(port), "island0", folder, elsewhere=True)
        connection.post(m.Attach(7, welcome.client, ticket))
        answer = connection.receive()
        assert isinstance(answer, m.Answer)
        assert (read_diagnostic(answer.error).code if answer.error else "") == wanted
        connection.close()
    control.close()
    assert cluster.is_empty()


def test_pwc_status_stack_and_logs_work_over_tls(cluster: TlsCluster) -> None:
    there = ("--address", cluster.address, "--keys", str(cluster.keys))
    assert "island1  2 x cpu" in pwc_here("status", *there)[1]
    assert "island0 |" in pwc_here("stack", *there)[1]
    assert "are on its machine" in pwc_here("cluster", "logs", *there)[1]
    assert "pwc cluster join" in pwc_here("cluster", "logs", "--address", cluster.local)[1]


def test_a_host_exits_with_a_message_when_its_controller_stops(keys: Path) -> None:
    with tls_cluster(keys) as cluster:
        cluster.join("island0")
        assert pwc_here("cluster", "stop", "--address", cluster.address, "--keys", str(keys))[0] == 0
        assert "the connection to the controller has ended" in cluster.output_of("island0")
        code, _, errors = pwc_here("status", "--address", cluster.address, "--keys", str(keys))
        assert code and "PWC0913" in errors


def test_clients_reach_local_hosts_by_tls_and_by_unix_socket(keys: Path) -> None:
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


def test_a_cluster_that_cannot_start_reports_the_reason(keys: Path, short_path: Path) -> None:
    start = ("cluster", "start", "--address", str(short_path / "c"), "--keys", str(keys))
    for arguments, said in (
        (("islands=3,devices=2", "--bind", "127.0.0.1:0"), "host.island2"),  # island2 has no keys
        (("islands=1,devices=2", "--bind", "192.0.2.1:0", "--join"), "Cannot assign requested address"),
        (("islands=1,devices=2", "--bind", "nowhere"), "is not HOST:PORT"),
        (("islands=1,devices=2", "--join"), "--bind and --keys need each other"),
    ):
        code, _, errors = pwc_here(*start, *arguments)
        assert code and said in errors, errors
    assert not (short_path / "c").exists()


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each")
def test_hosts_of_one_island_join_one_by_one(tmp_path: Path) -> None:
    """Also after one host is killed before the other joins, and after one is lost: both join again."""
    keys = tmp_path / "keys"
    names = ["island0/0", "island0/1"]
    assert pwc_here("cluster", "keys", str(keys), "--hosts", ",".join(names), "--clients", "alice")[0] == 0
    whole = NamedSharding(pw.make_virtual_device_set().add_slice(devices=2).mesh("x"), P("x"))
    program = pw.program(lambda v: jit(lambda w: w - w.mean(), in_shardings=whole, out_shardings=whole)(v))
    wanted = np.asarray(program(X))
    with tls_cluster(keys, "islands=1,hosts=2,devices=1") as cluster:
        cluster.join(names[0])
        assert line_of(cluster.started[names[0]]) == "island0/0 waits for the other hosts of island0"
        early = cluster.started[names[0]]
        cluster.kill(names[0])
        early.communicate(timeout=PATIENCE)
        for name in names:
            cluster.join(name)
        cluster.wait_until_up("island0")
        with pw.connect(cluster.address, keys=keys / "client.alice"):
            np.testing.assert_allclose(np.asarray(program(X)), wanted, rtol=1e-6)
            old = [cluster.started[name] for name in names]
            cluster.kill(names[1])
            for process in old:
                process.communicate(timeout=PATIENCE)
            for name in names:
                cluster.join(name)
            cluster.wait_until_up("island0")
            np.testing.assert_allclose(np.asarray(program(X)), wanted, rtol=1e-6)
