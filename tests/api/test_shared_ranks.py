"""A cluster that many processes use, whose islands are two hosts each: results are those of one process."""

from collections.abc import Iterator

import pytest
from support.processes import ROOT, load_file
from support.shared import SharedCluster, end_of, shared_cluster

import pathways as pw


@pytest.fixture(scope="module")
def cluster() -> Iterator[SharedCluster]:
    with shared_cluster("islands=2,hosts=2,devices=1") as made:
        yield made


def test_runs_of_two_clients_that_span_both_islands_meet_in_one_order(cluster: SharedCluster) -> None:
    """Another order on one host than on another would give wrong sums, or hang."""
    with cluster.clients(("sums", 0, 500), ("sums", 1, 500)) as clients:
        assert [end_of(each) for each in clients] == [["0", "0"], ["0", "0"]]
    assert cluster.is_empty()


@pytest.mark.parametrize("name", ["train_lm", "mixture_of_experts"])
def test_samples_train_as_plain_jax(name: str) -> None:
    with shared_cluster("islands=2,hosts=2,devices=4") as wide, pw.connect(wide.address):
        losses = load_file(ROOT / "samples" / f"{name}.py").train(2)
    assert len(losses) == 2 and all(abs(ours - plain) < 1e-3 * abs(plain) for ours, plain in losses)
