"""What is seen of programs on a cluster that others use, too: traces have all hosts, and one client's runs alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.clusters import code_of
from support.shared import SharedCluster, shared_cluster
from support.traces import events_of, launched, names_of
from support.two_islands import f, g

import pathways as pw
from pathways.api.process import inside_of, process

X = np.arange(1.0, 17.0, dtype=np.float32).reshape(4, 4)
PLACES = [("island0", "double"), ("island0", "double"), ("island1", "square"), ("island1", "square")]
"""What one run does, on two devices an island."""


def make() -> Any:
    return pw.program(lambda x: g(f(x)))


@pytest.fixture(scope="module")
def cluster() -> Iterator[SharedCluster]:
    with shared_cluster() as made:
        yield made


def places(path: Path) -> list[tuple[str, str]]:
    return [(island, name) for island, name, _ in launched(events_of(path))]


def test_a_trace_has_all_hosts_and_this_client_alone(cluster: SharedCluster, tmp_path: Path) -> None:
    """It begins before the client has called anything, which is when it first meets the hosts."""
    with pw.connect(cluster.address):
        other, theirs = process(), make()
        theirs(X).block_until_ready()
        with pw.connect(cluster.address):
            ours = make()
            with pw.trace(tmp_path / "t.json"), pw.Client("tracer"):
                for _ in range(3):
                    with inside_of(other):
                        there = theirs(X)
                    ours(X).block_until_ready()
                    with inside_of(other):
                        there.block_until_ready()
    events = events_of(tmp_path / "t.json")
    assert sorted(names_of(events).values()) == ["controller", "island0", "island1"]
    assert sorted(places(tmp_path / "t.json")) == sorted(PLACES * 3)
    assert len({run for _, _, run in launched(events)}) == 3
    assert len({e["id"] for e in events if e["ph"] == "s"}) == 3  # a transfer a run
    assert cluster.is_empty()


def test_two_clients_record_at_once(cluster: SharedCluster, tmp_path: Path) -> None:
    """What one has run until the other's end is in its file, and what it runs behind that."""
    with pw.connect(cluster.address):
        other, theirs = process(), make()
        theirs(X).block_until_ready()
        with pw.connect(cluster.address):
            ours = make()
            ours(X).block_until_ready()
            with pw.trace(tmp_path / "ours.json"):
                ours(X).block_until_ready()
                with inside_of(other), pw.trace(tmp_path / "theirs.json"):
                    theirs(X).block_until_ready()
                ours(X).block_until_ready()
    assert sorted(places(tmp_path / "ours.json")) == sorted(PLACES * 2)
    assert sorted(places(tmp_path / "theirs.json")) == sorted(PLACES)


def test_a_trace_of_islands_of_several_hosts_has_all_of_their_devices(tmp_path: Path) -> None:
    with shared_cluster("islands=2,hosts=2,devices=1") as wide, pw.connect(wide.address):
        with pw.trace(tmp_path / "t.json"):
            make()(X).block_until_ready()
        assert sorted(places(tmp_path / "t.json")) == sorted(PLACES)


def test_a_fault_comes_to_hosts_that_the_client_has_not_met(cluster: SharedCluster) -> None:
    with pw.connect(cluster.address), pw.testing.fault("raise", computation="double") as fault:
        assert code_of(np.asarray, make()(X)) == "PWC0504"
    assert fault.happened == 1
