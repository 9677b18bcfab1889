"""Programs for one example and for several are compared number by number."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pathways.compiler.frontends.jax.pipeline.mixing.analyze import Traces
from pathways.compiler.frontends.jax.pipeline.mixing.same_program import compared, grow_alike
from pathways.dialect.jax_api import make_jaxpr


def traces(loss: Callable[[Any], Any], whole: int, part: int) -> Traces:
    of_whole, of_part = (make_jaxpr(loss)(jax.ShapeDtypeStruct((rows,), "float32")) for rows in (whole, part))
    return Traces(of_whole, of_part, frozenset({0}), whole // part)


def test_a_number_is_found_behind_a_constant_that_repeats_a_number_only_in_small_batches() -> None:
    def loss(x: Any) -> Any:
        weights = np.where(np.arange(x.shape[0]) < 8, 1, 2).astype(np.float32)
        return (x * weights).sum() / max(1, x.shape[0] // 2)

    numbers = compared(traces(loss, 16, 2), traces(loss, 8, 1))
    assert numbers is not None
    assert [number for number in numbers if not grow_alike(*number)] == [((8.0, 4.0), (1.0, 1.0))]


def test_a_program_that_runs_other_operations_for_one_example_has_no_numbers_to_compare() -> None:
    def loss(x: Any) -> Any:
        return jnp.tanh(x).sum() if x.shape[0] == 1 else x.sum()

    assert compared(traces(loss, 16, 2), traces(loss, 8, 1)) is None
