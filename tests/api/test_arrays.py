"""Tests `pw.Array` as a future and as a handle of a buffer. Its uses are tested in test_array_*.py."""

import asyncio
import gc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.api.process import process

SLICE = pw.make_virtual_device_set().add_slice(devices=4)
MESH = SLICE.mesh(("a", "b"), (2, 2))


@pw.program
def place(x: Any) -> Any:
    return jax.device_put(x, NamedSharding(MESH, P("b", "a")))


X = np.arange(32, dtype=np.float32).reshape(8, 4)


def test_an_array_reads_as_numpy_values_and_python_scalars() -> None:
    x = place(X)
    assert x.shape == (8, 4) and x.dtype == np.float32 and len(x) == 8 and x.ndim == 2 and x.size == 32
    np.testing.assert_array_equal(np.asarray(x), X)
    np.testing.assert_array_equal(np.asarray(x, dtype=np.float64), X)
    assert x.block_until_ready().is_ready()
    assert repr(place(np.array([1.0, 2.0]).reshape(2, 1) * np.ones((1, 2)))).startswith("Array([[1., 1.]")
    small: Any = pw.program(lambda v: v + 1)
    assert float(small(1.5)) == 2.5 and int(small(2)) == 3 and bool(small(0))
    np.testing.assert_array_equal(x.to_jax(), X)


def test_repr_does_not_wait_for_the_value() -> None:
    class Running:
        def is_ready(self) -> bool:
            return False

    x = place(X)
    assert str(x) == str(X) and f"{x}" == str(X)
    x.handle.buffer.array = Running()
    assert repr([x]) == "[<pw.Array float32[8, 4], running>]"
    wide: Any = pw.program(lambda: jnp.zeros((1 << 20,)))().block_until_ready()
    assert repr(wide) == str(wide) == "<pw.Array float32[1048576]>"
    with pytest.raises(TypeError, match="format"):
        format(place(X), ".2f")


def test_the_sharding_names_the_users_virtual_devices() -> None:
    sharding = place(X).sharding
    assert sharding.spec == P("b", "a")
    assert list(sharding.mesh.devices.flat) == SLICE.devices


def test_an_array_is_a_pytree_leaf_and_awaitable() -> None:
    x = place(X)
    assert jax.tree.leaves({"x": x}) == [x]

    async def wait() -> Any:
        return await x

    assert asyncio.run(wait()) is x


def test_dropping_the_last_handle_frees_the_buffer() -> None:
    gc.collect()
    before = len(process().store.buffers)
    x = place(X)
    there = x.sharding
    y = pw.program(lambda v: (jax.device_put(v, there),) * 2)(x)
    assert len(process().store.buffers) == before + 1  # both results are the argument's buffer
    del x
    assert np.asarray(y[1]).sum() == X.sum()
    del y
    gc.collect()
    assert len(process().store.buffers) == before


def test_a_compiled_program_refuses_wrong_arguments() -> None:
    compiled = place.lower(X).compile()
    for bad, code in ((X[:4], "PWC0501"), (X.astype(np.int32), "PWC0501"), ([X, X], "PWC0502"), ("text", "PWC0501")):
        with pytest.raises(pw.PathwaysError) as caught:
            compiled(bad)
        assert caught.value.code == code
        assert caught.value.diagnostic.where is not None and "test_arrays" in caught.value.diagnostic.where.file


def test_a_saved_plan_loads_and_keeps_its_pytree_structures(tmp_path: Any) -> None:
    import optax

    params = {"w": jnp.ones((8, 4)), "b": None}
    state = optax.sgd(0.1, momentum=0.9).init(params)  # pyright: ignore
    program = pw.program(lambda p, s: (jax.tree.map(lambda v: v + 1, p), s))
    path = tmp_path / "plan.bin"
    program.lower(params, state).compile().save(path)
    loaded = pw.load(path)
    result, kept = loaded(params, state)
    assert jax.tree.structure(kept) == jax.tree.structure(state) and result["b"] is None
    np.testing.assert_array_equal(np.asarray(result["w"]), 2 * np.ones((8, 4)))


def test_a_failed_computation_fails_only_the_results_that_depend_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = pw.make_virtual_device_set().add_slice(devices=2).mesh("x")
    jit: Any = jax.jit

    def good(x: Any) -> Any:
        return x + 1

    def bad(x: Any) -> Any:
        return x * 3

    calls = [jit(f, in_shardings=NamedSharding(mesh, P("x"))) for f in (good, bad)]
    program = pw.program(lambda x: (calls[0](x), calls[1](x), calls[0](calls[1](x)) - 5))
    compiled = program.lower(X).compile(merge=False)
    from pathways.runtime.host.devices import executable_cache

    class Broken:
        def execute_sharded(self, *_: Any, **__: Any) -> Any:
            raise jax.errors.JaxRuntimeError("INTERNAL: injected")  # pyright: ignore

    original = executable_cache.Executables.load
    symbols = {module: c.name for c in compiled.plan.computations for module in (c.module, c.local)}

    def load(self: Any, module: Any, devices: Any, callbacks: Any = ()) -> Any:
        return Broken() if symbols.get(module) == "bad" else original(self, module, devices, callbacks)

    monkeypatch.setattr(executable_cache.Executables, "load", load)
    broken = pw.Compiled(compiled.plan)
    first, second, third = broken(X)
    np.testing.assert_array_equal(np.asarray(first), X + 1)
    for array in (second, third):
        with pytest.raises(pw.PathwaysError) as caught:
            np.asarray(array)
        assert (
            caught.value.code == "PWC0504" and "bad failed on" in str(caught.value) and "injected" in str(caught.value)
        )
        assert caught.value.diagnostic.where is not None and "test_arrays" in caught.value.diagnostic.where.file
        assert repr(array) == f"<pw.Array float32{list(array.shape)}, failed: PWC0504>"
    monkeypatch.undo()
    np.testing.assert_array_equal(np.asarray(compiled(X)[1]), 3 * X)
