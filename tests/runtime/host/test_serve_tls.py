"""Tests that hosts that connect over TLS give the results of one process, and are replaced when they are lost."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.clusters import becomes, this_cluster, values
from support.codes import code_of
from support.members import HERE, PATIENCE
from support.processes import ROOT

import pathways as pw
from pathways.api.process import Process, inside_of, process
from pathways.dialect.ranks import ONE_EACH, RankTable
from pathways.dialect.topology import Island
from pathways.runtime.client import cluster
from pathways.runtime.host.serve import serve
from pathways.runtime.launch.processes import HostProcess
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.certificates import issue, make_authority
from pathways.runtime.wire.ids import first_id
from pathways.runtime.wire.tls import Listener, read_keys

SERVE = ("-m", "pathways.runtime.host.serve", "--platform", "cpu")
jit: Any = jax.jit
TOPOLOGY = "islands=2,devices=2"
SLICES = pw.make_virtual_device_set()
HERE_, THERE = (NamedSharding(SLICES.add_slice(devices=2).mesh("x"), P("x")) for _ in range(2))
f = jit(lambda x: x * 2 + 1, in_shardings=HERE_, out_shardings=HERE_)
g = jit(lambda x: x / 3 - x.sum(), in_shardings=THERE, out_shardings=THERE)
X = np.arange(16.0, dtype=np.float32)


@pw.program
def program(x: Any) -> Any:
    for _ in range(3):
        x = g(f(x))
    return x, f(x)


def host_starter(keys: Path) -> Callable[[Sequence[Island], str, RankTable], list[HostProcess]]:
    """Returns a function that starts hosts that connect over TLS, each with its own keys."""

    def start(islands: Sequence[Island], platform: str, ranks: RankTable) -> list[HostProcess]:
        assert ranks == ONE_EACH
        listener = Listener(HERE, read_keys(keys / "me"), "host")
        host, port = listener.address
        started: dict[str, tuple[Any, Path]] = {}
        for island in islands:
            issue(keys / "authority", keys / island.name, "host", island.name)
            log = Path(tempfile.mkdtemp(dir=keys)) / "log"
            arguments = ("--connect", f"{host}:{port}", "--keys", str(keys / island.name))
            with log.open("wb") as file:
                process = subprocess.Popen(
                    [sys.executable, *SERVE, *arguments, "--island", island.name, "--devices", str(island.size)],
                    stdout=file, stderr=file, env=os.environ | {"PYTHONPATH": str(ROOT)}, start_new_session=True,
                )  # fmt: skip
            started[island.name] = (process, log)
        found: dict[str, HostProcess] = {}
        for _ in islands:
            connection, peer = listener.accept(PATIENCE)
            hello = connection.receive()
            assert isinstance(hello, m.Hello) and hello.island == peer.name
            found[peer.name] = HostProcess(peer.name, connection, *started[peer.name])
        listener.close()
        return [found[i.name] for i in islands]

    return start


@pytest.fixture(scope="module", autouse=True)
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Starts the cluster; yields the state of this process without the cluster."""
    keys = tmp_path_factory.mktemp("keys")
    make_authority(keys / "authority", "demo")
    issue(keys / "authority", keys / "me", "controller", "me")
    outer = process()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "start_hosts", host_starter(keys))
        with pw.cluster(TOPOLOGY):
            yield outer


def check_equal_to_one_process(outer: Process) -> None:
    with inside_of(outer):
        want = values(program.lower(X).compile(TOPOLOGY)(X))
    got = values(program.lower(X).compile()(X))
    assert [v.tobytes() for v in got] == [v.tobytes() for v in want]


def test_a_program_gives_the_same_results_as_in_one_process(embedded: Process) -> None:
    check_equal_to_one_process(embedded)


@pytest.mark.parametrize("how", ["killed", "asked for another client's array"])
def test_a_lost_host_that_connected_over_tls_is_replaced(how: str, embedded: Process) -> None:
    compiled = program.lower(X).compile()
    kept = compiled(X)
    values(kept)
    host = this_cluster().hosts["island1"]
    if how == "killed":
        this_cluster().processes["island1"].kill()
    else:
        host.post(m.FreeArrays((first_id(1),)))
    assert becomes(lambda: host.lost is not None)
    assert "PWC0910" in [code_of(np.asarray, k) for k in kept]
    check_equal_to_one_process(embedded)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--connect", "127.0.0.1:1"), "--connect needs --keys"),
        ((), "one of the arguments --socket --connect is required"),
        (("--connect", "127.0.0.1:1", "--socket", "s"), "not allowed with argument"),
        (("--connect", "127.0.0.1:1", "--keys", "nowhere"), "PWC0914"),
    ],
)
def test_a_host_that_cannot_connect_exits_with_the_reason(
    arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["serve", "--island", "i", "--devices", "1", "--platform", "cpu", *arguments])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as caught:
        serve()
    assert message in f"{caught.value.code} {capsys.readouterr().err}" and caught.value.code
