"""Values that enter or leave a plan have its element types, whatever `jax_enable_x64` is in the thread."""

import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.processes import pwc, run_python

import pathways as pw
from pathways.api.reference import run_reference
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType, numpy_dtype, stored_names
from pathways.dialect.sharding import MeshSpec, Sharding
from pathways.runtime.host.devices import pjrt

WIDE = ("int64", "uint64", "float64", "complex128")


def placed(function: Any, devices: int = 2) -> Any:
    sharding = NamedSharding(pw.make_virtual_device_set().add_slice(devices=devices).mesh("x"), P("x"))
    return jax.jit(function, in_shardings=sharding, out_shardings=sharding)


def values(dtype: str) -> "np.ndarray[Any, Any]":
    """Makes eight values, some of which need all the bits of a wide type."""
    if dtype in ("int64", "uint64"):
        return np.arange(8).astype(dtype) + np.array(2**40, dtype)
    if dtype in ("float64", "complex128"):
        return np.arange(8).astype(dtype) / 3
    return np.array([1, 2] * 4 if dtype == "float8_e8m0fnu" else [0, 1] * 4).astype(numpy_dtype(dtype))


def program(dtype: str) -> "pw.Program":
    held = values(dtype)
    f = placed(lambda x: (x, jnp.asarray(held)))
    return pw.program(lambda x: f(x))


@pytest.mark.parametrize("dtype", stored_names())
@pytest.mark.parametrize("wide", [False, True])
def test_a_host_array_is_put_on_devices_with_the_stated_type(dtype: str, wide: bool) -> None:
    devices = pjrt.make_devices(2)
    spec = MeshSpec((("x", 2),), (0, 1))
    real = pjrt.named_sharding(spec, (("x",),), devices)
    host = values(dtype)
    with jax.enable_x64(wide):
        array = pjrt.putter(ArrayType((8,), dtype), Sharding(spec, (("x",),)), real, devices)(host)
        assert [s.data.dtype.name for s in array.addressable_shards] == [dtype] * 2
        back = np.asarray(array)
    assert back.dtype == host.dtype
    np.testing.assert_array_equal(back, host)


def test_an_array_of_another_type_is_not_put_on_devices() -> None:
    """Its bytes would be read as those of the stated type."""
    devices = pjrt.make_devices(1)
    spec = MeshSpec((("x", 1),), (0,))
    real = pjrt.named_sharding(spec, ((),), devices)
    with pytest.raises(Exception, match="int32 was to be put on devices as int64"):
        pjrt.putter(ArrayType((8,), "int64"), Sharding(spec, ((),)), real, devices)(values("int32"))


@pytest.mark.parametrize("dtype", stored_names())
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("view", ["as it is", "backwards", "every second", "one element", "repeated"])
def test_a_host_array_may_change_after_it_is_put_on_devices(dtype: str, view: str, count: int) -> None:
    base = values(dtype)
    views = {"backwards": base[::-1], "every second": base[::2], "one element": base[3:4].reshape(())}
    host = np.broadcast_to(base, (count, 8)) if view == "repeated" else views.get(view, base)
    spec, devices = MeshSpec((("x", count),), tuple(range(count))), pjrt.make_devices(count)
    dims = (("x",),) + ((),) * (host.ndim - 1) if host.ndim else ()
    want = host.copy()
    real = pjrt.named_sharding(spec, dims, devices)
    array = pjrt.putter(ArrayType(host.shape, dtype), Sharding(spec, dims), real, devices)(host)
    base[...] = np.zeros((), base.dtype) if dtype != "float8_e8m0fnu" else np.ones((), base.dtype)
    np.testing.assert_array_equal(np.asarray(array), want)


@pytest.mark.parametrize("dtype", WIDE)
def test_wide_values_stay_wide_while_x64_is_off(dtype: str, tmp_path: Path) -> None:
    x = values(dtype)
    with jax.enable_x64(True):
        compiled = program(dtype).lower(x).compile()
    path = tmp_path / "plan.bin"
    compiled.save(path)
    found: list[Any] = []

    def in_another_thread() -> None:
        found.extend(compiled(x))
        found.extend(pw.load(path)(x))
        found.extend(run_reference(compiled.plan, [x]))

    thread = threading.Thread(target=in_another_thread)
    thread.start()
    thread.join()
    assert len(found) == 6
    for array in (*found, *compiled(x), *compiled(found[0])):
        assert str(array.dtype) == dtype
        assert np.asarray(array).dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(array), x)


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("on_disk", [False, True])
def test_suspension_and_snapshots_keep_wide_values_wide(dtype: str, on_disk: bool, tmp_path: Path) -> None:
    x = values(dtype)
    with pw.Client("wide") as client:
        with jax.enable_x64(True):
            array, _ = program(dtype)(x)
        array.block_until_ready()
        client.suspend(tmp_path if on_disk else None)
        client.resume()
        pw.save({"x": array}, tmp_path / "s.npz")
        for back in (array, pw.restore({"x": array}, tmp_path / "s.npz")["x"]):
            assert np.asarray(back).dtype == x.dtype
            np.testing.assert_array_equal(np.asarray(back), x)


def test_submitted_calls_have_the_jax_settings_of_the_caller() -> None:
    f = placed(lambda x: x * 2)
    p = pw.program(lambda x: f(x))
    with pw.Client("wide") as client:
        with jax.enable_x64(True), jax.default_matmul_precision("highest"):
            result = client.submit(p, values("float64")).result()
            seen = client.submit(lambda: (jax.config.jax_enable_x64, jax.config.jax_default_matmul_precision))  # pyright: ignore[reportAttributeAccessIssue]
            assert seen.result() == (True, "highest")
        assert client.submit(lambda: jax.config.jax_enable_x64).result() is False  # pyright: ignore[reportAttributeAccessIssue]
        np.testing.assert_array_equal(client.submit(np.asarray, result).result(), values("float64") * 2)


def test_a_program_is_traced_anew_when_settings_of_jax_differ() -> None:
    f = placed(lambda: jnp.arange(8) * 1.0)
    p = pw.program(lambda: f())
    assert str(p().dtype) == "float32"
    with jax.enable_x64(True):
        assert str(p().dtype) == "float64"
    assert str(p().dtype) == "float32"


def test_calling_a_program_with_a_wide_array_is_refused_while_x64_is_off() -> None:
    p = program("int64")
    with jax.enable_x64(True):
        array, _ = p(values("int64"))
    with pytest.raises(PathwaysError, match=r"a pw.Array of int64, while jax_enable_x64 is off"):
        p(array)


def test_a_program_lowered_for_int64_takes_int32_while_x64_is_off() -> None:
    f = placed(lambda x: x + 1)
    lowered = pw.program(lambda x: f(x)).lower(jax.ShapeDtypeStruct((8,), "int64"))
    assert lowered.compile().plan.inputs[0].dtype == "int32"


_GANG = """
import jax, numpy as np, pathways as pw
from jax.sharding import NamedSharding, PartitionSpec as P
s = NamedSharding(pw.make_virtual_device_set().add_slice(devices=2).mesh("x"), P("x"))
f = jax.jit(lambda x: x * 2 + x.sum(), in_shardings=s, out_shardings=s)
step = pw.program(lambda x: f(x), example_args=lambda: (np.arange(8, dtype=np.float64) / 3,))
"""


@pytest.mark.long("processes are started from nothing for it")
def test_a_plan_compiled_with_x64_runs_in_a_process_without_x64(tmp_path: Path) -> None:
    model, plan, out = (tmp_path / name for name in ("model.py", "plan.bin", "out.npz"))
    model.write_text(_GANG)
    x = np.arange(8) / 3
    np.savez(tmp_path / "in.npz", x=x)
    done = pwc("compile", str(model), "-o", str(plan), JAX_ENABLE_X64="1")
    assert done.returncode == 0, done.stderr
    for more in ((), ("--reference",)):
        done = pwc("run", str(plan), "--inputs", str(tmp_path / "in.npz"), "--outputs", str(out), *more)
        assert done.returncode == 0, done.stderr
        with np.load(out) as archive:
            (result,) = archive.values()
        assert result.dtype == np.float64
        np.testing.assert_allclose(result, x * 2 + x.sum(), rtol=1e-15)


def test_a_program_compiled_with_x64_can_be_called_without_x64() -> None:
    code = f"""{_GANG}
with jax.enable_x64(True):
    c = step.lower(*step.example_args).compile()
(x,) = step.example_args
np.testing.assert_allclose(np.asarray(c(x)), x * 2 + x.sum(), rtol=1e-15)
"""
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
