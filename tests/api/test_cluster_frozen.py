"""Tests a host that is frozen by SIGSTOP: only runs that need the host wait for it.

The host processes the messages that it was sent meanwhile when it continues.
"""

import signal
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.clusters import becomes, is_replaced, pid_of, send, values
from support.codes import code_of

import pathways as pw
from pathways.runtime.control.health import TIMEOUT

jit: Any = jax.jit
HOST_TIMEOUT_S = 6.0
"""A host that sends no heartbeat for so many seconds is lost."""
X = np.arange(16.0, dtype=np.float32).reshape(4, 4)
BIG = np.ones((1024, 1024), np.float32)
CALLS, BIG_CALLS = 2000, 20
SLICES = pw.make_virtual_device_set()
HERE, THERE = (NamedSharding(SLICES.add_slice(devices=2).mesh("x"), P("x")) for _ in range(2))
f, g = (jit(lambda x: x * 2 + 1, in_shardings=s, out_shardings=s) for s in (HERE, THERE))
here, there, both = pw.program(lambda x: f(x)), pw.program(lambda x: g(x)), pw.program(lambda x: g(f(x)))


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TIMEOUT, str(HOST_TIMEOUT_S))
        with pw.cluster(islands=2, devices=2):
            for program in (both, here, there):  # the first program places its slices on two islands
                np.asarray(program(X))
                np.asarray(program(BIG))
            yield


def island_of(array: pw.Array) -> str:
    return array.handle.buffer.origin[1]


@contextmanager
def calling_in_a_thread(program: Any) -> Generator[list[Any]]:
    """Calls a program repeatedly on small and large arrays in another thread. Yields the growing list of results."""
    results: list[Any] = []

    def work() -> None:
        for n in range(CALLS):
            results.append(program(X))
            if n % (CALLS // BIG_CALLS) == 0:
                results.append(program(BIG))

    thread = threading.Thread(target=work)
    thread.start()
    yield results
    thread.join(120)
    assert not thread.is_alive() and len(results) == CALLS + BIG_CALLS


def time_calls_on_other_island(seconds: float) -> list[float]:
    """Calls a program on the island that is not frozen; returns the duration of each call with its read."""
    took: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        begun = time.monotonic()
        np.testing.assert_array_equal(np.asarray(here(X)), X * 2 + 1)
        took.append(time.monotonic() - begun)
    return took


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each")
@pytest.mark.parametrize("program", [there, both], ids=["of the frozen island", "of both islands"])
def test_other_islands_keep_running_while_a_host_is_frozen(program: Any) -> None:
    island = island_of(there(X))
    old, want = pid_of(island), {v.shape: np.asarray(program(v)) for v in (X, BIG)}
    try:
        with calling_in_a_thread(program) as results:
            send(island, signal.SIGSTOP)
            took = time_calls_on_other_island(HOST_TIMEOUT_S / 2)
            posted = len(results)
            send(island, signal.SIGCONT)
        begun = time.monotonic()
        for result in results:
            np.testing.assert_array_equal(np.asarray(result), want[result.shape])
    finally:
        send(island, signal.SIGCONT)
    print(f"\n{len(took)} calls on the other island, the slowest {max(took) * 1e3:.0f} ms; {posted} enqueued,", end=" ")
    print(f"all results {time.monotonic() - begun:.2f} s after the host continued")
    assert pid_of(island) == old
    assert max(took) < HOST_TIMEOUT_S / 3


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each")
@pytest.mark.parametrize("program", [there, both], ids=["of the frozen island", "of both islands"])
def test_a_host_frozen_beyond_the_timeout_fails_only_runs_that_need_it(program: Any) -> None:
    island, kept = island_of(there(X)), here(X)
    old, want = pid_of(island), values((program(X), program(BIG)))
    begun = time.monotonic()
    send(island, signal.SIGSTOP)
    with calling_in_a_thread(program) as results:
        took = time_calls_on_other_island(1.5 * HOST_TIMEOUT_S)
    codes = [code_of(np.asarray, result) for result in results]
    assert becomes(lambda: is_replaced(island, old))
    print(f"\n{len(took)} calls on the other island, the slowest {max(took) * 1e3:.0f} ms;", end=" ")
    print(f"{codes.count('PWC0910')} of {len(codes)} are lost, all noticed after {time.monotonic() - begun:.2f} s")
    assert set(codes) <= {"", "PWC0910"} and codes[0] == "PWC0910"
    np.testing.assert_array_equal(np.asarray(kept), X * 2 + 1)
    for ours, expected in zip(values((program(X), program(BIG))), want, strict=True):
        np.testing.assert_array_equal(ours, expected)
    assert max(took) < HOST_TIMEOUT_S / 3
