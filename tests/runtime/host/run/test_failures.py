"""Tests the errors of failed computations."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.dialect.diagnostics import Exit, PathwaysError, Where
from pathways.runtime.errors import ComputationFailed
from pathways.runtime.host.run.failures import failure_of, text_of, why_failed, why_not
from pathways.runtime.host.run.poison import Poison
from pathways.runtime.wire.errors import HostLost

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


LINE = Where("model.py", 7, "")
ORIGIN = ("step", "island0", LINE)


class Result:
    """A result that fails with `error`, if there is one; a later run may have overwritten it."""

    def __init__(self, error: Exception | None, *, is_overwritten: bool = False) -> None:
        self.error = error
        self.is_deleted = lambda: is_overwritten

    def block_until_ready(self) -> None:
        if self.error is not None:
            raise self.error


def test_a_collective_without_its_partner_says_that_a_host_is_lost() -> None:
    cause = "external/gloo/gloo/transport/tcp/pair.cc:547 Connection closed by peer"
    found = failure_of("step", "island0", cause, LINE)
    assert isinstance(found, HostLost) and found.island == "island0" and found.where == LINE
    assert "step" in found.reason and found.reason.endswith(cause)


def test_a_result_that_is_there_has_no_reason_to_be_missing() -> None:
    assert why_failed(Result(None), ORIGIN) is None
    assert why_failed(Result(RuntimeError("deleted"), is_overwritten=True), ORIGIN) is None


def test_a_missing_result_names_its_computation_or_the_first_cause() -> None:
    found = why_failed(Result(RuntimeError("the reason")), ORIGIN)
    assert found is not None and found.where == LINE and found.code == "PWC0504"
    said = str(PathwaysError(found))
    assert "step failed on island0" in said and "the reason" in said
    first = ComputationFailed(computation="f", island="island1", cause="before")
    assert why_failed(Poison(first), ORIGIN) is first


def test_an_error_without_text_is_named_by_its_class() -> None:
    assert text_of(ValueError("two")) == "two" and text_of(ValueError()) == "ValueError"


def test_a_request_fails_with_the_diagnostic_of_its_error_or_with_its_text() -> None:
    given = ComputationFailed(computation="f", island="island1", cause="before")
    assert why_not("a load", "island0", PathwaysError(given)) is given
    said = str(PathwaysError(why_not("a load", "island0", KeyError())))
    assert "a load failed on island0" in said and "KeyError" in said
