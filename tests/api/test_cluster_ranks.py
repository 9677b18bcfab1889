"""Islands of several hosts, each a process, give what they give in one process."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.clusters import values
from support.processes import ROOT, load_file

import pathways as pw
from pathways.api.process import Process, inside_of, process

jit: Any = jax.jit
TOPOLOGY = "islands=2,hosts=2,devices=4"
X = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)

SLICES = pw.make_virtual_device_set()
HERE = SLICES.add_slice(devices=8).mesh(("x", "y"), (4, 2))
THERE = SLICES.add_slice(devices=4).mesh(("x", "y"), (2, 2))
SPECS = [P(), P("x"), P("y"), P("x", "y"), P("y", "x"), P(("x", "y")), P(None, ("x", "y")), P(None, "x")]


@pytest.fixture(scope="module", autouse=True)
def embedded() -> Iterator[Process]:
    """Starts the cluster; gives this process as it is without."""
    outer = process()
    with pw.cluster(TOPOLOGY):
        yield outer


def equal(outer: Process, program: Any, *arguments: Any, rtol: float = 0) -> Any:
    """Runs a program here and on the cluster; returns the cluster's results. They have the same bits but where hosts
    add in another order (`rtol`)."""
    with inside_of(outer):
        want = values(jax.tree.leaves(program.lower(*arguments).compile(TOPOLOGY)(*arguments)))
    got = program.lower(*arguments).compile()(*arguments)
    for ours, theirs in zip(values(jax.tree.leaves(got)), want, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol)
    return got


def on(mesh: Any, *spec: Any) -> NamedSharding:
    return NamedSharding(mesh, P(*spec))


def test_a_collective_over_both_hosts_of_an_island(embedded: Process) -> None:
    rows, columns = on(HERE, "x", None), on(HERE, None, "y")
    f = jit(lambda a, b: a @ b - a.mean(), in_shardings=(rows, columns), out_shardings=on(HERE, "x", "y"))
    equal(embedded, pw.program(lambda a, b: (y := f(a, b), y.sum())), X, X.T.copy(), rtol=1e-6)


@pytest.mark.parametrize("name", ["train_lm", "mixture_of_experts"])
def test_samples_train_as_plain_jax(name: str) -> None:
    losses = load_file(ROOT / "samples" / f"{name}.py").train(2)
    assert len(losses) == 2 and all(abs(ours - plain) < 1e-3 * abs(plain) for ours, plain in losses)


@pytest.mark.parametrize(("source", "target"), list(product(range(0, len(SPECS), 3), range(1, len(SPECS), 3))))
def test_arrays_go_between_islands_rank_by_rank(source: int, target: int, embedded: Process) -> None:
    a, b = NamedSharding(HERE, SPECS[source]), NamedSharding(THERE, SPECS[target])
    first = jit(lambda v: v + 1, in_shardings=a, out_shardings=a)
    second = jit(lambda v: v * 2, in_shardings=b, out_shardings=b)
    equal(embedded, pw.program(lambda v: first(second(first(v)))), X)


@pytest.mark.parametrize(("source", "target"), list(product(range(1, len(SPECS), 2), range(0, len(SPECS), 2))))
def test_arrays_go_from_host_to_host_of_an_island(source: int, target: int, embedded: Process) -> None:
    a, b = NamedSharding(HERE, SPECS[source]), NamedSharding(HERE, SPECS[target])
    first = jit(lambda v: v + 1, in_shardings=a, out_shardings=a)
    second = jit(lambda v: v * 2, in_shardings=b, out_shardings=b)
    equal(embedded, pw.program(lambda v: first(second(first(v)))), X)


def test_loops_and_branches_on_data(embedded: Process) -> None:
    here, there, one = on(HERE, "x", None), on(THERE, None, "y"), on(THERE)
    f = jit(lambda v: v * 1.5 - v.mean(), in_shardings=here, out_shardings=here)
    g = jit(lambda v: v + 1, in_shardings=there, out_shardings=there)
    size = jit(lambda v: abs(v).sum() < 5000, in_shardings=there, out_shardings=one)

    def turn(v: Any) -> Any:
        return g(f(v))

    def program(v: Any) -> Any:
        v = lax.while_loop(size, turn, v)
        return lax.cond(v.sum() > 0, lambda w: f(w), lambda w: g(w), v), v

    equal(embedded, pw.program(program), X, rtol=1e-4)


def test_every_shard_is_read_from_the_host_that_has_it() -> None:
    f = jit(lambda v: v + 1, in_shardings=on(HERE, "x", "y"), out_shardings=on(HERE, "x", "y"))
    x = pw.program(lambda v: f(v))(X)
    for shard in x.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), np.asarray(x)[shard.index])
