"""Tests loops and branches on data: results, enqueue order, failures, donation and memory."""

import gc
import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.branching import SOURCE, X, double, half, less, looping, other, placed, plain, same
from support.processes import run_python, start_python

import pathways as pw
from pathways.api.process import process
from pathways.dialect.plan.instructions import Branch, Run
from pathways.dialect.plan.order import linearize
from pathways.runtime.host.load.waves import defer
from pathways.runtime.host.run.runs_in_flight import Flight

jit: Any = jax.jit


@pytest.mark.parametrize("dispatch", ["parallel", "sequential"])
def test_a_loop_runs_as_often_as_the_data_requires(dispatch: str) -> None:
    compiled = looping().lower(X, np.int32(0)).compile(dispatch=dispatch)
    for n in (0, 1, 5, 2):
        for x in (X, -X):
            same(compiled(x, np.int32(n)), plain(x, n))


def test_control_flow_on_one_mesh_is_one_computation() -> None:
    f = placed(double)
    loop = pw.program(lambda x, n: lax.fori_loop(0, n, lambda i, v: f(v), x))
    compiled = loop.lower(X, np.int32(3)).compile()
    assert not compiled.plan.bodies and len(list(compiled.plan.runs())) == 1
    np.testing.assert_array_equal(np.asarray(compiled(X, np.int32(3))), 8 * X)
    mesh = pw.make_virtual_device_set().add_slice(devices=2).mesh("x")
    one, all_ = NamedSharding(mesh, P("x", None)), NamedSharding(mesh, P(None, "x"))
    a, b = jit(lambda x: x + 1, out_shardings=one), jit(lambda x: jnp.tanh(x) @ x, out_shardings=all_)
    # XLA refuses branches that end in results split differently; JAX with real devices fails here.
    branch = pw.program(lambda x, p: lax.cond(p, a, b, x))
    square = np.eye(8, dtype=np.float32)
    np.testing.assert_array_equal(np.asarray(branch(square, np.bool_(True))), square + 1)


@pytest.mark.embedded
def test_independent_work_is_enqueued_before_a_branch_is_decided(tmp_path: Path) -> None:
    program, path = looping(), tmp_path / "trace.json"
    same(program(X, np.int32(1)), plain(X, 1))
    with pw.testing.fault("delay", computation="lt", seconds=0.3) as fault, pw.trace(path):
        results = program(X, np.int32(1))
        same(results, plain(X, 1))
    assert fault.happened == 1
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("ph") == "X"]
    enqueued = {e["name"]: e["ts"] for e in reversed(events) if e["name"].startswith("enqueue ")}
    known = next(e["ts"] + e["dur"] for e in events if e["name"] == "lt" and "launch" not in e["args"])
    assert enqueued["enqueue other"] < known < enqueued["enqueue double"]


@pytest.mark.embedded
def test_work_that_depends_on_one_loop_does_not_wait_for_another(tmp_path: Path) -> None:
    f, g, a, b = placed(double), placed(less), placed(half), placed(other)

    @pw.program
    def work(x: Any, n: Any, m: Any) -> Any:
        first = lax.while_loop(lambda v: g(v).sum() < n, lambda v: g(f(v)), x)
        second = lax.fori_loop(0, m, lambda i, v: b(a(v)), x)
        return first, second + 1

    compiled = work.lower(X, np.float32(0), np.int32(0)).compile()
    waves = defer(compiled.plan, linearize(compiled.plan))
    assert [w.needs.bit_count() for w in waves].count(0) == 1 and len(waves[0].awaits) == 2
    assert not any(w.needs == 0b11 for w in waves)
    for result in compiled(X, np.float32(60), np.int32(2)):
        result.block_until_ready()
    with pw.testing.fault("delay", computation="double", seconds=0.3), pw.trace(tmp_path / "trace.json"):
        first, second = compiled(X, np.float32(60), np.int32(8))
        np.testing.assert_array_equal(np.asarray(first), 4 * X - 3)
    expected = X
    for _ in range(8):
        expected = expected / 2 + 100
    np.testing.assert_allclose(np.asarray(second), expected + 1, rtol=1e-6)
    events = [e for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if e.get("ph") == "X"]
    halves, doubles = (sorted(e["ts"] for e in events if e["name"] == f"enqueue {n}") for n in ("half", "double"))
    assert len(halves) == 8 and len(doubles) == 2 and halves[-1] < doubles[-1]


def test_nested_loops_with_constants_switches_and_vmap_match_jax() -> None:
    f, g = placed(double), placed(less)
    table = np.arange(512, dtype=np.float32)

    def work(p: bool) -> Callable[..., Any]:
        here, there = (f, g) if p else (double, less)

        def program(x: Any, n: Any) -> Any:
            def body(carry: Any) -> Any:
                i, v = carry
                v = lax.switch(i % 3, [lambda u: here(u), lambda u: there(here(u)), lambda u: there(u) + table[:8]], v)
                return i + 1, v

            def example(u: Any, k: Any) -> Any:
                return lax.while_loop(lambda c: c[0] < k, lambda c: (c[0] + 1, there(here(c[1]))), (0, u))[1]

            y = lax.while_loop(lambda c: c[0] < n, body, (0, x))[1]
            return y, jax.vmap(example)(jnp.stack([y, x]), jnp.array([3, 1]) + n)

        return program

    program, reference = pw.program(work(True)), jit(work(False))
    for n in (0, 1, 4):
        same(program(X, np.int32(n)), reference(X, np.int32(n)))


def test_gradients_through_branches_match_jax() -> None:
    f, g = placed(double), placed(half)

    def loss(here: Any, there: Any) -> Callable[..., Any]:
        def value(x: Any) -> Any:
            return (lax.cond(x[0] > 0, lambda v: here(v) ** 2, lambda v: there(v) ** 3, x)).sum()

        return jax.value_and_grad(value)

    program, reference = pw.program(loss(f, g)), jit(loss(double, half))
    for x in (X + 1, X - 1):
        same(program(x), reference(x))


def test_a_branch_that_returns_its_argument_keeps_the_callers_array() -> None:
    """A body may return an argument, or one value twice. Overwriting it must not change the caller's array."""
    f, g = placed(double), placed(less)

    @pw.program
    def work(x: Any, p: Any, n: Any) -> Any:
        y = lax.cond(p, lambda v: v, lambda v: g(f(v)), x)
        a, b = lax.while_loop(lambda c: c[0].sum() < n, lambda c: ((s := g(f(c[0]))), s), (x, x))
        return f(y), f(a), b, y

    kept = pw.program(lambda x: placed(less)(x))(X)
    values = X - 1
    for p, n in ((True, -100.0), (False, 50.0), (True, 50.0)):
        results = work(kept, np.bool_(p), np.float32(n))
        y = values if p else 2 * values - 1
        a = values
        while a.sum() < n:
            a = 2 * a - 1
        same(results, (2 * y, 2 * a, a, y))
        np.testing.assert_array_equal(np.asarray(kept), values)


def test_a_loop_overwrites_only_its_carried_values() -> None:
    f, g = placed(double), placed(less)

    def work(x: Any, y: Any, n: Any) -> Any:
        turned = lax.fori_loop(0, n, lambda i, c: (c[1], f(g(c[0]))), (x, y))
        doubled = lax.fori_loop(0, n, lambda i, c: (f(g(c[0])), f(g(c[0]))), (x, x))
        return turned, doubled, lax.fori_loop(0, n, lambda i, c: f(g(c)), y)

    kept, given = (
        pw.program(work),
        pw.program(lambda x, n: lax.fori_loop(0, n, lambda i, c: f(g(c)), x), donate_argnums=0),
    )
    x, y = (pw.program(placed(double))(v) for v in (X, X + 1))
    for n in (0, 1, 2, 3):
        a, b, c, d = 2 * X, 2 * X + 2, 2 * X, 2 * X + 2
        for _ in range(n):
            a, b, c, d = b, 2 * (a - 1), 2 * (c - 1), 2 * (d - 1)
        turned, doubled, last = kept(x, y, np.int32(n))
        same((*turned, *doubled, last), (a, b, c, c, d))
        same((x, y), (2 * X, 2 * X + 2))
    plan = given.lower(X, np.int32(0)).compile().plan
    branch = next(i for s in plan.streams for i in s.instructions if isinstance(i, Branch) and i.inputs)
    assert [branch.taken[i] for i in branch.donated] == [2]  # after the counter and its end
    body = plan.bodies[branch.bodies[1]]
    assert any(i.donated for s in body.streams for i in s.instructions if isinstance(i, Run))
    np.testing.assert_array_equal(np.asarray(given(X, np.int32(2))), 4 * X - 6)


def test_a_failing_body_poisons_only_its_dependents() -> None:
    program = looping()
    same(program(X, np.int32(2)), plain(X, 2))
    with pw.testing.fault("raise", computation="less", message="on purpose", after=1) as fault:
        y, z, w = program(X, np.int32(4))
        np.testing.assert_array_equal(np.asarray(w), X + 100)
        for array in (y, z):
            with pytest.raises(pw.PathwaysError, match="on purpose") as caught:
                np.asarray(array)
            assert caught.value.code == "PWC0504" and "branching.py" in str(caught.value)
    assert fault.happened == 1
    with pw.testing.fault("raise", computation="lt"):
        y, z, w = program(X, np.int32(4))
        np.testing.assert_array_equal(np.asarray(w), X + 100)
        with pytest.raises(pw.PathwaysError, match="injected"):
            np.asarray(y)
    same(program(X, np.int32(3)), plain(X, 3))


def test_callbacks_run_in_each_iteration_and_their_errors_fail_the_loop() -> None:
    f, g = placed(double), placed(less)
    seen: list[float] = []

    def look(v: Any) -> Any:
        seen.append(float(v.max()))
        if v.max() > 40:
            raise ValueError("too large")
        return v

    @pw.program
    def work(x: Any, n: Any) -> Any:
        def body(i: Any, v: Any) -> Any:
            return g(jax.pure_callback(look, jax.ShapeDtypeStruct(v.shape, v.dtype), f(v)))

        return lax.fori_loop(0, n, body, x), f(x)

    same(work(X, np.int32(2)), (4 * X - 3, 2 * X))
    assert seen == [14.0, 26.0]
    looped, beside = work(X, np.int32(9))
    np.testing.assert_array_equal(np.asarray(beside), 2 * X)
    with pytest.raises(pw.PathwaysError, match="too large"):
        np.asarray(looped)


@pytest.mark.embedded
def test_a_loop_leaves_no_arrays_and_has_the_planned_peaks() -> None:
    f, g = placed(double, 1), placed(half, 1)
    large = np.ones((256, 256), np.float32)
    program = pw.program(lambda x, n: lax.fori_loop(0, n, lambda i, v: g(f(v)), x))
    compiled = program.lower(large, np.int32(0)).compile()
    make = pw.program(lambda x: f(x))
    highest: list[int] = []

    def watch() -> None:
        gc.collect()
        highest.append(sum(a.nbytes for a in process_arrays() if a.shape == large.shape))

    for n in (2, 200):
        compiled(make(large), np.int32(n)).block_until_ready()
        assert process().controller.flights.drain(60)
        watch()
    assert highest == [0, 0]
    peaks = [s.peak_bytes for s in compiled.plan.streams]
    # One island holds the argument, a carried or new array, and 17 bytes of loop scalars. The other island keeps no
    # array, so that its peak is the one in transit.
    assert [divmod(p, large.nbytes) for p in peaks] == [(2, 17), (1, 0)]


@pytest.mark.embedded
def test_no_run_overwrites_an_array_that_a_loop_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run of the same client may donate an array while a loop that reads the array is running."""
    f, g = placed(lambda x: 2 * x + x.sum() * 0), placed(less)

    def loop(x: Any, n: Any) -> Any:
        last = lax.while_loop(lambda c: c[1] < n + 0 * c[0].sum(), lambda c: (g(f(c[0])) * 0.5, c[1] + 1), (x, 0.0))
        return last[0], f(x + 0 * last[0])

    reads, takes, make = pw.program(loop), pw.program(lambda x: f(x), donate_argnums=0), pw.program(lambda x: f(x))
    x = make(X)
    expected = [np.asarray(v) for v in reads(x, np.float32(50))]
    takes(make(X)).block_until_ready()
    results: list[Any] = []
    store, reading = process().controller.store, threading.Event()
    keep = store.keep

    def keep_and_signal(buffers: Any, kept: Any) -> None:
        keep(buffers, kept)
        reading.set()

    monkeypatch.setattr(store, "keep", keep_and_signal)

    def run() -> None:
        results.extend(reads(x, np.float32(50)))

    with pw.testing.fault("delay", computation="less", seconds=0.3):
        thread = threading.Thread(target=run)
        thread.start()
        assert reading.wait(60)
        np.testing.assert_array_equal(np.asarray(takes(x)), 4 * X)
        thread.join()
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), theirs)


def test_a_program_without_work_runs_sequentially_and_bad_options_are_refused() -> None:
    compiled = pw.program(lambda x, n: x).lower(X, np.int32(1)).compile(dispatch="sequential")
    np.testing.assert_array_equal(np.asarray(compiled(X, np.int32(1))), X)
    with pytest.raises(pw.PathwaysError, match="PWC0104"):
        looping().lower(X, np.int32(0)).compile(remat="yes")


def test_a_flight_keeps_launches_of_its_program_and_drops_old_body_launches() -> None:
    flight = Flight(0, looping().lower(X, np.int32(0)).compile().plan, (), [], "main", lambda _: None)
    flight.begin(None, 1, ())
    for base in range(2, 1000):
        flight.begin("body", base, ())
    assert [base for base, _ in flight.launched[None]] == [1]
    assert [base for base, _ in flight.launched["body"]][-1] == 999 and len(flight.launched["body"]) < 100


def process_arrays() -> list[Any]:
    """Returns all arrays on the devices of this process."""
    clients = {d.client for island in process().machine.islands for d in island.devices}
    return [a for client in clients for a in client.live_arrays()]


_ENDLESS = (
    SOURCE
    + """
@pw.program
def endless(x):
    return lax.while_loop(lambda v: v.sum() > -1e30, lambda v: g(f(v)) * 0, x)

if __name__ == "__main__":
    import sys
    from pathways.runtime.host.run.runs_in_flight import Flight

    launched = 0
    def begin(flight, who, *launches, real=Flight.begin):
        global launched
        real(flight, who, *launches)
        launched += who is not None
        if launched == 20:
            print("turns", flush=True)
    Flight.begin = begin
    if sys.argv[1] == "hang":
        with pw.testing.fault("hang", computation="less", after=3):
            endless(np.ones(8, np.float32)).block_until_ready()
    endless(np.ones(8, np.float32)).block_until_ready()
"""
)


def test_an_interrupt_ends_an_endless_loop(tmp_path: Path) -> None:
    source = tmp_path / "endless.py"
    source.write_text(_ENDLESS)
    process_ = start_python(str(source), "run")
    assert process_.stdout is not None and process_.stdout.readline() == "turns\n"
    os.kill(process_.pid, signal.SIGINT)
    _, err = process_.communicate(timeout=60)
    assert "KeyboardInterrupt" in err and process_.returncode not in (0, -signal.SIGSEGV, -signal.SIGABRT)


@pytest.mark.long("limits of time run out: 6 to 13 s")
def test_the_error_of_a_hang_in_a_loop_names_the_computation(tmp_path: Path) -> None:
    source = tmp_path / "endless.py"
    source.write_text(_ENDLESS)
    done = run_python(str(source), "hang", PATHWAYS_HANG_TIMEOUT="3")
    assert done.returncode == 1 and "PWC0901" in done.stderr and "less" in done.stderr, done.stderr


def test_a_device_lost_in_a_loop_fails_this_run_and_not_the_next() -> None:
    program = looping()
    same(program(X, np.int32(1)), plain(X, 1))
    with pw.testing.fault("lose", computation="less", after=1):
        y, z, _ = program(X, np.int32(3))
    for array in (y, z):
        with pytest.raises(pw.PathwaysError) as caught:
            np.asarray(array)
        assert caught.value.code == "PWC0512"
    same(program(X, np.int32(3)), plain(X, 3))
