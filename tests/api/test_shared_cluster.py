"""Tests a cluster that several client processes share: shares, arrays, memory limits, and failures.

The failure of a client or a host does not affect the arrays and runs of others.
"""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support.client_programs import called_back
from support.clusters import becomes
from support.codes import code_of
from support.processes import ROOT, pwc_here, run_python
from support.shared import SharedCluster, end_of, go_on, line_of, shared_cluster, started_by
from support.two_islands import X, both, double, f, g, here, square, there

import pathways as pw
from pathways.runtime.client.remote.run_window import MAX_RUNS_PER_ISLAND


@pw.program
def repeat(x: Any, n: Any) -> Any:
    return lax.while_loop(lambda c: c[1] < n, lambda c: (g(f(c[0])) * 0 + c[0] + 1, c[1] + 1), (x, 0))


def fail(_: Any) -> Any:
    raise ValueError("a test")


@pytest.fixture(scope="module")
def cluster() -> Iterator[SharedCluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATHWAYS_HOST_TIMEOUT", "3")
        with shared_cluster() as made:
            yield made


def test_results_equal_those_of_one_process(cluster: SharedCluster) -> None:
    wanted = [np.asarray(v) for v in (*both(X), *repeat(X, 7))]
    with pw.connect(cluster.address) as topology:
        assert topology.names == ("island0", "island1")
        found = [np.asarray(v) for v in (*both(X), *repeat(X, 7))]
        a = here(X)
        np.testing.assert_array_equal(np.asarray(there(a)), np.asarray(there(np.asarray(a))))
        assert "island0  2 x cpu" in str(pw.status())
    for one, other in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert cluster.is_empty()


def test_a_run_may_take_more_small_or_failed_arguments_than_go_with_it(cluster: SharedCluster) -> None:
    count = 1100
    total = pw.program(lambda xs: jnp.stack(xs).sum())
    fails = pw.program(lambda x: jax.pure_callback(fail, jax.ShapeDtypeStruct((), np.float32), x))
    with pw.connect(cluster.address):
        assert float(total([np.float32(1)] * count)) == count
        failed = fails(np.float32(1))
        code = code_of(np.asarray, failed)
        assert code == code_of(lambda: np.asarray(total([failed] * count)))
        assert float(total([np.float32(2)] * count)) == 2 * count
    assert cluster.is_empty()


def test_clients_run_in_proportion_to_their_weights(cluster: SharedCluster) -> None:
    """Times are those at which the clients notice an end, so the shares are approximate. A client without a processor
    notices ends late, so there are three attempts. The exact shares are tested in
    tests/runtime/control/test_dispatcher.py.
    """
    ended: list[int] = []
    while not ended or (not 5 <= ended[-1] <= 18 and len(ended) < 3):
        ended.append(_ended_before_the_heavier_client(cluster))
    assert 5 <= ended[-1] <= 18, ended
    assert cluster.is_empty()


def _ended_before_the_heavier_client(cluster: SharedCluster) -> int:
    """Runs 30 programs each for clients of weights 1 and 3; returns how many of the first end before the last of the
    second. All wait behind one run when they begin.
    """
    goes_on = threading.Event()
    blocks = called_back(lambda x: (goes_on.wait(60), np.asarray(x))[1])
    with pw.connect(cluster.address), cluster.clients(("share", 1, 30), ("share", 3, 30)) as clients:
        for each in clients:
            assert line_of(each) == "ready"
        first = blocks(X)
        for each in clients:
            go_on(each)
            assert line_of(each) == "submitted"
        goes_on.set()
        one, three = ([float(t) for t in line_of(each).split()] for each in clients)
        for each in clients:
            end_of(each, "\n")
        first.block_until_ready()
    return sum(t <= three[-1] for t in one)


def test_programs_over_two_islands_run_in_the_same_order_on_both(cluster: SharedCluster) -> None:
    with cluster.clients(("sums", 0, 250), ("sums", 1, 250)) as clients:
        assert [end_of(each) for each in clients] == [["0", "0"]] * 2
    assert cluster.is_empty()


def test_a_killed_client_leaves_no_arrays_and_no_runs(cluster: SharedCluster) -> None:
    """The endless loop of the client is cancelled, so that the island is free for others."""
    with pw.connect(cluster.address):
        kept = here(X)
        kept.block_until_ready()
        with cluster.client("hold") as client:
            assert line_of(client) == "ready"
            assert cluster.becomes(lambda said: any("client_programs" in str(i["held"]) for i in said["islands"]))
        found, wanted = both(X)[1], 2 * (X * 2 + 1)
        assert np.asarray(found).shape == wanted.shape
        np.testing.assert_array_equal(np.asarray(kept), X * 2 + 1)
        del kept, found
    assert cluster.is_empty()


def test_arrays_of_a_client_are_unreadable_after_it_disconnects(cluster: SharedCluster) -> None:
    with pw.connect(cluster.address):
        mine = here(X)
        with pw.connect(cluster.address, name="other"):
            np.testing.assert_array_equal(np.asarray(there(X)), X @ X.T)
        np.testing.assert_array_equal(np.asarray(mine), X * 2 + 1)
    assert code_of(np.asarray, mine) == "PWC0509"


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each")
def test_clients_keep_running_while_hosts_are_killed(cluster: SharedCluster) -> None:
    with cluster.clients(*(("sums", seed, 100) for seed in range(8))) as clients:
        for number in range(3):
            name = f"island{number % 2}"
            epoch, ended = (cluster.island(name)[key] for key in ("epoch", "ended"))
            assert becomes(lambda name=name, ended=ended: cluster.island(name)["ended"] > ended + 50)
            cluster.send(name, signal.SIGKILL)
            assert becomes(lambda name=name, epoch=epoch: cluster.island(name)["epoch"] > epoch)
            assert cluster.becomes(lambda said: all(i["state"] == "up" for i in said["islands"]))
        assert [end_of(each)[0] for each in clients] == ["0"] * 8
    assert cluster.is_empty()


def test_pwc_status_stack_and_logs_show_a_shared_cluster(cluster: SharedCluster) -> None:
    with cluster.client("hold") as client:
        assert line_of(client) == "ready"
        _, shown, _ = pwc_here("status", "--address", cluster.address)
        assert "running  endless of main of client_programs" in shown, shown
        assert "island1  2 x cpu" in shown and f"(process {client.pid})" in shown
        _, stacks, _ = pwc_here("stack", "--address", cluster.address)
        assert "island0 |" in stacks and "host.py" in stacks and "controller |" in stacks
        assert pwc_here("cluster", "logs", "--address", cluster.address)[0] == 0
        _, _, again = pwc_here("cluster", "start", "islands=1,devices=1", "--address", cluster.address)
        assert "PWC0919" in again and str(cluster.pid) in again
    assert cluster.is_empty()


def test_a_transfer_server_listens_only_when_a_plan_moves_a_large_value() -> None:
    with shared_cluster("islands=2,devices=2") as fresh, pw.connect(fresh.address):
        for size, ports in ((4, 0), (512, 1)):
            x = want = np.ones((size, size), np.float32) / size
            for _ in range(3):
                want = square(double(want)) / 100
            np.testing.assert_allclose(both(x)[0], want, rtol=1e-3)
            assert fresh.becomes(lambda said, ports=ports: [i["open_ports"] for i in said["islands"]] == [ports] * 2)
            shown = pwc_here("status", "--address", fresh.address)[1]
            assert ("a process that reaches one can end its host" in shown) == bool(ports)


def test_connecting_to_a_missing_cluster_is_refused() -> None:
    assert code_of(lambda: pw.connect("nowhere-at-all").__enter__()) == "PWC0918"


def test_runs_that_read_results_of_a_refused_run_raise_its_error() -> None:
    """This holds for runs that were already enqueued, and for later ones."""
    with shared_cluster("islands=1,devices=2,memory=64KiB") as cluster, pw.connect(cluster.address):
        held = [here(np.zeros((64, 64), np.float32)) for _ in range(4)]
        for each in held:
            each.block_until_ready()
        made = here(np.zeros((96, 96), np.float32))
        small = pw.program(lambda x: f(x[:4, :4]))
        after = small(made)
        assert code_of(np.asarray, made) == "PWC0507"
        assert code_of(np.asarray, after) == "PWC0507"
        held.clear()
        assert code_of(lambda: np.asarray(small(made))) == "PWC0507"
        np.testing.assert_array_equal(np.asarray(here(X)), X * 2 + 1)
        assert cluster.island("island0")["epoch"] == 0


@pytest.mark.parametrize("name", ["..", ".", "a b", "", "full"])
def test_starting_a_cluster_does_not_empty_a_foreign_folder(name: str, tmp_path: Path) -> None:
    kept = tmp_path / "full" / "thesis.txt"
    kept.parent.mkdir()
    kept.write_text("years")
    address = str(kept.parent) if name == "full" else name or " "
    code, _, errors = pwc_here("cluster", "start", "islands=1,devices=1", "--address", address)
    assert code != 0 and "PWC0918" in errors
    assert kept.read_text() == "years"


POLICY = """
from pathways.runtime.control.scheduling.fifo import Fifo

class Lottery(Fifo):
    name = "lottery"

    def rank(self, request):
        return float(hash((request.number * 2654435761) % 1000)), request.number
"""


def test_a_cluster_schedules_by_a_policy_of_the_user(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(short_path)
    (short_path / "mine.py").write_text(POLICY)
    start = ("cluster", "start", "islands=2,devices=2", "--policy")
    for name in ("none", "mine.py:None", "other.py:Lottery"):
        code, _, errors = pwc_here(*start, name, "--address", str(short_path / "refused"))
        assert code == 2 and "PWC0104" in errors and not (short_path / "refused").exists()
    with started_by(lambda address: pwc_here(*start, "mine.py:Lottery", "--address", address)) as cluster:
        assert cluster.status()["policy"] == "lottery"
        with cluster.clients(("sums", 0, 30), ("sums", 1, 30)) as clients:
            assert [end_of(each) for each in clients] == [["0", "0"]] * 2


def test_a_client_abandons_a_frozen_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATHWAYS_HOST_TIMEOUT", "1.5")
    with shared_cluster() as cluster, pw.connect(cluster.address):
        array = here(X)
        array.block_until_ready()
        os.kill(cluster.pid, signal.SIGSTOP)
        try:
            assert code_of(lambda: np.asarray(here(X))) == "PWC0917"
            assert code_of(np.asarray, array) == "PWC0917"
        finally:
            os.kill(cluster.pid, signal.SIGCONT)


FORKS = """
import contextlib, os, sys
import numpy as np
import pathways as pw
from support.two_islands import f
here = pw.program(lambda x: f(x))
x = np.ones((4, 4), np.float32)
with pw.cluster(islands=2, devices=4) if sys.argv[1] == "own" else contextlib.nullcontext():
    kept = here(x)
    kept.block_until_ready()
    if (child := os.fork()) == 0:
        sys.exit(0) if sys.argv[1] == "shared" else os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print(float(np.asarray(here(kept)).sum()))
"""


@pytest.mark.parametrize("way", ["own", "shared"])
def test_a_forked_child_does_not_close_the_connection_of_its_parent(way: str, cluster: SharedCluster) -> None:
    address = {"PATHWAYS_ADDRESS": cluster.address} if way == "shared" else {}
    done = run_python("-W", "ignore", "-c", FORKS, way, PYTHONPATH=f"{ROOT}:{ROOT / 'tests'}", **address)
    assert done.stdout.split() == ["112.0"], done.stderr


def test_a_run_is_refused_when_its_own_client_holds_the_memory() -> None:
    with shared_cluster("islands=1,devices=2,memory=64KiB") as cluster, pw.connect(cluster.address):
        held = [here(np.zeros((64, 64), np.float32)) for _ in range(4)]
        for each in held:
            each.block_until_ready()
        small = np.zeros((96, 96), np.float32)
        assert code_of(lambda: np.asarray(here(small))) == "PWC0507"
        held.clear()
        np.testing.assert_array_equal(np.asarray(here(small)), small + 1)


def test_a_program_runs_locally_after_its_cluster_is_disconnected(cluster: SharedCluster) -> None:
    """The client is a new process, which has run no local program before."""
    script = f"""
import numpy as np, pathways as pw
from support.two_islands import f, g
program = pw.program(lambda x: g(f(x)))
x = np.arange(16.0, dtype=np.float32).reshape(4, 4)
with pw.connect({cluster.address!r}):
    there = np.asarray(program(x))
np.testing.assert_array_equal(np.asarray(program(x)), there)
"""
    path = f"{Path(__file__).parents[2]}:{Path(__file__).parents[1]}"
    done = run_python("-W", "ignore", "-c", script, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr


def test_a_frozen_island_does_not_delay_calls_on_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """More calls than a client may have under way on an island wait for the frozen one, and others pass them."""
    monkeypatch.setenv("PATHWAYS_HOST_TIMEOUT", "60")
    with shared_cluster() as cluster, pw.connect(cluster.address):
        jax.block_until_ready(both(X))  # its slices are placed on two islands
        a, hosts = there(X), cluster.hosts()
        want, frozen = np.asarray(there(a)), a.handle.buffer.origin[1]
        assert here(X).handle.buffer.origin[1] != frozen
        results: list[Any] = []
        calls = threading.Thread(
            target=lambda: results.extend(there(a) for _ in range(2 * MAX_RUNS_PER_ISLAND)), daemon=True
        )
        cluster.send(frozen, signal.SIGSTOP)
        try:
            calls.start()
            assert becomes(lambda: len(results) == MAX_RUNS_PER_ISLAND), "no more are under way there"
            for _ in range(2 * MAX_RUNS_PER_ISLAND):
                np.testing.assert_array_equal(np.asarray(here(X)), double(X))
            assert len(results) == MAX_RUNS_PER_ISLAND
        finally:
            cluster.send(frozen, signal.SIGCONT)
        calls.join(60)
        assert len(results) == 2 * MAX_RUNS_PER_ISLAND and cluster.hosts() == hosts
        for result in results:
            np.testing.assert_array_equal(np.asarray(result), want)
