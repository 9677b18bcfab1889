"""Tests how parameters are split over the model axis: through moves of dimensions, nested functions and loops."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pathways.compiler.frontends.jax import compat
from pathways.compiler.search.split_parameters import Split, split_parameters

any_jax: Any = jax


def shape(*sizes: int) -> Any:
    return jax.ShapeDtypeStruct(sizes, np.float32)


def traced(function: Callable[..., Any], *sizes: tuple[int, ...]) -> Any:
    """Traces a function of (batch, parameters ...) of these shapes."""
    return any_jax.make_jaxpr(function)(*(shape(*s) for s in sizes))


def split(function: Callable[..., Any], *sizes: tuple[int, ...], model: int = 2, **options: Any) -> Split:
    """Splits the parameters; argument 0 is the batch."""
    return split_parameters(traced(function, *sizes), frozenset({0}), model, **options)


def named(jaxpr: Any, found: Split) -> dict[str, tuple[bool, float]]:
    """For each equation by the name of its operation: whether its result is split, and the bytes it adds up."""
    return {
        eqn.primitive.name: (id(eqn) in found.divided, found.reduced.get(id(eqn), 0.0))
        for eqn in compat.body_of(jaxpr).eqns
    }


MOVES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], dict[int, int]]] = {
    "as it is": (lambda x, w: x @ w, ((3, 4), (4, 6)), {1: 1}),
    "on the left": (lambda x, w: w @ x, ((4, 3), (6, 4)), {1: 0}),
    "transposed": (lambda x, w: x @ w.T, ((3, 6), (4, 6)), {1: 0}),
    "one of three transposed": (lambda x, w: x @ w.transpose(1, 2, 0)[0], ((3, 8), (6, 1, 8)), {1: 0}),
    "squeezed": (lambda x, w: x @ jnp.squeeze(w, 0), ((3, 4), (1, 4, 6)), {1: 2}),
    "squeezed from behind": (lambda x, w: x @ jax.lax.squeeze(w, [-1]), ((3, 4), (4, 6, 1)), {1: 1}),
    "one layer of a stack": (lambda x, w: x @ jax.lax.squeeze(w[1:2], [0]), ((3, 4), (2, 4, 6)), {1: 2}),
    "rows cut off": (lambda x, w: x @ w[:3], ((5, 3), (4, 6)), {1: 1}),
    "columns cut off": (lambda x, w: x @ w[:, :4], ((5, 4), (4, 6)), {}),
    "scaled": (lambda x, w: x @ (w * 0.5), ((3, 1), (1, 2)), {1: 1}),
    "divided": (lambda x, w: x @ (w / 3.0), ((3, 4), (4, 6)), {1: 1}),
    "scaled by an array": (lambda x, w: x @ (w * np.ones((4, 6), np.float32)), ((3, 4), (4, 6)), {}),
    "squared": (lambda x, w: x @ (w * w), ((3, 4), (4, 6)), {}),
    "rows picked": (lambda x, w: x @ w[jnp.array([0, 2])], ((3, 2), (4, 6)), {}),
    "reshaped": (lambda x, w: x @ w.reshape(4, 6), ((3, 4), (6, 4)), {}),
    "of other precision": (lambda x, w: x.astype("bfloat16") @ w.astype("bfloat16"), ((3, 4), (4, 6)), {1: 1}),
    "without a gradient": (lambda x, w: x @ jax.lax.stop_gradient(w), ((3, 4), (4, 6)), {1: 1}),
    "an odd number of columns": (lambda x, w: x @ w, ((3, 4), (4, 5)), {}),
    "the first dimension that divides": (lambda x, w: jnp.tensordot(x, w, 1), ((2, 5), (5, 3, 4)), {1: 2}),
    "the first of two": (lambda x, w: jnp.tensordot(x, w, 1), ((2, 5), (5, 6, 4)), {1: 1}),
    "batched": (lambda x, w: jnp.einsum("bij,bjk->bik", x, w), ((2, 3, 4), (2, 4, 6)), {1: 2}),
    "a vector": (lambda x, w: x @ w, ((3, 4), (4,)), {}),
    "two parameters": (lambda x, a, b: x.sum() + (a @ b), ((3, 4), (4, 6), (6, 2)), {}),
    "in a function": (lambda x, w: jax.jit(lambda a, b: a @ b.T)(x, w), ((3, 6), (4, 6)), {1: 0}),
    "in a checkpoint": (lambda x, w: jax.checkpoint(lambda a, b: a @ b)(x, w), ((3, 4), (4, 6)), {1: 1}),
}
"""For each name: a function, the shapes of the batch and of parameters, and the dimension that is split of each."""


@pytest.mark.parametrize("name", MOVES)
def test_a_product_splits_the_dimension_of_the_parameter_that_it_makes(name: str) -> None:
    function, sizes, dims = MOVES[name]
    assert split(function, *sizes).dims == dims


def test_only_dimensions_that_all_devices_divide_are_split() -> None:
    for model, dims in ((2, {1: 1}), (3, {1: 1}), (4, {}), (6, {1: 1}), (12, {})):
        assert split(lambda x, w: x @ w, (3, 4), (4, 6), model=model).dims == dims


def test_results_stay_split_until_a_product_adds_them_up() -> None:
    jaxpr = traced(lambda x, a, b: jnp.cos(jnp.tanh(x @ a) @ b), (3, 4), (4, 6), (6, 8))
    found = split_parameters(jaxpr, frozenset({0}), 2)
    first, tanh, second, cos = compat.body_of(jaxpr).eqns
    assert found.dims == {1: 1, 2: 0} and found.model == 2
    assert found.divided == {id(first), id(tanh)} and found.reduced == {id(second): 3 * 8 * 4}
    assert id(cos) not in found.divided


def test_what_is_computed_from_a_split_value_and_a_whole_one_is_split() -> None:
    jaxpr = traced(lambda x, y, a: (y + x @ a, y * 2.0), (3, 4), (3, 6), (4, 6))
    found = split_parameters(jaxpr, frozenset({0, 1}), 2)
    assert named(jaxpr, found) == {"dot_general": (True, 0), "add": (True, 0), "mul": (False, 0)}


def test_a_product_of_activations_passes_the_split_on() -> None:
    jaxpr = traced(lambda x, a: jnp.sin((x @ a) @ (x @ a).T), (3, 4), (4, 6))
    found = split_parameters(jaxpr, frozenset({0}), 2)
    assert named(jaxpr, found)["sin"] == (True, 0) and not found.reduced
    jaxpr = traced(lambda x, a: jnp.sin((x @ a).T @ x), (3, 4), (4, 6))
    assert named(jaxpr, split_parameters(jaxpr, frozenset({0}), 2))["sin"] == (True, 0)
    jaxpr = traced(lambda x, a: jnp.sin(x @ x.T) + (x @ a).sum(), (3, 4), (4, 6))
    assert named(jaxpr, split_parameters(jaxpr, frozenset({0}), 2))["sin"] == (False, 0)


def test_the_first_product_with_a_shared_parameter_decides_its_dimension() -> None:
    """As in a model whose embedding is its last layer, too: the second product sums over the split dimension."""
    jaxpr = traced(lambda x, w: (x @ w) @ w.T, (3, 4), (4, 6))
    found = split_parameters(jaxpr, frozenset({0}), 2)
    assert found.dims == {1: 1} and list(found.reduced.values()) == [3 * 4 * 4]


def test_users_specs_decide_which_products_are_added_up() -> None:
    for asked, reduced in ((0, [3 * 6 * 4]), (1, []), (None, [])):
        found = split(lambda x, w: x @ w, (3, 4), (4, 6), ask={1: asked}.get)
        assert found.dims == ({} if asked is None else {1: asked}) and list(found.reduced.values()) == reduced
        assert len(found.divided) == (asked == 1)


def test_a_loop_adds_up_as_often_as_it_runs() -> None:
    """The parameters are constants of the loop, its rows are stacked."""

    def looped(rows: Any, a: Any, b: Any) -> Any:
        def turn(total: Any, x: Any) -> Any:
            return total + (jnp.tanh(x @ a) @ b).sum(), None

        return jax.lax.scan(turn, 0.0, rows)[0]

    jaxpr = traced(looped, (5, 3, 4), (4, 6), (6, 8))
    found = split_parameters(jaxpr, frozenset({0}), 2)
    (loop,) = (e for e in compat.body_of(jaxpr).eqns if e.primitive.name == "scan")
    assert found.dims == {1: 1, 2: 0} and found.reduced[id(loop)] == 5 * 3 * 8 * 4
    assert sorted(found.reduced.values()) == [3 * 8 * 4, 5 * 3 * 8 * 4]


def test_a_loop_passes_on_which_results_are_split() -> None:
    def looped(rows: Any, a: Any, b: Any) -> Any:
        whole, parts = jax.lax.scan(lambda c, x: (c + 1.0, x @ a), 0.0, rows)
        return jnp.cos(whole), parts @ b

    jaxpr = traced(looped, (5, 3, 4), (4, 6), (6, 8))
    found = split_parameters(jaxpr, frozenset({0}), 2)
    assert found.dims == {1: 1, 2: 0} and list(found.reduced.values()) == [5 * 3 * 8 * 4]
    assert named(jaxpr, found) == {"scan": (True, 0), "cos": (False, 0), "dot_general": (False, 5 * 3 * 8 * 4)}


def test_a_value_that_a_loop_carries_stays_split() -> None:
    def looped(x: Any, a: Any, b: Any) -> Any:
        return jax.lax.scan(lambda c, w: (jnp.sin(c), (c @ w).sum()), x @ a, b)

    found = split(looped, (3, 4), (4, 6), (5, 6, 8))
    assert found.dims == {1: 1, 2: 1}  # rows of each layer: dimension 1 of the stack
    assert sorted(found.reduced.values()) == [3 * 8 * 4, 5 * 3 * 8 * 4]


def test_functions_with_rules_of_their_own_are_looked_into() -> None:
    @jax.custom_vjp
    def product(x: Any, w: Any) -> Any:
        return x @ w

    product.defvjp(lambda x, w: (product(x, w), (x, w)), lambda kept, g: (g @ kept[1].T, kept[0].T @ g))
    jaxpr = traced(lambda x, a, b: jax.nn.relu(product(x, a)) @ b, (3, 4), (4, 6), (6, 8))
    found = split_parameters(jaxpr, frozenset({0}), 2)
    assert found.dims == {1: 1, 2: 0} and list(found.reduced.values()) == [3 * 8 * 4]


def test_the_batch_may_be_any_argument() -> None:
    jaxpr = traced(lambda w, x: x @ w.T, (4, 6), (3, 6))
    assert split_parameters(jaxpr, frozenset({1}), 2).dims == {0: 0}


def test_a_product_with_a_vector_adds_nothing_up() -> None:
    found = split(lambda x, a, v: (x @ a) @ v, (3, 4), (4, 6), (6,))
    assert found.dims == {1: 1} and not found.reduced
