"""Random programs give the same results on islands in separate processes as in one process.

Results are equal bit for bit, except on islands of several processes, which may add in another order.

`pytest tests/test_random_clusters.py --programs 1000 --first-program 0` compares more of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from support.random_programs import INPUTS, SHAPE, draw, draw_irregular
from support.shared import shared_cluster

import pathways as pw
from pathways.api.process import Process, inside_of, process

SHARED = "shared "
TOPOLOGIES = (
    "islands=2,devices=4",
    "islands=3,devices=4",
    "islands=4,devices=4",
    "islands=2,hosts=2,devices=2",
    f"{SHARED}islands=3,devices=4",
    f"{SHARED}islands=2,hosts=2,devices=2",
)
"""With `hosts=2`, each island is two processes. A shared cluster has its controller in a separate process."""


@dataclass(frozen=True)
class Pair:
    """A topology with a running cluster, and the state of this process without that cluster."""

    topology: str
    embedded: Process


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Distributes the programs over the clusters, so that each cluster starts once."""
    first: Any = metafunc.config.getoption("--first-program")
    count: Any = metafunc.config.getoption("--programs")
    dealt = sorted((TOPOLOGIES[seed % len(TOPOLOGIES)], seed) for seed in range(first, first + count))
    ids = [f"{topology}-{seed}".replace("=", "") for topology, seed in dealt]
    metafunc.parametrize(("pair", "seed"), dealt, indirect=["pair"], ids=ids, scope="module")


@pytest.fixture(scope="module")
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    topology, embedded = request.param, process()
    if topology.startswith(SHARED):
        topology = topology.removeprefix(SHARED)
        with shared_cluster(topology) as shared, pw.connect(shared.address):
            yield Pair(topology, embedded)
        return
    with pw.cluster(topology):
        yield Pair(topology, embedded)


def test_a_cluster_computes_the_same_as_one_process(pair: Pair, seed: int) -> None:
    """Two of three programs have control flow that depends on data."""
    rng = np.random.default_rng(seed)
    given = [0.5 * rng.standard_normal(SHAPE).astype(np.float32) for _ in range(INPUTS)]
    placed, _ = (draw_irregular if seed // len(TOPOLOGIES) % 3 else draw)(seed)
    program = pw.program(placed)
    with inside_of(pair.embedded):
        want = [np.asarray(r) for r in program.lower(*given).compile(pair.topology)(*given)]
    for ours, theirs in zip(program.lower(*given).compile()(*given), want, strict=True):
        assert ours.dtype == theirs.dtype
        if "hosts" in pair.topology:  # several processes add in another order
            np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-6, atol=1e-6)
        else:
            assert np.asarray(ours).tobytes() == theirs.tobytes()
