"""Tests the errors of failed computations."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.dialect.diagnostics import Exit
from pathways.runtime.host.run.failures import failure_of

jit: Any = jax.jit


@pytest.mark.parametrize(
    ("cause", "code", "exit_code"),
    [
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 96.00GiB", "PWC0937", Exit.CAPACITY),
        ("JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory", "PWC0937", Exit.CAPACITY),
        ("INTERNAL: of a library: RESOURCE_EXHAUSTED", "PWC0504", Exit.FAILED),
        ("ValueError: RESOURCE_EXHAUSTED", "PWC0504", Exit.FAILED),
    ],
)
def test_out_of_memory_is_distinguished_from_other_failures(cause: str, code: str, exit_code: Exit) -> None:
    said = failure_of("step", "island0", cause, None)
    assert said.code == code and said.exit is exit_code and cause in said.text(said.have)


def test_an_execution_out_of_memory_is_reported_and_later_runs_work() -> None:
    """XLA allocates temporaries when an execution starts. Without a memory limit, no earlier check refuses them."""
    where = NamedSharding(pw.make_virtual_device_set().add_slice(devices=1).mesh("x"), P())

    def huge(x: Any) -> Any:
        return jnp.sort(jnp.broadcast_to(x, (1 << 24, 1 << 22)) + jnp.arange(1 << 22), axis=0)[0, 0]

    def small(x: Any) -> Any:
        return x + 1

    f, g = jit(huge, in_shardings=where), jit(small, in_shardings=where)
    x = np.float32(1)
    with pytest.raises(pw.PathwaysError, match=r"huge.* ran out of memory on ") as caught:
        float(pw.program(lambda x: g(f(x)))(x))
    assert caught.value.code == "PWC0937" and "RESOURCE_EXHAUSTED" in str(caught.value)
    assert float(pw.program(lambda x: g(x))(x)) == 2
