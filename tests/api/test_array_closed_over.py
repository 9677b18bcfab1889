"""Tests programs that close over a `pw.Array`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.sample_arrays import FLOATS, SHARDING, X, on_two

import pathways as pw

jit: Any = jax.jit
lax: Any = jax.lax


CLOSED_OVER: dict[str, Callable[[Any, Any], Any]] = {
    "x + y": lambda x, y: x + y,
    "y + x": lambda x, y: y + x,
    "jnp.add": lambda x, y: jnp.add(x, y),
    "lax.add": lambda x, y: lax.add(x, y),
    "a placed call": lambda x, y: (x, on_two(y)),
    "jit": lambda x, y: jit(lambda a, b: a + b)(x, y),
    "a result": lambda x, y: (x, y),
    "device_put": lambda x, y: (x, jax.device_put(y, SHARDING)),
    "scan": lambda x, y: lax.scan(lambda c, v: (c + v, None), x[0], y),
    "indexing": lambda x, y: x * y[0],
}


@pytest.mark.parametrize("name", CLOSED_OVER)
def test_a_program_closes_over_a_pw_array_as_over_a_constant(name: str) -> None:
    function = CLOSED_OVER[name]
    closing = pw.program(lambda x: function(x, FLOATS))(X)
    given = pw.program(function)(X, FLOATS)
    for ours, expected in zip(jax.tree.leaves(closing), jax.tree.leaves(given), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(expected))


def test_a_program_closes_over_typed_keys_and_arrays_in_pieces() -> None:
    key = pw.program(lambda s: jax.random.key(s))(3)
    drawn = pw.program(lambda x: x + jax.random.normal(key, x.shape))(X)
    np.testing.assert_allclose(np.asarray(drawn), X + jax.random.normal(jax.random.key(3), X.shape), rtol=1e-6)
