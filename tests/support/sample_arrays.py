"""Arrays of pathways and equal ones of JAX, and what compares their uses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

SLICE = pw.make_virtual_device_set().add_slice(devices=2)
MESH = SLICE.mesh("x")
SHARDING = NamedSharding(MESH, P("x"))
jit: Any = jax.jit
lax: Any = jax.lax
random: Any = jax.random
on_two: Any = jit(lambda x: x + 1, in_shardings=SHARDING, out_shardings=SHARDING)


@pw.program
def step(x: Any) -> Any:
    return on_two(x), on_two(x).astype(jnp.int32), on_two(x).sum(), random.key(0), x[0] * 0 + 1.5


X = np.arange(4, dtype=np.float32)
FLOATS, INTS, TOTAL, KEY, SCALAR = step(X)
LOCAL_SHARDING = jax.sharding.SingleDeviceSharding(jax.devices()[0])
LOCAL_MESH = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("q",))
JF, JI = jnp.asarray(X + 1), jnp.asarray(X + 1, jnp.int32)


def code_of_use(function: Callable[..., Any], *arguments: Any) -> str:
    """Returns the code of the error that a call raises; the error must point into the test or this file."""
    with pytest.raises(pw.PathwaysError) as caught:
        function(*arguments)
    where = caught.value.diagnostic.where
    assert where is not None and Path(where.file).name.startswith(("test_array", "sample_arrays"))
    return caught.value.code


def assert_same(ours: Any, plain: Any) -> None:
    """Asserts equal values, types, weak types and pytree structures: where JAX gives a jax.Array, so does `ours`."""
    assert jax.tree.structure(ours) == jax.tree.structure(plain)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        assert type(a) is type(b)
        if hasattr(b, "dtype") and jnp.issubdtype(b.dtype, jax.dtypes.prng_key):
            a, b = random.key_data(a), random.key_data(b)
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
        assert getattr(a, "dtype", None) == getattr(b, "dtype", None)
        assert getattr(a, "weak_type", None) == getattr(b, "weak_type", None)
