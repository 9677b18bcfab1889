"""Tests that calls return arrays at once, for programs with loops on data or callbacks and for their consumers."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.processes import run_python

import pathways as pw
from pathways.api.process import process
from pathways.runtime.client_state import ClientState
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.run import background
from pathways.runtime.host.run.background import MAX_BACKGROUND, BackgroundRuns, Promise

X = np.arange(8, dtype=np.float32)


def placed(function: Callable[..., Any], devices: int = 2) -> Any:
    sharding = NamedSharding(pw.make_virtual_device_set().add_slice(devices=devices).mesh("x"), P("x"))
    return jax.jit(function, in_shardings=sharding, out_shardings=sharding)


class Held:
    """A program over two slices whose callback returns when the test sets `go`."""

    def __init__(self, **options: Any) -> None:
        self.go = threading.Event()
        f, g = placed(lambda x: x * 2), placed(lambda x: x + 1)
        self.double = pw.program(lambda x: f(x))
        """A program whose result lies where `program` takes its argument."""

        def wait(x: Any) -> Any:
            assert self.go.wait(60)
            return x

        def held(x: Any) -> Any:
            return g(jax.pure_callback(wait, jax.ShapeDtypeStruct(X.shape, X.dtype), f(x)))

        self.program = pw.program(held, **options)


def endless() -> "pw.Program":
    f, g = placed(lambda x: x * 2), placed(lambda x: x + 1)
    return pw.program(lambda x: lax.while_loop(lambda v: v.sum() > -1e30, lambda v: g(f(v)) * 0, x))


def test_a_call_returns_before_its_callback_returns() -> None:
    held = Held()
    y = held.program(X)
    assert not y.is_ready()
    with pytest.raises(TimeoutError) as caught:
        y.block_until_ready(timeout=0.01)
    assert isinstance(caught.value, pw.PathwaysError) and caught.value.code == "PWC0519"
    held.go.set()
    np.testing.assert_array_equal(np.asarray(y), X * 2 + 1)
    assert y.is_ready() and not y.cancel()


def test_calls_that_take_unfinished_arrays_return_at_once() -> None:
    held, h = Held(), placed(lambda x: x - 1)
    regular = pw.program(lambda x: h(x))
    y = held.program(X)
    z = y
    for _ in range(5):
        z = regular(z)
    assert not z.is_ready()
    held.go.set()
    np.testing.assert_array_equal(np.asarray(z), X * 2 + 1 - 5)


def test_a_host_array_may_change_right_after_the_call() -> None:
    held, x = Held(), X.copy()
    first = held.program(x)
    second = pw.program(lambda a, b: placed(lambda c: c + 0)(a) + b)(first, x)
    x[:] = -1
    held.go.set()
    np.testing.assert_array_equal(np.asarray(first), X * 2 + 1)
    np.testing.assert_array_equal(np.asarray(second), X * 2 + 1 + X)


def test_a_donated_array_is_unusable_right_after_the_call() -> None:
    held, make = Held(donate_argnums=0), pw.program(lambda x: placed(lambda c: c + 0)(x))
    x = make(X)
    y = held.program(x)
    with pytest.raises(pw.PathwaysError, match="PWC0207"):
        np.asarray(x)
    held.go.set()
    np.testing.assert_array_equal(np.asarray(y), X * 2 + 1)


def test_an_unfinished_array_may_be_donated() -> None:
    held, h = Held(), placed(lambda x: x - 1)
    takes = pw.program(lambda x: h(x), donate_argnums=0)
    y = held.program(X)
    z = takes(y)
    with pytest.raises(pw.PathwaysError, match="PWC0207"):
        np.asarray(y)
    held.go.set()
    np.testing.assert_array_equal(np.asarray(z), X * 2)


def test_arguments_and_constants_may_be_returned_unchanged() -> None:
    f, g = placed(lambda x: x * 2), placed(lambda x: x + 1)
    constant = np.arange(1024, dtype=np.float32)

    def both(x: Any, n: Any) -> Any:
        return x, lax.fori_loop(0, n, lambda i, v: g(f(v)), x), jnp.asarray(constant), x

    make = pw.program(lambda x: f(x))
    program, x = pw.program(both), make(X)
    before = process().store.bytes
    same, looped, held, again = program(x, np.int32(2))
    for array, expected in ((same, X * 2), (again, X * 2), (looped, (X * 4 + 1) * 2 + 1), (held, constant)):
        np.testing.assert_array_equal(np.asarray(array), expected)
    takes = pw.program(lambda x: f(x), donate_argnums=0)
    np.testing.assert_array_equal(np.asarray(takes(same)), X * 4)  # a copy: x and again are still held
    np.testing.assert_array_equal(np.asarray(x), X * 2)
    del same, looped, held, again, array
    assert process().store.bytes == before


def test_an_endless_loop_can_be_cancelled() -> None:
    program, h = endless(), placed(lambda x: x - 1)
    y = program(X)
    z = pw.program(lambda x: h(x))(y)
    with pytest.raises(TimeoutError):
        y.block_until_ready(timeout=0.01)
    assert y.cancel() and y.is_ready()
    for array in (y, z):
        with pytest.raises(pw.PathwaysError, match="was cancelled") as caught:
            np.asarray(array)
        assert caught.value.code == "PWC0518"
    assert process().controller.background.drain(timeout=60)
    assert process().controller.flights.drain(60)


def test_closing_a_client_ends_its_loops() -> None:
    program = endless()
    with pw.Client("brief"):
        y = program(X)
    with pytest.raises(pw.PathwaysError) as caught:
        np.asarray(y)
    assert caught.value.code == "PWC0509"
    assert process().controller.background.drain(timeout=60)


def test_closing_a_client_waits_for_its_callbacks() -> None:
    f, seen = placed(lambda x: x * 2), list[float]()

    def shown(x: Any) -> Any:
        jax.debug.callback(lambda v: seen.append(float(v)), f(x).sum())
        return f(x)

    program = pw.program(shown)
    with pw.Client("brief"):
        program(X)
        program(X)
    assert seen == [56.0, 56.0]


def test_a_call_waits_while_too_many_runs_of_its_client_are_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, client, other = BackgroundRuns(), ClientState("many"), ClientState("other")
    go, waits = threading.Event(), threading.Event()

    def pause(_: float) -> None:
        waits.set()
        assert go.wait(60)

    monkeypatch.setattr(background, "time", SimpleNamespace(sleep=pause))

    def work() -> None:
        go.wait(60)

    for number in range(MAX_BACKGROUND):
        runs.start(Promise(number, "p", client, False), work)
    runs.start(Promise(1000, "p", other, False), lambda: None)  # another client's run is not delayed
    late = threading.Thread(target=runs.start, args=(Promise(MAX_BACKGROUND, "p", client, False), lambda: None))
    late.start()
    assert waits.wait(60)
    assert late.is_alive() and len(runs.of(client)) == MAX_BACKGROUND
    go.set()
    late.join(60)
    monkeypatch.undo()
    assert not late.is_alive() and runs.drain(timeout=60)


def test_a_script_exits_while_its_loop_still_runs() -> None:
    code = """
import jax, numpy as np, pathways as pw
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P
v = pw.make_virtual_device_set()
f, g = (jax.jit(lambda x: x + 1, in_shardings=NamedSharding(v.add_slice(devices=2).mesh("x"), P("x"))) for _ in "ab")
p = pw.program(lambda x: lax.while_loop(lambda v: v.sum() > -1e30, lambda v: g(f(v)) * 0, x))
y = p(np.ones(8, np.float32))
print(type(y).__name__, y.is_ready())
"""
    done = run_python("-c", code)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "Array False", "")


def test_arrays_donated_to_a_background_run_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    held, copies = Held(donate_argnums=0), list[Any]()
    held.go.set()
    np.asarray(held.program(X))
    copy_whole = pjrt.copy_whole
    monkeypatch.setattr(pjrt, "copy_whole", lambda array, *of: copies.append(array) or copy_whole(array, *of))
    given = [held.double(X) for _ in range(10)]
    before = [x.handle.buffer.array for x in given]
    for y in [held.program(x) for x in given]:
        np.testing.assert_array_equal(np.asarray(y), X * 4 + 1)
    assert not [c for c in copies if any(c is b for b in before)]


@pytest.mark.embedded
def test_a_run_cancelled_before_it_starts_is_never_enqueued() -> None:
    go, calls = threading.Event(), list[float]()
    f = placed(lambda x: x * 2)

    def wait(x: Any) -> Any:
        calls.append(float(x[0]))
        assert go.wait(60)
        return x

    program = pw.program(lambda x: jax.pure_callback(wait, jax.ShapeDtypeStruct(X.shape, X.dtype), f(x)))
    first = program(X + 1)
    later = program(program(first))
    assert later.cancel()
    go.set()
    np.testing.assert_array_equal(np.asarray(first), X * 2 + 2)
    with pytest.raises(pw.PathwaysError, match="PWC0518"):
        np.asarray(later)
    assert process().controller.background.drain(timeout=60)
    assert len(calls) == 2  # the first run and the second, which was not cancelled


@pytest.mark.long("limits of time run out: 8 s")
def test_a_script_exits_while_a_callback_waits_for_an_endless_loop() -> None:
    code = """
import jax, numpy as np, pathways as pw
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P
v = pw.make_virtual_device_set()
f, g = (jax.jit(lambda x: x + 1, in_shardings=NamedSharding(v.add_slice(devices=2).mesh("x"), P("x"))) for _ in "ab")
p = pw.program(lambda x: lax.while_loop(lambda v: v.sum() > -1e30, lambda v: g(f(v)) * 0, x))
def tell(x):
    jax.debug.callback(lambda s: print("told", s), f(x).sum())
pw.program(tell)(p(np.ones(8, np.float32)))
print("main ends")
"""
    done = run_python("-c", code)
    assert (done.returncode, done.stdout) == (0, "main ends\n"), done.stderr
