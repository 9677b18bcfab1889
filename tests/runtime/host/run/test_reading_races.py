"""Tests reading arrays that other threads donate, delete or read: the value is right, or PWC0207 is raised."""

import collections
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.codes import code_of

import pathways as pw
from pathways.api.process import process
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.load.local_engine import LocalEngine

jit: Any = jax.jit
X = np.arange(1 << 10, dtype=np.float32)


def placed(devices: int) -> Any:
    """Returns a function that adds one on its own slice."""
    on = NamedSharding(pw.make_virtual_device_set().add_slice(devices=devices).mesh("x"), P("x"))
    return jit(lambda x: x + 1, in_shardings=on, out_shardings=on)


@pytest.fixture
def frequent_thread_switches() -> Iterator[None]:
    """Makes Python switch between threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(*work: Callable[[], None]) -> None:
    """Calls functions in threads that begin at the same moment; raises the first error of any of them."""
    begin, failures = threading.Barrier(len(work)), list[BaseException]()

    def run(function: Callable[[], None]) -> None:
        begin.wait(60)
        try:
            function()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(w,)) for w in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(t.is_alive() for t in threads)
    if failures:
        raise failures[0]


def in_other_thread(function: Callable[[], None]) -> None:
    together(function)


READS: dict[str, Callable[[Any], Any]] = {
    "np.asarray": np.asarray,
    "to_jax": lambda x: x.to_jax(),
    "float": lambda x: np.full(X.shape, x.item(0)) + X - X[0],
    "shards": lambda x: np.concatenate([s.data for s in x.addressable_shards]),
    "a copy": lambda x: np.asarray(x.copy()),
    "waiting": lambda x: x.block_until_ready() is None,
    "asking": lambda x: x.is_ready() is None,
    "starting the copy": lambda x: x.copy_to_host_async(),
}


@pytest.mark.long("threads race for 10 s", keep=("4",))
@pytest.mark.parametrize("devices", [1, 4])
def test_reading_during_a_donation_is_right_or_refused(devices: int, frequent_thread_switches: None) -> None:
    step = pw.program(placed(devices), donate_argnums=0)
    elsewhere = pw.program(placed(2))
    reads = READS | {"moving": lambda x: np.asarray(elsewhere(x)) - 1}
    now, done = [(1, step(X))], threading.Event()
    ends: collections.Counter[tuple[str, str]] = collections.Counter()

    def donate() -> None:
        try:
            for number in range(2, 150):
                now[0] = number, step(now[0][1])
        finally:
            done.set()

    def read(name: str) -> Callable[[], None]:
        def work() -> None:
            while not done.is_set():
                number, array = now[0]
                try:
                    got = reads[name](array)
                except pw.PathwaysError as error:
                    ends[name, error.code] += 1
                else:
                    right = got is None or got is False or np.array_equal(got, X + number)
                    ends[name, "right" if right else "wrong"] += 1

        return work

    together(donate, *(read(name) for name in reads))
    assert {how for _, how in ends} <= {"right", "PWC0207"}, ends
    np.testing.assert_array_equal(np.asarray(now[0][1]), X + 149)


@pytest.mark.embedded
@pytest.mark.parametrize("how", [np.asarray, pjrt.to_host, lambda x: [np.asarray(s) for s in pjrt.shards_of(x)]])
def test_several_threads_read_one_array(how: Any, frequent_thread_switches: None) -> None:
    """jaxlib 0.10 splits an array into shards at its first read; two threads at once got each other's shards."""
    program = pw.program(placed(8))
    for _ in range(40):
        array: Any = program(X).block_until_ready()
        read = array if how is np.asarray else array.handle.buffer.array

        def check(read: Any = read) -> None:
            np.testing.assert_array_equal(np.ravel(how(read)), X + 1)

        together(*[check] * 4)


@pytest.mark.parametrize("devices", [1, 4])
def test_a_donation_does_not_wait_for_a_reader_or_change_its_value(
    devices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = pw.program(placed(devices), donate_argnums=0)
    array, real, results = step(X), pjrt.to_host, list[Any]()

    def donated_meanwhile(held: Any) -> Any:
        monkeypatch.undo()
        in_other_thread(lambda: results.append(step(array)))
        return real(held)

    monkeypatch.setattr(pjrt, "to_host", donated_meanwhile)
    np.testing.assert_array_equal(np.asarray(array), X + 1)
    np.testing.assert_array_equal(np.asarray(results[0]), X + 2)
    assert code_of(np.asarray, array) == "PWC0207"


@pytest.mark.embedded
@pytest.mark.parametrize("way", ["called directly", "queued"])
def test_an_array_that_a_run_will_overwrite_cannot_be_read_or_shared(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step, elsewhere = pw.program(placed(2), donate_argnums=0), pw.program(placed(2))
    array, codes = step(X), list[str]()
    direct: Any = step._code.hot[0].__self__._direct  # pyright: ignore
    at_once, real = direct._at_once, LocalEngine.enqueue

    def uses_array() -> None:
        monkeypatch.undo()
        uses = (np.asarray, lambda x: x.copy(), lambda x: x.block_until_ready(), elsewhere, lambda x: x + 1)
        in_other_thread(lambda: codes.extend(code_of(use, array) for use in uses))

    if way == "queued":
        monkeypatch.setattr(type(direct), "__call__", lambda *_: None)
        monkeypatch.setattr(LocalEngine, "enqueue", lambda *a, **k: (uses_array(), real(*a, **k))[1])
    else:

        def start(*of: Any) -> Any:
            uses_array()
            return at_once.start(*of)

        monkeypatch.setattr(direct, "_at_once", at_once._replace(start=start))
    np.testing.assert_array_equal(np.asarray(step(array)), X + 2)
    assert set(codes) == {"PWC0207"} and len(codes) == 5


def test_a_refused_run_leaves_its_donated_arguments_unchanged() -> None:
    add = placed(2)
    both = pw.program(lambda x, y: add(x) + y, donate_argnums=0).lower(X, X).compile()
    array = pw.program(add)(X)
    assert code_of(both, array, X[:8]) == "PWC0501"
    np.testing.assert_array_equal(np.asarray(array), X + 1)
    np.testing.assert_array_equal(np.asarray(both(array, X)), 2 * X + 2)
    assert code_of(np.asarray, array) == "PWC0207"


@pytest.mark.embedded
def test_deleting_an_argument_keeps_the_result_that_shares_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    add = placed(2)
    same = pw.program(lambda x, y: (jax.device_put(x, there), add(y)))
    array = pw.program(add)(X)
    there = array.sharding
    same(array, X)
    real, held = LocalEngine.enqueue, process().store.bytes

    def enqueue(self: Any, *arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        array.delete()
        return real(self, *arguments, **options)

    monkeypatch.setattr(LocalEngine, "enqueue", enqueue)
    result = same(array, X)
    assert array.is_deleted() and code_of(np.asarray, array) == "PWC0217"
    np.testing.assert_array_equal(np.asarray(result[0]), X + 1)
    assert process().store.bytes == held + array.nbytes
