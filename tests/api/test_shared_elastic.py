"""Tests adding and removing islands of a shared cluster, by clients and by `pwc`: all clients are notified."""

import signal
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.clusters import becomes, is_alive
from support.codes import code_of
from support.processes import pwc_here
from support.shared import SharedCluster, end_of, go_on, line_of, shared_cluster

import pathways as pw
from pathways.api.process import inside_of, process

jit: Any = jax.jit
X = np.arange(16.0, dtype=np.float32).reshape(4, 4)


@pytest.fixture(scope="module")
def cluster() -> Iterator[SharedCluster]:
    with shared_cluster() as made:
        yield made


def stage(island: str | None = None) -> Any:
    place = NamedSharding(pw.make_virtual_device_set().add_slice(devices=2, island=island).mesh("x"), P("x"))
    return jit(lambda x: x * 2 + 1, in_shardings=place, out_shardings=place)


def two_stages() -> Any:
    f, g = stage(), stage()
    return pw.program(lambda x: (f(x), g(f(x))))


def is_right(results: Any) -> bool:
    return all((np.asarray(v) == w).all() for v, w in zip(results, (2 * X + 1, 4 * X + 3), strict=True))


def island_names() -> set[str]:
    return {island.name for island in pw.islands()}


def island_of(array: Any) -> str:
    return str(array.handle.buffer.origin[1])


def test_all_clients_are_notified_of_added_and_removed_islands(cluster: SharedCluster) -> None:
    with pw.connect(cluster.address):
        one, both = process(), two_stages()
        first = both(X)
        assert is_right(first) and island_of(first[1]) == "island1"
        with pw.connect(cluster.address):
            other = two_stages()
            theirs = other(X)
            assert is_right(theirs)
            made = pw.add_island()
            far = pw.program(jit(stage(made.name)))(theirs[0])
            np.testing.assert_array_equal(np.asarray(far), 4 * X + 3)
            results = [other(X) for _ in range(20)]
            pid = cluster.hosts()["island1"]
            pw.remove_island("island1")
            assert island_names() == {"island0", made.name}
            assert becomes(lambda: not is_alive(pid))
            assert {code_of(np.asarray, r[1]) for r in results} == {"PWC0922"}
            np.testing.assert_array_equal(np.asarray(results[-1][0]), 2 * X + 1)
            again = other(X)
            assert is_right(again) and island_of(again[1]) == made.name
        with inside_of(one):
            assert becomes(lambda: island_names() == {"island0", made.name})
            assert code_of(np.asarray, first[1]) == "PWC0922"
            np.testing.assert_array_equal(np.asarray(first[0]), 2 * X + 1)
            again = both(X)
            assert is_right(again) and island_of(again[1]) == made.name and island_of(again[0]) == "island0"
            assert set(cluster.hosts()) == {"island0", made.name}
            pw.add_island(pw.Island("island1", devices=2))
            pw.remove_island(made.name, now=True)
            assert is_right(both(X)) and code_of(np.asarray, first[1]) == "PWC0922"
    with pw.connect(cluster.address) as topology:  # a client that connects later
        assert island_names() == {"island0", "island1"} == set(topology.names)
        assert is_right(two_stages()(X))
    assert cluster.is_empty()


def test_pwc_cluster_adds_and_removes_islands(cluster: SharedCluster) -> None:
    at = ("--address", cluster.address)
    code, said, _ = pwc_here("cluster", "add", "devices=2", *at)
    made = said.strip()
    assert code == 0 and set(cluster.hosts()) == {"island0", "island1", made}
    with pw.connect(cluster.address):
        result = pw.program(jit(stage(made)))(X)
        np.testing.assert_array_equal(np.asarray(result), 2 * X + 1)
        assert pwc_here("cluster", "remove", made, *at)[0] == 0
        assert becomes(lambda: made not in island_names()) and code_of(np.asarray, result) == "PWC0922"
        larger = pw.add_island(pw.Island(made, devices=4))
        shard = NamedSharding(pw.make_virtual_device_set().add_slice(devices=4, island=made).mesh("x"), P("x"))
        np.testing.assert_array_equal(np.asarray(pw.program(jit(lambda x: x * 3, in_shardings=shard))(X)), 3 * X)
        assert [island.devices for island in pw.status().islands] == [2, 2, 4]
        pw.remove_island(larger)
        assert code_of(pw.add_island, pw.Island("pod", devices=1, hosts=2)) == "PWC0912"
    for wrong in (("remove", "nowhere"), ("remove", made), ("add", "devices=2,name=island0")):
        code, _, error = pwc_here("cluster", *wrong, *at)
        assert code != 0 and "PWC0923" in error
    assert set(cluster.hosts()) == {"island0", "island1"} and cluster.is_empty()


def test_an_island_is_removed_right_after_its_host_is_killed(cluster: SharedCluster) -> None:
    with pw.connect(cluster.address):
        spare, both = pw.add_island(), two_stages()
        first = both(X)
        assert is_right(first)
        goes = island_of(first[1])
        pid = cluster.send(goes, signal.SIGKILL)
        pw.remove_island(goes, now=True)
        assert becomes(lambda: not is_alive(pid)) and is_right(both(X))
        assert code_of(np.asarray, first[1]) in ("PWC0910", "PWC0922")
        pw.add_island(pw.Island(goes, devices=2))
        pw.remove_island(spare)
        assert is_right(both(X))
    assert cluster.is_empty()


def test_a_busy_client_keeps_running_while_an_island_is_added_and_removed(cluster: SharedCluster) -> None:
    with cluster.clients(("share", 1, 100)) as clients, pw.connect(cluster.address):
        assert line_of(clients[0]) == "ready"
        go_on(clients[0])
        made = pw.add_island()
        assert (np.asarray(pw.program(jit(stage(made.name)))(X)) == 2 * X + 1).all()
        pw.remove_island(made)
        assert line_of(clients[0]) == "submitted"
        assert len(line_of(clients[0]).split()) == 100
        end_of(clients[0], "\n")
    assert cluster.is_empty()
