"""Tests that calls inside a computation are replaced by the bodies of the called functions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pathways.compiler.computations.inline import inlined
from pathways.dialect.mlir import make_context, parse, text
from pathways.runtime.host.devices.pjrt import compile_module

jit: Any = jax.jit
X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


@jit
def squares(x: Any) -> Any:
    return jnp.sum(x * x, axis=1)


@jit
def twice(x: Any) -> Any:
    return squares(x) + squares(2 * x)


def looped(x: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda i, y: y + twice(x) * i, twice(x))


def branched(x: Any) -> Any:
    return jax.lax.cond(x[0, 0] > 0, lambda: twice(x), lambda: squares(x).at[0].add(1))


def captured(x: Any) -> Any:
    """Calls a function whose branches read a value from outside of them."""
    return jit(branched)(2 * x)


def several(x: Any) -> Any:
    return jnp.take(x, jnp.array([1, 0]), axis=0), jax.grad(lambda x: twice(x).sum())(x)


def run(module: str) -> list[Any]:
    out = compile_module(module, jax.devices()[:1]).execute_sharded([jax.device_put(X)])
    return [np.asarray(shards[0]) for shards in out.disassemble_into_single_device_arrays()]


@pytest.mark.parametrize("function", [twice, looped, branched, captured, several])
def test_an_inlined_module_has_no_calls_and_gives_equal_results(function: Any) -> None:
    lowered = jit(function).lower(X)
    before = lowered.as_text()
    assert " call @" in before
    context = make_context()
    module = inlined(parse(before, context).operation)
    found = text(module)
    assert " call @" not in found and "func.call" not in found and found.count("func.func") == 1
    expected = jax.tree.leaves(jit(function)(X))
    for ours, plain in zip(run(found), expected, strict=True):
        np.testing.assert_allclose(ours, np.asarray(plain), rtol=1e-6)
