"""Tests host callbacks of programs on a cluster: they run only in the client process that called the program."""

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.clusters import becomes
from support.shared import SharedCluster, end_of, go_on, line_of, shared_cluster
from support.two_islands import HERE, THERE, jit

import pathways as pw

X = np.arange(16.0, dtype=np.float32).reshape(4, 4)
F32 = jax.ShapeDtypeStruct
WHOLE = NamedSharding(HERE.mesh, P())


@pytest.fixture(scope="module")
def cluster() -> Iterator[SharedCluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATHWAYS_HOST_TIMEOUT", "3")
        with shared_cluster() as made:
            yield made


@pytest.fixture(params=["shared", "of this process"], scope="module")
def inside(request: pytest.FixtureRequest, cluster: SharedCluster) -> Iterator[None]:
    with pw.connect(cluster.address) if request.param == "shared" else pw.cluster("islands=2,devices=2"):
        yield


def jit_on(place: Any, function: Any) -> Any:
    return jit(function, in_shardings=place, out_shardings=place)


def calling(function: Any) -> Any:
    """Makes a program that calls back `function` on one island, and doubles its result on another."""
    first = jit_on(HERE, lambda x: jax.pure_callback(function, F32(x.shape, x.dtype), x))
    second = jit_on(THERE, lambda x: x * 2)
    return pw.program(lambda x: second(first(x)))


@pytest.mark.usefixtures("inside")
def test_a_callback_runs_in_this_process_with_its_closure() -> None:
    seen: list[tuple[int, str]] = []

    def sine(x: Any) -> Any:
        seen.append((os.getpid(), str(np.asarray(x).dtype)))
        return np.sin(x)

    program = calling(sine)
    for _ in range(3):
        np.testing.assert_allclose(np.asarray(program(X)), 2 * np.sin(X), rtol=1e-6)
    assert set(seen) == {(os.getpid(), "float32")}


@pytest.mark.usefixtures("inside")
def test_each_effectful_callback_runs_exactly_once(capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[float] = []

    def step(x: Any) -> Any:
        io_callback(lambda v: seen.append(float(v.sum())), None, x)
        return x * 2

    call = jit_on(HERE, step)

    def three(x: Any) -> Any:
        x = call(call(call(x)))
        jax.debug.print("the last is {}", x[3, 3])
        jax.debug.callback(lambda v: seen.append(-float(v)), x[0, 1])
        return lax.while_loop(lambda v: v.sum() < 5000, call, x)

    np.testing.assert_array_equal(np.asarray(pw.program(three)(X)), 64 * X)
    assert becomes(lambda: len(seen) == 7)
    assert sorted(seen) == [-8.0, *(float(X.sum()) * 2**n for n in range(6))]
    assert becomes(lambda: "the last is 120.0" in capfd.readouterr().out)


@pytest.mark.usefixtures("inside")
def test_an_exception_in_a_callback_fails_only_its_run() -> None:
    def picky(x: Any) -> Any:
        if x[0, 0] > 5:
            raise KeyError("too large")
        return np.asarray(x) + 1

    program = calling(picky)
    bad, good = program(X + 6), program(X)
    with pytest.raises(pw.PathwaysError, match=r"KeyError: 'too large', raised at .*callbacks.py") as caught:
        np.asarray(bad)
    assert caught.value.code == "PWC0504"
    assert isinstance(caught.value, KeyError) and isinstance(caught.value, jax.errors.JaxRuntimeError)
    np.testing.assert_array_equal(np.asarray(good), 2 * X + 2)


@pytest.mark.usefixtures("inside")
def test_the_effects_barrier_waits_for_callbacks() -> None:
    seen: list[float] = []
    program = calling(lambda x: (seen.append(float(x[0, 0])), np.asarray(x))[1])
    for value in range(3):
        program(X + value)
    jax.effects_barrier()
    assert sorted(seen) == [0.0, 1.0, 2.0]


@pytest.mark.usefixtures("inside")
def test_calling_a_program_inside_a_callback_is_refused() -> None:
    inner = pw.program(lambda x: jit_on(HERE, lambda v: v + 1)(x))
    with pytest.raises(pw.PathwaysError, match="PWC0511"):
        np.asarray(calling(lambda x: np.asarray(inner(np.asarray(x))))(X))


@pytest.mark.usefixtures("inside")
def test_callbacks_keep_element_types() -> None:
    def both(x: Any, n: Any) -> Any:
        return np.asarray(x) * 2, np.asarray(n) + 1, np.asarray(n) > 1

    types = (F32((4,), jax.numpy.bfloat16), F32((), np.int32), F32((), np.bool_))
    program = pw.program(lambda x, n: jit_on(WHOLE, lambda x, n: jax.pure_callback(both, types, x, n))(x, n))
    x, n, large = program(jax.numpy.arange(4, dtype=jax.numpy.bfloat16), np.int32(3))
    assert np.asarray(x).astype(float).tolist() == [0, 2, 4, 6] and int(n) == 4 and bool(large)


@pytest.mark.usefixtures("inside")
def test_closing_a_client_waits_for_its_callbacks() -> None:
    begun, seen = threading.Event(), list[float]()

    def late(x: Any) -> None:
        begun.wait(60)
        threading.Event().wait(0.2)
        seen.append(float(x))

    def call(x: Any) -> Any:
        jax.debug.callback(late, x[1, 2])
        return x

    with pw.Client("brief"):
        pw.program(lambda x: jit_on(HERE, call)(x))(X)
        begun.set()
    assert seen == [6.0]


def test_callbacks_run_only_in_the_process_of_their_client(cluster: SharedCluster) -> None:
    with cluster.clients(("callbacks", 1), ("callbacks", 2)) as clients:
        assert [end_of(each) for each in clients] == [["1", "right"], ["2", "right"]]
    assert cluster.is_empty()


def test_a_client_process_exits_only_after_its_callbacks_have_printed(cluster: SharedCluster) -> None:
    """JAX waits for effects at exit as well, and so does a process with local devices."""
    with cluster.client("prints") as client:
        assert end_of(client) == ["printed", "6.0"]


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each")
def test_a_callback_is_abandoned_when_its_client_is_killed_or_frozen(cluster: SharedCluster) -> None:
    """Other clients lose no arrays, and the host keeps running."""
    with pw.connect(cluster.address):
        program = calling(lambda x: np.asarray(x))
        kept = program(X)
        kept.block_until_ready()
        hosts = cluster.hosts()
        with cluster.client("stuck") as client:
            assert line_of(client) == "inside"
            client.kill()
        np.testing.assert_array_equal(np.asarray(program(X)), 2 * X)
        with cluster.client("stuck") as client:
            assert line_of(client) == "inside"
            client.send_signal(signal.SIGSTOP)
            np.testing.assert_array_equal(np.asarray(program(X)), 2 * X)
            client.send_signal(signal.SIGCONT)
            assert line_of(client) in (
                "PWC0504",
                "PWC0917",
            )  # the host abandoned the call, or the controller dropped the client first
            go_on(client)
        np.testing.assert_array_equal(np.asarray(kept), 2 * X)
        assert cluster.hosts() == hosts
    assert cluster.is_empty()


def test_callbacks_on_islands_of_several_hosts_are_refused() -> None:
    with shared_cluster("islands=1,hosts=2,devices=1") as wide, pw.connect(wide.address):
        with pytest.raises(pw.PathwaysError, match="island0, which has 2 hosts") as caught:
            pw.program(lambda x: jit_on(HERE, lambda v: jax.pure_callback(np.sin, F32(v.shape, v.dtype), v))(x))(X)
        assert caught.value.code == "PWC0912" and caught.value.diagnostic.where is not None
