"""The two ways to start a cluster, for tests that hold on both: `pw.cluster`, and one that other processes share."""

from collections.abc import Generator
from contextlib import contextmanager

import pytest

import pathways as pw
from support.shared import shared_cluster

WAYS = ["own", pytest.param("shared", marks=pytest.mark.long("the same on a cluster that others share, too"))]


@contextmanager
def cluster_by(way: str, topology: str) -> Generator[None]:
    """Starts a cluster, and runs what is called in the block there."""
    if way == "own":
        with pw.cluster(topology):
            yield
    else:
        with shared_cluster(topology) as cluster, pw.connect(cluster.address):
            yield
