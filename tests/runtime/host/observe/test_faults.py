"""Tests injected faults, lost devices, snapshots, interrupts and memory over many runs.

A fault fails only the results that depend on it.
"""

import contextlib
import gc
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from support.processes import start_python

import pathways as pw
from pathways.api.process import process

jit: Any = jax.jit
X = np.arange(8, dtype=np.float32)
SPLIT = P("x")


def mesh(devices: int = 4) -> Any:
    return pw.make_virtual_device_set().add_slice(devices=devices).mesh("x")


def placed(function: Any, on: Any, out: Any = SPLIT) -> Any:
    return jit(jax.shard_map(function, mesh=on, in_specs=SPLIT, out_specs=out))


def chain(devices: int = 4) -> Any:
    """Builds a program that doubles on one slice, sums with an all-reduce on a second, and adds one on a third."""

    def double(x: Any) -> Any:
        return x * 2

    def total(x: Any) -> Any:
        return jax.lax.psum(x, "x")

    def other(x: Any) -> Any:
        return x + 1

    first, last, beside = placed(double, mesh(devices)), placed(total, mesh(devices), P()), placed(other, mesh(devices))
    return pw.program(lambda x: (last(first(x)), beside(x)))


def check(results: Any, devices: int = 4) -> None:
    np.testing.assert_array_equal(np.asarray(results[0]), 2 * X.reshape(devices, -1).sum(0))
    np.testing.assert_array_equal(np.asarray(results[1]), X + 1)


@pytest.mark.parametrize("devices", [1, 4])
def test_a_fault_on_one_device_poisons_only_dependent_results(devices: int) -> None:
    program = chain(devices)
    check(program(X), devices)
    with pw.testing.fault("raise", computation="total", device=2, message="on purpose") as fault:
        bad, good = program(X)
    assert fault.happened == 1
    np.testing.assert_array_equal(np.asarray(good), X + 1)
    with pytest.raises(pw.PathwaysError) as caught:
        np.asarray(bad)
    text = str(caught.value)
    assert caught.value.code == "PWC0504" and "InjectedFault: on purpose" in text and "total failed on" in text
    assert caught.value.diagnostic.where is not None and "test_faults" in caught.value.diagnostic.where.file
    check(program(X), devices)


def test_a_delay_does_not_change_results() -> None:
    program = chain()
    with pw.testing.fault("delay", seconds=0.2, times=2, device=1) as fault:
        check(program(X))
    assert fault.happened == 2


@pytest.mark.long("more random examples of the same kind", keep=("0",))
@pytest.mark.parametrize("device", [0, 1])
def test_a_delay_on_one_device_delays_a_result_without_collectives(device: int) -> None:
    call, after = placed(lambda x: x * 2, mesh(2)), placed(lambda x: x + 1, mesh(2))
    program = pw.program(lambda x: after(call(x)))
    program(X).block_until_ready()
    with pw.testing.fault("delay", seconds=2, device=device, step=0):
        result = program(X)
        assert not result.is_ready()
    np.testing.assert_array_equal(np.asarray(result), X * 2 + 1)


@pytest.mark.embedded
def test_a_fault_that_never_happens_is_an_error() -> None:
    program = chain()
    with pytest.raises(pw.PathwaysError, match="never happened") as caught, pw.testing.fault("raise", program="f"):
        check(program(X))
    assert caught.value.code == "PWC0104" and "program='f'" in str(caught.value)


def test_unknown_faults_and_devices_are_refused() -> None:
    with pytest.raises(pw.PathwaysError, match="no such kind of fault"), pw.testing.fault("explode"):
        pass
    with pytest.raises(pw.PathwaysError, match="no such device"):
        pw.testing.lose_device("nowhere")


def test_a_lost_device_loses_its_arrays_and_its_programs_move(capsys: pytest.CaptureFixture[str]) -> None:
    def add(x: Any) -> Any:
        return x + 1

    call, other = placed(add, mesh(2)), placed(add, mesh(2))
    program, beside = pw.program(lambda x: call(x)), pw.program(lambda x: other(x))
    here, there = program(X), beside(X)
    island = next(iter(program.lower(X).compile()._loaded._islands.values()))  # pyright: ignore[reportPrivateUsage]
    pw.testing.lose_device(island.key, 1, "unplugged")
    assert f"lost {1}" in str(pw.status())
    with pytest.raises(pw.PathwaysError, match="unplugged") as caught:
        np.asarray(here)
    assert caught.value.code == "PWC0512"
    np.testing.assert_array_equal(np.asarray(there), X + 1)
    after = program(there)
    assert "placed again" in capsys.readouterr().err
    np.testing.assert_array_equal(np.asarray(after), X + 2)
    with pytest.raises(pw.PathwaysError, match="unplugged"):
        np.asarray(program(here))
    pw.testing.return_device(island.key, 1)


def test_a_program_without_a_spare_island_fails_until_its_device_returns() -> None:
    call = placed(lambda x: x + 1, mesh(2))
    compiled = pw.program(lambda x: call(x)).lower(X).compile("islands=1,devices=2")
    (island,) = compiled._loaded._islands.values()  # pyright: ignore[reportPrivateUsage]
    with pw.testing.fault("lose", message="fire"), pytest.raises(pw.PathwaysError, match="fire"):
        np.asarray(compiled(X))
    with pytest.raises(pw.PathwaysError) as caught:
        compiled(X)
    assert caught.value.code == "PWC0513" and island.key in str(caught.value)
    pw.testing.return_device(island.key, 0)
    np.testing.assert_array_equal(np.asarray(compiled(X)), X + 1)


def test_constant_results_are_there_again_when_their_device_is_back() -> None:
    table = np.arange(65536.0, dtype=np.float32)
    call = placed(lambda x, table: x + table[0], mesh(2))
    compiled = pw.program(lambda x: (call(x, table), table)).lower(X).compile("islands=1,devices=2")
    loaded: Any = compiled._loaded  # pyright: ignore[reportPrivateUsage]
    (island,), old = loaded._islands.values(), [array for _, array in loaded._engine.constants]
    _, before = compiled(X)
    pw.testing.lose_device(island.key, 0)
    pw.testing.return_device(island.key, 0)
    with pytest.raises(pw.PathwaysError, match="on purpose"):
        np.asarray(before)
    for _ in range(2):
        np.testing.assert_array_equal(np.asarray(compiled(X)[1]), table)
    new = [array for _, array in loaded._engine.constants]
    assert not any(one is other for one, other in zip(old, new, strict=True))


def test_snapshots_restore_values_and_mismatches_are_refused(tmp_path: Path) -> None:
    call = placed(lambda x: x * 3, mesh(4))
    program = pw.program(lambda x, k: {"w": call(x), "key": k, "b": jnp.bfloat16(x[0]), "list": [x.astype(int)]})
    tree = program(X, jax.random.key(7))
    path = tmp_path / "state.npz"
    assert pw.save(tree, path) == path.stat().st_size
    back = pw.restore(jax.eval_shape(lambda: jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), {"w": X})), path)
    np.testing.assert_array_equal(back["w"], 3 * X)
    again = pw.restore(tree, path)
    assert again["b"].dtype == jnp.bfloat16 and again["key"].dtype == jax.random.key(0).dtype
    narrow = placed(lambda x: x * 3, mesh(2))
    np.testing.assert_array_equal(np.asarray(pw.program(lambda x: narrow(x))(again["w"])), 9 * X)
    with pytest.raises(pw.PathwaysError) as caught:
        pw.restore({"w": X[:4], "missing": X}, path)
    text = str(caught.value)
    assert caught.value.code == "PWC0514" and "['missing']" in text and "float32 [8]" in text and "float32 [4]" in text
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(pw.PathwaysError, match="PWC0514"):
        pw.restore(tree, path)
    path.write_text("text")
    with pytest.raises(pw.PathwaysError, match=r"not an \.npz archive"):
        pw.restore(tree, path)
    with pytest.raises(pw.PathwaysError, match="PWC0606"):
        pw.save(tree, tmp_path / "nowhere" / "state.npz")
    with pytest.raises(pw.PathwaysError, match="PWC0514"):
        pw.save({"name": "a string"}, path)


@pytest.mark.long("more random examples of the same kind")
@pytest.mark.embedded
def test_eight_clients_with_random_faults_get_no_wrong_results() -> None:
    """Clients with their own programs share devices. Runs raise, are delayed or lose devices; all others are right."""
    shared = [mesh(2), mesh(2), mesh(2)]

    def make(a: Any, b: Any, amount: float) -> Any:
        first = placed(lambda x: x + amount, a)
        last = placed(lambda x: jax.lax.pmean(x, "x"), b, P())
        return pw.program(lambda x: last(first(x)))

    programs = [make(shared[i % 3], shared[(i + i // 3) % 3], float(i)) for i in range(8)]
    wrong: list[Any] = []
    failures = [0] * 8

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        with pw.Client(f"c{number}") as client:
            for _ in range(200):
                expected = (X + number).reshape(2, -1).mean(0)
                label = client._state.label  # pyright: ignore[reportPrivateUsage]
                kind = rng.choice(["raise", "delay", "none"], p=[0.1, 0.1, 0.8])
                if number < 2 and rng.random() < 0.01:
                    kind = "lose"
                if kind == "none":
                    result = programs[number](X)
                else:
                    with pw.testing.fault(str(kind), client=label, device=int(rng.integers(2)), seconds=0.01):
                        result = programs[number](X)
                try:
                    if not np.array_equal(np.asarray(result), expected):
                        wrong.append(number)
                except pw.PathwaysError as error:
                    failures[number] += 1
                    lost = error.code == "PWC0512"  # may be the fault of another client: devices are shared
                    if not lost and (error.code != "PWC0504" or kind != "raise"):
                        wrong.append((number, str(error)))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(400)
        assert not thread.is_alive()
    assert not wrong and sum(failures) > 0
    gc.collect()
    assert process().controller.flights.drain(20)
    scheduler = process().controller.run_queue.scheduler
    assert not scheduler.waiting and not scheduler.running and not scheduler.active
    assert not [b for b in process().store.buffers if b.client.name.startswith("c")]


INTERRUPTED = """
import threading, numpy as np, jax, sys
from jax.sharding import PartitionSpec as P
import pathways as pw
mesh = pw.make_virtual_device_set().add_slice(devices=2).mesh("x")
call = jax.jit(jax.shard_map(lambda x: jax.lax.pmean(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))
program = pw.program(lambda x: call(x))
def work():
    with pw.Client("other"):
        while True:
            program(np.arange(8.0)).block_until_ready()
program(np.arange(8.0)).block_until_ready()
threading.Thread(target=work, daemon=True).start()
for _ in range(int(sys.argv[1])):
    program(np.arange(8.0))
print("ready", flush=True)
while True:
    program(np.arange(8.0))
"""


def interrupted(running: Any) -> str:
    """Interrupts a process and returns its stderr. Python may drop an interrupt in a destructor, so it is repeated."""
    for _ in range(5):
        running.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return running.communicate(timeout=20)[1]
    raise AssertionError("it goes on")


@pytest.mark.long("more random examples of the same kind", keep=("0",))
@pytest.mark.parametrize("runs", [0, 1, 300])
def test_an_interrupt_ends_a_process_cleanly(runs: int, tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    script.write_text(INTERRUPTED)
    with start_python(str(script), str(runs)) as running:
        assert running.stdout is not None and running.stdout.readline() == "ready\n"
        try:
            stderr = interrupted(running)
        finally:
            running.kill()
    assert running.returncode in (1, 130, -signal.SIGINT), stderr
    assert "KeyboardInterrupt" in stderr and "Fatal" not in stderr


@pytest.mark.long("memory is measured over many runs: 4 s")
def test_memory_is_flat_over_many_runs() -> None:
    call = placed(lambda x: x + 1, mesh(2))
    program = pw.program(lambda x: call(x))

    def objects_after(count: int) -> int:
        x = program(X)
        for _ in range(count):
            x = program(x)
        x.block_until_ready()
        del x
        assert process().controller.flights.drain(20)
        gc.collect()
        return len(gc.get_objects())

    objects_after(500)
    before = objects_after(500)
    assert abs(objects_after(10_000) - before) < 500
    assert not process().controller.run_queue.scheduler.running


@pytest.mark.embedded
def test_losing_a_device_does_not_delete_arrays_under_their_readers() -> None:
    """Asking a deleted array whether it is ready ended the process, with jaxlib 0.10."""
    call = placed(lambda x: x + 1, mesh(2))
    array = pw.program(lambda x: call(x))(X)
    array.block_until_ready()
    raw = array.handle.buffer.array
    island = next(i for i in process().machine.islands if raw.sharding.device_set <= set(i.devices))
    pw.testing.lose_device(island.key, 0)
    assert not raw.is_deleted() and raw.is_ready()
    with pytest.raises(pw.PathwaysError, match="PWC0512"):
        array.block_until_ready(timeout=1)
