"""Tests that constants which the analysis computes are those of JAX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from pathways.compiler.frontends.jax.pipeline.mixing.known import computed

_jax: Any = jax
_lax: Any = lax
LINE = np.arange(24, dtype=np.float32).reshape(4, 6)
SAME = np.broadcast_to(np.float32(2), (4, 6))
OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "slice": lambda x: _lax.slice(x, (1, 2), (3, 5)),
    "strides": lambda x: _lax.slice(x, (0, 1), (4, 6), (3, 2)),
    "reshape": lambda x: _lax.reshape(x, (3, 8)),
    "transpose": lambda x: _lax.transpose(x, (1, 0)),
    "rev": lambda x: _lax.rev(x, (1,)),
    "sum": lambda x: _lax.reduce_sum(x, (0,)),
    "max": lambda x: _lax.reduce_max(x, (1,)),
    "cumsum": lambda x: _lax.cumsum(x, axis=1),
    "broadcast": lambda x: _lax.broadcast_in_dim(x, (2, 4, 6), (1, 2)),
    "concatenate": lambda x: _lax.concatenate([x, x], 1),
    "select": lambda x: _lax.select(x > 5, x, -x),
    "power": lambda x: _lax.integer_pow(x, 3),
    "convert": lambda x: _lax.convert_element_type(x, jnp.int32),
}


@pytest.mark.parametrize("array", [LINE, SAME], ids=["different", "one number"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_on_constants_gives_what_jax_gives(name: str, array: Any) -> None:
    known: dict[Any, Any] = {}
    jaxpr = _jax.make_jaxpr(OPERATIONS[name])(array).jaxpr
    known[jaxpr.invars[0]] = array
    for eqn in jaxpr.eqns:
        values = [np.asarray(a.val, a.aval.dtype) if hasattr(a, "val") else known[a] for a in eqn.invars]
        made = computed(eqn, values)
        assert made is not None, eqn
        known.update(zip(eqn.outvars, made, strict=True))
    found = known[jaxpr.outvars[0]]
    want = np.asarray(OPERATIONS[name](jnp.asarray(array)))
    assert found.dtype == want.dtype
    np.testing.assert_array_equal(found, want)
