"""Random programs, control flow on data among them, give the same on islands in processes of their own as in one.

The same bits, but where an island is of several processes: those may add in another order.

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
"""Of two, each island is two processes; the controllers of two are processes of their own."""


@dataclass(frozen=True)
class Pair:
    """A topology, and this process as it is without the cluster of it that is running."""

    topology: str
    embedded: Process


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Deals the programs out to the clusters, each of which is started once."""
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


def test_equals_one_process(pair: Pair, seed: int) -> None:
    """Of three programs, two have control flow on data."""
    rng = np.random.default_rng(seed)
    given = [0.5 * rng.standard_normal(SHAPE).astype(np.float32) for _ in range(INPUTS)]
    placed, _ = (draw_irregular if seed // len(TOPOLOGIES) % 3 else draw)(seed)
    program = pw.program(placed)
    with inside_of(pair.embedded):
        want = [np.asarray(r) for r in program.lower(*given).compile(pair.topology)(*given)]
    for ours, theirs in zip(program.lower(*given).compile()(*given), want, strict=True):
        assert ours.dtype == theirs.dtype
        if "hosts" in pair.topology:  # which add in another order
            np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-6, atol=1e-6)
        else:
            assert np.asarray(ours).tobytes() == theirs.tobytes()
