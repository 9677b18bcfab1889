"""Tests clusters whose hosts are started by Ray: results equal those of one process, and lost hosts are replaced.

A stopped cluster leaves no processes and no files.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.clusters import becomes, is_alive
from support.codes import code_of
from support.proc import begotten_by, open_files_of, open_to_others, parent_of, ports_of
from support.processes import load_file, pwc_here, run_python
from support.random_programs import INPUTS, SHAPE, draw, draw_irregular
from support.ray_trial import TrialRay, trial_ray
from support.shared import SharedCluster, end_all
from support.two_islands import f, g

import pathways as pw
from pathways.runtime.launch.local_cluster import MemberPort
from pathways.runtime.launch.ray_cluster import ray_of

pytestmark = pytest.mark.long("a Ray takes 15 s to start, and its hosts are processes of its own")

pytest.importorskip("ray", reason="the extra [ray] is not installed")

X = np.arange(16.0, dtype=np.float32).reshape(4, 4)
here = pw.program(lambda x: f(x))


@pw.program
def both(x: Any) -> Any:
    return g(f(x)), f(x)


@pytest.fixture(scope="module")
def ray() -> Iterator[TrialRay]:
    """Starts a Ray cluster of two nodes, and a head node without CPUs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATHWAYS_HOST_TIMEOUT", "3")
        with trial_ray(2, 16) as made:  # enough for all tests on one node: Ray may use only one
            yield made


@pytest.fixture(scope="module")
def cluster(ray: TrialRay) -> Iterator[SharedCluster]:
    with ray.cluster("islands=2,devices=4") as made:
        yield made


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_give_the_results_of_one_process(cluster: SharedCluster, seed: int) -> None:
    """Two of three programs have control flow on data."""
    rng = np.random.default_rng(seed)
    given = [0.5 * rng.standard_normal(SHAPE).astype(np.float32) for _ in range(INPUTS)]
    placed, _ = (draw_irregular if seed % 3 else draw)(seed)
    program = pw.program(placed)
    want = [np.asarray(r) for r in program.lower(*given).compile("islands=2,devices=4")(*given)]
    with pw.connect(cluster.address):
        for ours, theirs in zip(program.lower(*given).compile()(*given), want, strict=True):
            assert np.asarray(ours).tobytes() == theirs.tobytes()


def test_sample_losses_match_plain_jax(cluster: SharedCluster, root: Path) -> None:
    with pw.connect(cluster.address):
        for ours, plain in load_file(root / "samples" / "mixture_of_experts.py").train(2):
            assert ours == pytest.approx(plain, rel=1e-5)
    assert cluster.is_empty()


@pytest.mark.parametrize("name", ["figure2", "speculative_decoding"])
def test_samples_print_the_same_as_in_one_process(cluster: SharedCluster, root: Path, name: str) -> None:
    file = str(root / "samples" / f"{name}.py")
    shared, alone = run_python(file, PATHWAYS_ADDRESS=cluster.address), run_python(file)
    assert shared.returncode == 0 and shared.stdout == alone.stdout != "", shared.stderr
    assert cluster.is_empty()


def test_no_process_listens_for_other_machines(ray: TrialRay, cluster: SharedCluster) -> None:
    assert {cluster.pid, *cluster.pids()} <= ray.processes()
    seen = 0
    for pid in ray.processes():
        seen += len(ports_of(pid))
        assert not open_to_others() & set(open_files_of(pid))
    assert seen > 5


@pytest.mark.parametrize("what", ["kill", "freeze", "kill its actor"])
def test_a_lost_host_is_replaced(cluster: SharedCluster, what: str) -> None:
    wanted = np.asarray(both(X)[0])
    with pw.connect(cluster.address):
        kept, lost = both(X)
        kept.block_until_ready()
        lost.block_until_ready()
        epoch, pid = cluster.island("island0")["epoch"], cluster.hosts()["island0"]
        os.kill(parent_of(pid) if "actor" in what else pid, signal.SIGSTOP if what == "freeze" else signal.SIGKILL)
        assert becomes(lambda: code_of(np.asarray, lost) == "PWC0910")
        np.testing.assert_array_equal(np.asarray(kept), wanted)
        np.testing.assert_array_equal(np.asarray(here(X)), X * 2 + 1)
        assert cluster.island("island0")["epoch"] == epoch + 1
        assert becomes(lambda: not is_alive(pid))
    assert cluster.is_empty()


def test_hosts_of_one_island_run_on_different_nodes(ray: TrialRay) -> None:
    """When a raylet is killed, its hosts exit. The island waits for a new node, and then runs again."""
    with ray.cluster("islands=1,hosts=2,devices=2") as gang, ray.cluster("islands=1,devices=1") as lone:
        assert gang.becomes(
            lambda said: said["islands"][0]["state"] == "up"
        )  # the CPUs of earlier clusters may not be free yet
        hosts = gang.hosts()
        raylets = {name: parent_of(parent_of(pid)) for name, pid in hosts.items()}
        assert len(set(raylets.values())) == 2
        wide = pw.program(lambda x: f(x).sum())
        with pw.connect(gang.address):
            assert float(wide(X)) == float((X * 2 + 1).sum())
            os.kill(hosts["island0/1"], signal.SIGKILL)
            assert gang.becomes(lambda said: said["islands"][0]["state"] == "up" and said["islands"][0]["epoch"] == 1)
            assert float(wide(X)) == float((X * 2 + 1).sum())
        hosts, other = gang.hosts(), lone.hosts()["island0"]
        killed = parent_of(parent_of(other))
        os.kill(killed, signal.SIGKILL)
        end_all([other, *(pid for name, pid in hosts.items() if raylets[name] == killed)])
        assert lone.becomes(lambda said: said["islands"][0]["state"] == "up")
        wanted = "island0  4 x cpu, lost 0, 1, 2, 3\n  starting  waits for 2 nodes with 2 CPU free each"
        assert gang.becomes(lambda _: wanted in pwc_here("status", "--address", gang.address)[1])
        ray.add_node(4)
        assert gang.becomes(lambda said: said["islands"][0]["state"] == "up")
        with pw.connect(gang.address):
            assert float(wide(X)) == float((X * 2 + 1).sum())


def test_a_killed_controller_ends_its_hosts_and_frees_its_ray_resources(ray: TrialRay) -> None:
    for _ in range(2):  # the second needs the resources of the first
        with ray.cluster("islands=1,devices=2") as cluster, pw.connect(cluster.address):
            array = pw.program(lambda x: f(x))(X)
            array.block_until_ready()
            pids = [*cluster.pids(), parent_of(cluster.pid), *map(parent_of, cluster.pids())]
            os.kill(cluster.pid, signal.SIGKILL)
            assert becomes(lambda array=array: code_of(np.asarray, array) == "PWC0917")
            end_all(pids)


def test_requests_that_no_node_can_satisfy_are_refused(ray: TrialRay, short_path: Path) -> None:
    for arguments, said in (
        (["islands=1,devices=17"], "a node with 17 CPU free, for island0"),
        (["islands=10,devices=4"], "40 CPU for 10 islands in total"),
        (["islands=1,devices=1", "--label", "rack=a7"], "rack=a7"),
        (["islands=1,devices=1", "--label", "island9:rack=a7"], "PWC0707"),
    ):
        code, _, errors = pwc_here(
            "cluster", "start", "--ray", ray.address, *arguments, "--address", str(short_path / "c")
        )
        assert code != 0 and said in errors, errors
        assert not (short_path / "c").exists()


def test_an_unreachable_ray_is_reported(short_path: Path) -> None:
    arguments = ["--address", str(short_path / "c"), "islands=1,devices=1"]
    code, _, errors = pwc_here("cluster", "start", "--ray", "127.0.0.1:1", *arguments)
    assert code != 0 and "PWC0928" in errors


def test_stopping_a_cluster_also_stops_the_ray_that_it_started(short_path: Path) -> None:
    """No topology is given, so each node is an island."""
    address = str(short_path / "c")
    code, shown, errors = pwc_here("cluster", "start", "--ray", "local:1", "--address", address)
    assert code == 0, errors
    assert "island0  4 x cpu" in shown and "island1" not in shown and "RAY_AUTH_MODE=token" in shown
    said = ray_of(Path(address))
    pids = {said["keeper"], *begotten_by(said["keeper"])}
    assert len(pids) > 5 and not any(open_to_others() & set(open_files_of(pid)) for pid in pids)
    with pw.connect(address):
        np.testing.assert_array_equal(np.asarray(pw.program(lambda x: f(x))(X)), X * 2 + 1)
    assert pwc_here("cluster", "stop", "--address", address)[0] == 0
    assert not [pid for pid in pids if is_alive(pid)]
    assert not Path(address).exists() and not Path(said["token"]).parent.exists()


def test_hosts_connect_by_tls_with_keys_that_ray_distributes(ray: TrialRay, tmp_path: Path) -> None:
    names, keys = ["island0", "island1/0", "island1/1"], tmp_path / "keys"
    assert pwc_here("cluster", "keys", str(keys), "--hosts", ",".join(names), "--clients", "alice")[0] == 0
    topology = tmp_path / "pods.toml"
    topology.write_text(
        '[[island]]\nname = "island0"\ndevices = 2\n[[island]]\nname = "island1"\ndevices = 1\nhosts = 2\n'
    )
    there = pw.program(lambda x: g(f(x)))
    wanted = np.asarray(there(X))
    with ray.cluster(str(topology), port=MemberPort(("127.0.0.1", 0), keys, False)) as cluster:
        assert cluster.becomes(lambda said: all(island["state"] == "up" for island in said["islands"]))
        assert not list(Path(cluster.address).glob("island*"))  # no host listens at a Unix socket
        with pw.connect(cluster.status()["bind"], keys=keys):
            np.testing.assert_allclose(np.asarray(there(X)), wanted, rtol=1e-6)
            cluster.send("island1/1", signal.SIGKILL)
            assert cluster.becomes(lambda said: said["islands"][1]["epoch"] == 1)
            assert becomes(lambda: not code_of(lambda: np.asarray(there(X))))  # calls during the restart may fail
            np.testing.assert_allclose(np.asarray(there(X)), wanted, rtol=1e-6)
