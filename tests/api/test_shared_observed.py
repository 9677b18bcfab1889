"""Tests traces and injected faults on a shared cluster: a trace has all hosts, but only one client's runs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.codes import code_of
from support.shared import SharedCluster, shared_cluster
from support.traces import events_of, launched, names_of
from support.two_islands import f, g

import pathways as pw
from pathways.api.process import inside_of, process

X = np.arange(1.0, 17.0, dtype=np.float32).reshape(4, 4)
COMPUTATIONS = [("island0", "double"), ("island0", "double"), ("island1", "square"), ("island1", "square")]
"""The computations of one run, each on the two devices of its island."""


def make() -> Any:
    return pw.program(lambda x: g(f(x)))


@pytest.fixture(scope="module")
def cluster() -> Iterator[SharedCluster]:
    with shared_cluster() as made:
        yield made


def computations_in(path: Path) -> list[tuple[str, str]]:
    return [(island, name) for island, name, _ in launched(events_of(path))]


def test_a_trace_has_all_hosts_but_only_the_runs_of_its_client(cluster: SharedCluster, tmp_path: Path) -> None:
    """The trace starts before the first call of the client, which connects the client to the hosts."""
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
    assert sorted(computations_in(tmp_path / "t.json")) == sorted(COMPUTATIONS * 3)
    assert len({run for _, _, run in launched(events)}) == 3
    assert len({e["id"] for e in events if e["ph"] == "s"}) == 3  # one transfer per run
    assert cluster.is_empty()


def test_two_clients_record_traces_at_once(cluster: SharedCluster, tmp_path: Path) -> None:
    """A trace contains runs from before and after the end of the other client's trace."""
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
    assert sorted(computations_in(tmp_path / "ours.json")) == sorted(COMPUTATIONS * 2)
    assert sorted(computations_in(tmp_path / "theirs.json")) == sorted(COMPUTATIONS)


def test_a_trace_of_islands_of_several_hosts_has_all_devices(tmp_path: Path) -> None:
    with shared_cluster("islands=2,hosts=2,devices=1") as wide, pw.connect(wide.address):
        with pw.trace(tmp_path / "t.json"):
            make()(X).block_until_ready()
        assert sorted(computations_in(tmp_path / "t.json")) == sorted(COMPUTATIONS)


def test_a_fault_reaches_hosts_that_the_client_has_not_used_before(cluster: SharedCluster) -> None:
    with pw.connect(cluster.address), pw.testing.fault("raise", computation="double") as fault:
        assert code_of(np.asarray, make()(X)) == "PWC0504"
    assert fault.happened == 1
