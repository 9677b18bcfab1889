"""Tests what a search knows of a loss: its arrays, their names and types, and its batch with any number of rows."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from pathways.compiler.search.subject import SearchedLoss

any_jax: Any = jax


def shape(*sizes: int, dtype: Any = np.float32) -> Any:
    return jax.ShapeDtypeStruct(sizes, dtype)


PARAMS = {"bias": np.ones(3), "scale": shape(), "weight": shape(4, 3)}
BATCH = {"name": "text", "tokens": shape(6, 5, dtype=np.int32), "weights": shape(6)}


def subject(*arguments: Any, batch: tuple[int, ...] = (1,), loss: Any = None) -> SearchedLoss:
    return SearchedLoss("f", loss or (lambda *_: 0.0), arguments, batch)


def test_arrays_are_leaves_with_a_shape_and_a_type() -> None:
    """A text and a number are part of the code; an argument that is an array has no name inside of it."""
    found = subject(PARAMS, BATCH, 3, "mode", shape(2))
    assert found.names == ["['bias']", "['scale']", "['weight']", "['tokens']", "['weights']", ""]
    assert [a.shape for a in found.avals] == [(3,), (), (4, 3), (6, 5), (6,), (2,)]
    assert found.data == {3, 4} and found.parameters == [0, 1, 2, 5]
    assert found.parameter_count == 3 + 1 + 12 + 2 and found.parameter_bytes == 4 * found.parameter_count


def test_arrays_of_64_bits_have_the_types_of_this_process() -> None:
    assert [a.dtype for a in subject(np.ones(3), shape(2, dtype=np.int64)).avals] == [np.float32, np.int32]


@pytest.mark.parametrize(("argnums", "data"), [((1,), {1}), ((-1,), {2}), ((-3,), {0}), ((0, -1), {0, 2})])
def test_batches_may_be_counted_from_the_last_argument(argnums: tuple[int, ...], data: set[int]) -> None:
    assert subject(shape(1), shape(2), shape(3), batch=argnums).data == data


def test_the_rows_of_a_batch_are_those_of_its_first_leaf_with_a_shape() -> None:
    assert subject(PARAMS, BATCH).rows == 6
    assert subject(PARAMS, [shape(), shape(7, 2), shape(14)]).rows == 7
    assert subject(PARAMS, shape()).rows == 0 and subject(PARAMS, ()).rows == 0


def test_types_of_a_batch_scale_with_its_rows() -> None:
    """A leaf with two entries a row keeps two; parameters and scalars are as they are."""
    found = subject(shape(6), [shape(6, 5), shape(12), shape()])
    for rows in (1, 6, 9):
        assert [a.shape for a in found.types_at(rows)] == [(6,), (rows, 5), (2 * rows,), ()]
        (weight, (first, second, scalar)) = found.arguments_at(rows)
        assert (weight.shape, first.shape, second.shape, scalar.shape) == ((6,), (rows, 5), (2 * rows,), ())
    assert [a.shape for a in subject(shape(6), shape()).types_at(4)] == [(6,), ()]
    mixed = subject(shape(6), {"kind": "mean", "x": shape(6)}).arguments_at(2)
    assert mixed[1]["kind"] == "mean" and mixed[1]["x"].shape == (2,)
    assert found.types_at(3)[1].dtype == np.float32


def test_gradients_are_taken_of_arguments_with_floating_point_numbers_alone() -> None:
    integers = shape(2, dtype=np.int32)
    assert subject(PARAMS, BATCH).floating_argnums == (0,)
    assert subject(integers, BATCH, PARAMS, [shape(2), integers], shape(1)).floating_argnums == (2, 4)
    assert subject(BATCH, PARAMS, shape(6), batch=(0, -1)).floating_argnums == (1,)
    assert subject(PARAMS, shape(6), shape(2)).floating_argnums == (0, 2)


@pytest.mark.parametrize(
    ("leaves", "tokens"),
    [
        ((), 0),
        ((shape(6, 5),), 0),
        ((shape(6, dtype=np.int32),), 0),
        ((shape(6, 5, dtype=np.int32),), 50),
        ((shape(6, 5, dtype=np.int32), shape(6, 2, 4, dtype=np.uint8), shape(6, dtype=np.int32)), 80),
    ],
)
def test_tokens_are_the_whole_numbers_of_the_largest_leaf_of_a_batch(leaves: tuple[Any, ...], tokens: int) -> None:
    assert subject(shape(9, 99, dtype=np.int32), leaves).tokens(10) == tokens


@pytest.mark.parametrize(
    ("specs", "dims"),
    [
        (None, {}),
        ({r"weight": P(None, "model")}, {3: 1}),
        ({r"weight": P("model", None)}, {3: 0}),
        ({r"weight": P(None, ("data", "model"))}, {3: 1}),
        ({r"weight": P("data", None)}, {}),
        ({"bias": P("model"), "scale": P(), "weight": P(None, "model")}, {1: 0, 3: 1}),
    ],
)
def test_users_specs_say_which_dimension_of_a_parameter_is_split(specs: Any, dims: dict[int, int]) -> None:
    """A tree of specs fits an argument that is not the first one, too."""
    found = subject(BATCH["weights"], PARAMS, batch=(0,))
    ask = found.ask(specs)
    assert {i: d for i in found.parameters if (d := ask(i)) is not None} == dims


def test_specs_may_be_a_tree_like_one_argument() -> None:
    found = subject(BATCH, [shape(4), shape(4, 3)], 3, shape(2, 2), batch=(0,))
    for specs, dims in (([P("model"), P(None, "model")], {2: 0, 3: 1}), (P(None, "model"), {4: 1})):
        ask = found.ask(specs)
        assert {i: d for i in found.parameters if (d := ask(i)) is not None} == dims


def test_a_loss_is_traced_with_its_axes_and_what_is_no_array() -> None:
    def loss(params: Any, rows: Any, kind: str) -> Any:
        rows = any_jax.lax.with_sharding_constraint(rows, P("data", "model"))
        made = rows @ params
        return {"value": made.sum() if kind == "sum" else made.mean(), "rows": made}

    found = subject(shape(4, 3), shape(6, 4), "sum", loss=loss)
    for rows in (2, 6):
        jaxpr = found.jaxpr_at(rows)
        assert [v.aval.shape for v in jaxpr.jaxpr.invars] == [(4, 3), (rows, 4)]
        assert [v.aval.shape for v in jaxpr.jaxpr.outvars] == [(rows, 3), ()]
        assert "reduce_sum" in str(jaxpr) and "div" not in str(jaxpr)


def test_arrays_of_this_process_count_as_their_types() -> None:
    found = subject(jnp.ones((2, 3), jnp.bfloat16), [1.5, np.float32(2), shape(4)])
    assert [(a.shape, a.dtype.name) for a in found.avals] == [((2, 3), "bfloat16"), ((), "float32"), ((4,), "float32")]
    assert found.parameter_bytes == 12 and found.rows == 4
