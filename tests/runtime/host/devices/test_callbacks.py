"""Tests host callbacks of computations: values, failures, dependents, and when their functions are freed."""

import gc
import threading
from dataclasses import replace
from typing import Any

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from jax.sharding import PartitionSpec as P
from support.clusters import becomes

import pathways as pw
from pathways.api.process import process
from pathways.dialect import host_callbacks
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.memo import forget
from pathways.dialect.mlir import bytecode, make_context, parse, portable
from pathways.dialect.plan.instructions import Run
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.order import linearize
from pathways.runtime.host.devices.callbacks import result_types
from pathways.runtime.host.load.waves import defer

jit: Any = jax.jit
X = np.arange(8, dtype=np.float32)
F32 = jax.ShapeDtypeStruct
SPLIT = P("x")


def slices(count: int, devices: int = 4) -> list[Any]:
    made = pw.make_virtual_device_set()
    return [made.add_slice(devices=devices).mesh("x") for _ in range(count)]


def placed(function: Any, mesh: Any, out: Any = SPLIT) -> Any:
    """Makes a computation that runs on every device of a mesh, each with its own shard."""
    return jit(jax.shard_map(function, mesh=mesh, in_specs=P("x"), out_specs=out))


def sine(x: Any) -> Any:
    return jax.pure_callback(lambda v: np.sin(v), F32(x.shape, x.dtype), x)


@pytest.mark.parametrize("devices", [1, 4])
def test_callbacks_return_the_right_values(devices: int) -> None:
    a, b = slices(2, devices)
    first, second = placed(sine, a), placed(lambda x: jax.lax.psum(x, "x"), b, P())
    program = pw.program(lambda x: (second(first(x)), sine(x) + 1))
    ours, loose = program(X)
    np.testing.assert_allclose(np.asarray(ours), np.sin(X).reshape(devices, -1).sum(0), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(loose), np.sin(X) + 1, rtol=1e-6)


def test_effects_happen_once_per_call(capfd: pytest.CaptureFixture[str]) -> None:
    (mesh,) = slices(1, 1)
    seen: list[float] = []

    def step(x: Any) -> Any:
        io_callback(lambda v: seen.append(float(v.sum())), None, x)
        return x * 2

    call = placed(step, mesh)

    def three(x: Any) -> Any:
        for _ in range(3):
            x = call(x)
        jax.debug.print("the first is {}", x[0])
        return x

    program = pw.program(three)
    np.testing.assert_array_equal(np.asarray(program(X)), 8 * X)
    assert sorted(seen) == [X.sum(), 2 * X.sum(), 4 * X.sum()]
    assert process().controller.flights.drain(60)
    assert capfd.readouterr().out == "the first is 0.0\n"


def picky(bad: float) -> Any:
    def check(v: Any) -> Any:
        if bad in v:
            raise ValueError(f"{bad} is not allowed")
        return v

    return lambda x: jax.pure_callback(check, F32(x.shape, x.dtype), x)


def test_a_failure_on_one_device_poisons_only_its_gang_and_dependents() -> None:
    a, b, c = slices(3)
    check = placed(picky(5.0), a)
    total = placed(lambda x: jax.lax.psum(x, "x"), b, P())
    other = placed(lambda x: x + 1, c)
    program = pw.program(lambda x: (total(check(x)), total(check(x) * 2), other(x), check(x)))
    first, second, good, direct = program(X)
    np.testing.assert_array_equal(np.asarray(good), X + 1)
    for array in (first, second, direct):
        with pytest.raises(pw.PathwaysError) as caught:
            np.asarray(array)
        text = str(caught.value)
        assert caught.value.code == "PWC0504" and "ValueError: 5.0 is not allowed" in text and "in check" in text
        assert "test_callbacks.py" in text and caught.value.diagnostic.where is not None
    with pytest.raises(pw.PathwaysError, match="is not allowed"):
        program(X)[0].block_until_ready()
    np.testing.assert_array_equal(np.asarray(program(X - 100)[0]), (X - 100).reshape(4, 2).sum(0))


def test_a_failure_of_a_callback_on_one_device_fails_the_computation() -> None:
    """Without shard_map, one device calls back and a collective sends the result to the others."""
    (mesh,) = slices(1, 2)
    call = jit(picky(5.0), in_shardings=jax.sharding.NamedSharding(mesh, SPLIT))
    program = pw.program(lambda x: call(x) + 1)
    with pytest.raises(pw.PathwaysError, match="is not allowed"):
        np.asarray(program(X))
    np.testing.assert_array_equal(np.asarray(program(X - 100)), X - 99)


def test_a_failure_without_a_reader_is_printed_once(capfd: pytest.CaptureFixture[str]) -> None:
    def check(v: Any) -> None:
        if v.sum() > 100:
            raise ValueError("too much")

    (mesh,) = slices(1, 1)
    double = placed(lambda x: 2 * x, mesh)

    def step(x: Any) -> Any:
        jax.debug.callback(check, x)
        return double(x)

    program = pw.program(step)
    for factor in (1, 100, 1):
        np.testing.assert_array_equal(np.asarray(program(factor * X)), 2 * factor * X)
    said = capfd.readouterr().err
    assert said.count("error[PWC0504]") == 1 and "ValueError: too much" in said


@pytest.mark.embedded
def test_quick_callbacks_run_on_the_thread_of_the_caller() -> None:
    """To start a thread costs more than the call, so that only callbacks that were slow in the run before get one."""
    threads: list[int] = []
    go_on = threading.Event()

    def note(v: Any) -> Any:
        threads.append(threading.get_ident())
        go_on.wait()
        return np.asarray(v)

    program = pw.program(lambda x: jax.pure_callback(note, F32(x.shape, x.dtype), x) + 1)
    for count in range(2):  # slow both times: the call returns before the callback
        go_on.clear()
        result = program(X)
        assert becomes(lambda count=count: len(threads) > count)
        threading.Event().wait(0.002)
        go_on.set()
        np.testing.assert_array_equal(np.asarray(result), X + 1)
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(program(X)), X + 1)
    mine = threading.get_ident()
    assert mine not in threads[:2] and set(threads[-2:]) == {mine}


class TooMuchError(Exception):
    """An exception of a user's own."""


def test_no_callback_is_called_with_what_failed() -> None:
    """All callbacks after one that raised are left out, and the user's own exception comes out."""
    seen: list[Any] = []

    def check(v: Any) -> Any:
        raise TooMuchError("refused")

    def step(x: Any) -> Any:
        y = jax.pure_callback(check, F32(x.shape, x.dtype), x)
        io_callback(lambda v: seen.append(np.asarray(v)), None, y + 1)
        return y

    with pytest.raises(TooMuchError, match="PWC0504"):
        np.asarray(pw.program(step)(X))
    jax.effects_barrier()
    assert not seen


def test_a_constant_result_fails_where_a_callback_does() -> None:
    """Libraries wait for such a result to learn whether a check inside of the computation failed."""

    def check(v: Any) -> Any:
        if v.sum() > 100:
            raise TooMuchError("refused")
        return np.asarray(v)

    program = pw.program(lambda x: (jnp.array(3), jax.pure_callback(check, F32(x.shape, x.dtype), x)))
    assert program(X)[0] == 3
    with pytest.raises(TooMuchError):
        program(X + 100)[0].block_until_ready()
    assert program(X)[0] == 3


def test_equinox_raises_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "jit", pw.program)
    checked = equinox.filter_jit(lambda x: equinox.error_if(x, x.sum() > 100, "too much") * 2)
    np.testing.assert_array_equal(np.asarray(checked(X)), 2 * X)
    with pytest.raises(equinox.EquinoxRuntimeError, match="too much"):
        checked(X + 100)


def test_an_exception_fails_only_its_own_run() -> None:
    """Other clients that run the same program at the same time are not affected."""
    a, b = slices(2)
    check, other = placed(picky(-1.0), a), placed(lambda x: x + 1, b)
    program = pw.program(lambda x: other(check(x)))
    np.asarray(program(X))
    wrong: list[str] = []

    def work(value: float, fails: bool) -> None:
        with pw.Client(f"client {value}"):
            for _ in range(10):
                try:
                    np.asarray(program(np.full_like(X, value)))
                    if fails:
                        wrong.append("passed")
                except pw.PathwaysError as error:
                    if not fails:
                        wrong.append(str(error))

    threads = [threading.Thread(target=work, args=(v, v == -1.0)) for v in (1.0, -1.0, 2.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_only_dependents_wait_for_a_callback() -> None:
    a, b = slices(2)
    check, other = placed(picky(-1.0), a), placed(lambda x: x + 1, b)

    def work(x: Any) -> Any:
        y = other(check(x))
        for _ in range(3):
            x = other(x)
        return x, y

    plan = pw.program(work).lower(X).compile(merge=False).plan
    waves = defer(plan, linearize(plan))
    runs = [[i.name for _, i in wave.steps if isinstance(i, Run)] for wave in waves]
    assert [len(names) for names in runs] == [4, 1] and [len(wave.awaits) for wave in waves] == [1, 0]
    assert waves[1].needs == 1


def test_saved_ordered_and_nested_callbacks_are_refused(tmp_path: Any) -> None:
    (mesh,) = slices(1, 2)
    call = placed(sine, mesh)
    compiled = pw.program(lambda x: call(x)).lower(X).compile()
    with pytest.raises(pw.PathwaysError) as caught:
        compiled.save(tmp_path / "plan.bin")
    assert caught.value.code == "PWC0608"
    ordered = pw.program(lambda x: io_callback(lambda v: v, F32(x.shape, x.dtype), call(x), ordered=True))
    with pytest.raises(pw.PathwaysError) as caught:
        ordered(X)
    assert caught.value.code == "PWC0102"
    plain = pw.program(lambda x: x + 1)

    def nested(v: Any) -> Any:
        return np.asarray(plain(v))

    outer = pw.program(lambda x: jax.pure_callback(nested, F32(x.shape, x.dtype), x) + 1)
    with pytest.raises(pw.PathwaysError, match="PWC0511"):
        np.asarray(outer(X))


def test_a_program_may_combine_gradients_and_callbacks() -> None:
    (mesh,) = slices(1, 2)
    gradient = jax.grad(lambda w, x: jnp.sum(placed(lambda v: v * v, mesh)(w * x)))
    program = pw.program(lambda w, x: (gradient(w, x), sine(x)))
    np.testing.assert_allclose(np.asarray(program(np.float32(2), X)[0]), (4 * X * X).sum(), rtol=1e-6)


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ("mhlo.backend_config = {index = 2 : ui64}", 2),
        ("api_version = 4 : i32, backend_config = {index = 2 : ui64}", 2),
        ('backend_config = ""', -1),
    ],
)
def test_the_callback_that_a_module_calls_is_found(config: str, found: int) -> None:
    """JAX and StableHLO write the index of the callback in different places."""
    source = f"""func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
      %y = stablehlo.custom_call @xla_ffi_python_cpu_callback(%x) {{{config}}} : (tensor<4xf32>) -> tensor<4xf32>
      return %y : tensor<4xf32> }}"""
    module = portable(bytecode(parse(source, make_context()).operation))
    assert result_types(module) == {found: (ArrayType((4,), "float32"),)}


def test_a_plan_with_callbacks_of_another_process_is_refused() -> None:
    (mesh,) = slices(1, 1)
    call = placed(sine, mesh)
    plan = pw.program(lambda x: call(x)).lower(X).compile().plan
    elsewhere = [replace(c, callbacks=(1 << 40,)) if c.callbacks else c for c in plan.computations]
    with pytest.raises(pw.PathwaysError, match="needs a host callback that this process does not have") as caught:
        pw.Compiled(replace(plan, computations=tuple(elsewhere)))
    assert caught.value.code == "PWC0510"


def test_a_callback_function_is_freed_with_its_last_owner() -> None:
    """The order of its owners does not matter. Numbers of another process are ignored."""
    owners = [Owner() for _ in range(3)]
    (number, other) = host_callbacks.register_callbacks([len, min], owners[0])
    host_callbacks.hold(owners[1], [number, number, 5])
    host_callbacks.hold(owners[1], [number])
    host_callbacks.hold(owners[2], [other])
    owners[0] = Owner()
    assert host_callbacks.find(number) is len and host_callbacks.find(other) is min
    owners[1] = Owner()
    assert host_callbacks.find(number) is None and host_callbacks.find(other) is min
    owners.clear()
    assert host_callbacks.find(other) is None and host_callbacks.find(5) is None


class Owner:
    """An owner of callback functions that lives for as long as a list refers to it."""


def test_freed_programs_and_plans_free_their_callback_functions() -> None:
    """A plan keeps its functions even after its IR is freed. Without the plan, the functions are freed too."""

    def plan_of() -> Plan:
        (mesh,) = slices(1, 1)
        return pw.program(placed(sine, mesh)).lower(X).compile().plan

    def alive() -> list[bool]:
        forget()
        gc.collect()
        return [host_callbacks.find(n) is not None for n in numbers]

    plan = plan_of()
    numbers = [n for c in plan.computations for n in c.callbacks]
    assert numbers and all(alive())
    del plan
    assert not any(alive())
