"""Tests the spine of a loss: which operations a cut falls between, and the sums that a cut needs at each place."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from pathways.compiler.frontends.jax.pipeline.open import open_loss
from pathways.compiler.frontends.jax.pipeline.spine import Spine, spine_of

_jax: Any = jax
_lax: Any = lax
WIDTH, ROWS = 8, 4
X = jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32)
W = jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32)
ACTIVATION, WEIGHT = 4 * ROWS * WIDTH, 4 * WIDTH * WIDTH
PRODUCT, EACH = 2 * ROWS * WIDTH * WIDTH, ROWS * WIDTH


def spine(loss: Any, *args: Any, data: Sequence[int] = (1,), stages: int = 2) -> Spine:
    return spine_of(open_loss(_jax.make_jaxpr(loss)(*args), frozenset(data), stages))


def names(found: Spine) -> list[str]:
    return [o.name for o in found.operations]


def steps(sums: Any) -> list[float]:
    """Returns the summands of running sums that start at 0."""
    assert sums[0] == 0
    return [float(b - a) for a, b in pairwise(sums)]


def dot(x: Any, w: Any) -> Any:
    return _lax.dot(x, w)


def test_the_sums_of_a_chain_are_those_of_its_operations() -> None:
    def loss(w: Any, x: Any) -> Any:
        return _lax.tanh(dot(_lax.tanh(dot(x, w)), w))

    found = spine(loss, W, X)
    assert names(found) == ["dot_general", "tanh", "dot_general", "tanh"]
    assert len(found) == 4
    assert steps(found.flops) == [PRODUCT, EACH, PRODUCT, EACH]
    assert list(found.crossing) == [0, ACTIVATION, ACTIVATION, ACTIVATION, 0]
    assert steps(found.parameters) == [WEIGHT, 0, WEIGHT, 0], "a tied weight is at its first and its last user"
    assert steps(found.kept) == [ACTIVATION, ACTIVATION, 0, ACTIVATION], "the second product keeps what tanh keeps"
    assert found.tokens == [0, 1, 0, 1]


def test_a_weight_that_is_used_three_times_counts_at_its_first_and_last_use() -> None:
    def loss(w: Any, x: Any) -> Any:
        return dot(dot(dot(x, w), w), w)

    assert steps(spine(loss, W, X).parameters) == [WEIGHT, 0, WEIGHT]
    assert steps(spine(lambda w, x: dot(dot(x, w[0]), w[1]), (W, W), X, data=[2]).parameters) == [WEIGHT, WEIGHT]


def test_a_value_crosses_every_place_up_to_its_last_reader() -> None:
    def loss(w: Any, x: Any) -> Any:
        first = dot(x, w)
        return _lax.add(_lax.tanh(_lax.tanh(first)), first)

    assert list(spine(loss, W, X).crossing) == [0, ACTIVATION, 2 * ACTIVATION, 2 * ACTIVATION, 0]


def test_work_on_parameters_alone_is_added_to_its_first_user() -> None:
    def loss(w: Any, x: Any) -> Any:
        narrow = _lax.tanh(w)
        return dot(dot(_lax.tanh(dot(x, w)), narrow), narrow)

    found = spine(loss, W, X)
    assert names(found) == ["dot_general", "tanh", "dot_general", "dot_general"]
    assert steps(found.flops) == [PRODUCT, EACH, PRODUCT + WIDTH * WIDTH, PRODUCT]
    (beside,) = found.users
    assert (beside.name, found.users[beside]) == ("tanh", {2, 3})
    assert [found.positions[o] for o in found.operations] == [0, 1, 2, 3]


def test_an_operation_beside_the_spine_that_nothing_uses_adds_no_work() -> None:
    def loss(w: Any, x: Any) -> Any:
        return dot(x, w), _lax.tanh(w)

    found = spine(loss, W, X)
    assert names(found) == ["dot_general"] and steps(found.flops) == [PRODUCT]
    assert list(found.users.values()) == [frozenset()]


def test_a_cast_of_a_stack_is_work_of_each_turn() -> None:
    def loss(w: Any, x: Any) -> Any:
        return _lax.scan(lambda x, w: (dot(x, w), None), x, _lax.tanh(w))[0]

    stack = jax.ShapeDtypeStruct((4, WIDTH, WIDTH), jnp.float32)
    found = spine(loss, stack, X)
    assert names(found) == ["scan"] * 4
    assert steps(found.flops) == [PRODUCT + WIDTH * WIDTH] * 4
    assert steps(found.parameters) == [WEIGHT] * 4
    assert list(found.crossing) == [0, ACTIVATION, ACTIVATION, ACTIVATION, 0]
    assert found.tokens == [0] * 4


def test_a_weight_that_all_turns_use_whole_counts_at_the_first_and_last_turn() -> None:
    def loss(w: Any, x: Any) -> Any:
        return _lax.scan(lambda x, _: (dot(x, w), None), x, None, length=4)[0]

    assert steps(spine(loss, W, X).parameters) == [WEIGHT, 0, 0, WEIGHT]


def test_small_work_on_data_alone_is_beside_the_spine_and_large_work_is_spine() -> None:
    def loss(w: Any, x: Any) -> Any:
        return dot(x, w) + _lax.tanh(x)[:, :1]

    assert "tanh" in names(spine(loss, W, X)), "32 of 568 operations"
    large = jax.ShapeDtypeStruct((WIDTH, 512), jnp.float32)
    wide = spine(lambda w, x: dot(x, w) + _lax.tanh(x)[:, :1], large, X)
    assert "tanh" not in names(wide) and "tanh" in {o.name for o in wide.users}


def test_a_product_of_parameters_is_spine_and_a_norm_of_them_is_not() -> None:
    def loss(w: Any, x: Any) -> Any:
        return dot(dot(x, dot(w, w)), _lax.tanh(w) * w)

    many = jax.ShapeDtypeStruct((4 * ROWS, WIDTH), jnp.float32)
    assert names(spine(loss, W, many)) == ["dot_general"] * 3


def test_a_loss_with_little_work_on_both_parameters_and_data_has_all_operations_as_spine() -> None:
    def loss(w: Any, x: Any) -> Any:
        return dot(x, x.T).sum() * _lax.tanh(w[0, 0])

    found = spine(loss, W, X)
    assert not found.users and "tanh" in names(found) and "dot_general" in names(found)


def test_all_operations_are_spine_unless_most_work_depends_on_both() -> None:
    """Of the work, 40 % depends on parameters and data: two of five products, beside a cast of a parameter."""

    def loss(w: Any, x: Any) -> Any:
        h = dot(dot(dot(x, x), x), x)
        return dot(dot(h, _lax.tanh(w)), w)

    found = spine(loss, W, W)
    assert names(found).count("dot_general") == 5 and "tanh" in names(found) and not found.users


def test_small_work_on_both_is_spine() -> None:
    def loss(w: Any, x: Any) -> Any:
        return _lax.tanh(dot(x, w)[0, 0])

    assert names(spine(loss, W, X))[-1] == "tanh"


def test_a_small_product_of_parameters_is_spine() -> None:
    """A product of two 4 x 4 matrices is 128 operations on 48 elements."""
    small = jax.ShapeDtypeStruct((4, 4), jnp.float32)
    rows = jax.ShapeDtypeStruct((8, 4), jnp.float32)
    assert names(spine(lambda w, x: dot(x, dot(w, w)), small, rows)) == ["dot_general"] * 2


def test_parameters_of_several_arguments_count_each_at_their_place() -> None:
    """The batch is the first argument, then come a stack, a weight that is not used, and another weight."""

    def loss(x: Any, stack: Any, _: Any, w: Any) -> Any:
        return dot(_lax.scan(lambda x, w: (dot(x, w), None), x, stack)[0], w)

    stack = jax.ShapeDtypeStruct((2, WIDTH, WIDTH), jnp.float32)
    assert steps(spine(loss, X, stack, W, W, data=[0]).parameters) == [WEIGHT, WEIGHT, WEIGHT]


def test_a_checkpoint_in_a_checkpoint_keeps_nothing_of_its_own() -> None:
    def outer(x: Any, w: Any) -> Any:
        inner = jax.checkpoint(lambda h: _lax.tanh(dot(_lax.tanh(dot(h, w)), w)))
        return inner(_lax.tanh(dot(x, w)))

    def loss(w: Any, x: Any) -> Any:
        return jax.checkpoint(outer)(_lax.exp(x), w)

    found = spine(loss, W, X, stages=4)
    assert max(len(o.groups) for o in found.operations) == 2
    assert steps(found.kept) == [ACTIVATION] + [0] * 6, "what goes in, which exp keeps as well"


def test_an_operation_with_an_effect_is_spine() -> None:
    def loss(w: Any, x: Any) -> Any:
        jax.debug.callback(lambda _: None, x)
        return dot(x, w)

    assert "debug_callback" in names(spine(loss, W, X))


def test_a_checkpoint_keeps_its_inputs_and_not_what_is_inside() -> None:
    def layer(x: Any, w: Any) -> Any:
        return _lax.tanh(dot(_lax.tanh(dot(x, w)), w))

    def loss(w: Any, x: Any) -> Any:
        h = _lax.exp(dot(x, w))
        return jax.checkpoint(layer)(jax.checkpoint(layer)(h, w), w)

    found = spine(loss, W, X)
    assert names(found) == ["dot_general", "exp"] + ["dot_general", "tanh"] * 4
    kept = [ACTIVATION, ACTIVATION, 0, 0, 0, 0, ACTIVATION, 0, 0, 0]
    assert steps(found.kept) == kept, "the first checkpoint keeps what exp keeps already"


def test_a_turn_of_a_loop_keeps_its_part_of_what_the_loop_keeps() -> None:
    def loss(w: Any, x: Any) -> Any:
        return _lax.scan(lambda x, w: (_lax.tanh(dot(x, w)), None), x, w)[0]

    stack = jax.ShapeDtypeStruct((4, WIDTH, WIDTH), jnp.float32)
    assert steps(spine(loss, stack, X).kept) == [2 * ACTIVATION] * 4, "the operand of the product, the result of tanh"


@pytest.mark.parametrize("reverse", [False, True])
def test_what_turns_stack_crosses_in_parts(reverse: bool) -> None:
    """Each of 4 turns adds a row to a stack that is read behind the loop; between turns, the carry crosses as well."""

    def loss(w: Any, x: Any) -> Any:
        last, rows = _lax.scan(lambda x, w: (dot(x, w), _lax.exp(x)), x, w, reverse=reverse)
        return _lax.add(_lax.broadcast(last, (4,)), rows)

    stack = jax.ShapeDtypeStruct((4, WIDTH, WIDTH), jnp.float32)
    found = spine(loss, stack, X)
    assert names(found)[:5] == ["scan"] * 4 + ["stack"]
    assert list(found.crossing[:5]) == [0, 2 * ACTIVATION, 3 * ACTIVATION, 4 * ACTIVATION, 5 * ACTIVATION]


def test_operations_are_alike_if_their_types_work_and_count_of_checkpoints_are() -> None:
    def loss(w: Any, x: Any) -> Any:
        h = _lax.tanh(dot(x, w))
        h = jax.checkpoint(lambda h: _lax.tanh(dot(h, w)))(h)
        return _lax.tanh(_lax.exp(h)[:2])

    found = spine(loss, W, X, stages=1)
    by_name = dict.fromkeys(zip(names(found), found.tokens, strict=True))
    inside = [t for o, t in zip(found.operations, found.tokens, strict=True) if o.groups]
    outside = [t for o, t in zip(found.operations, found.tokens, strict=True) if not o.groups]
    assert len(by_name) == len(set(found.tokens)), "equal tokens have equal names"
    assert inside and not set(inside) & set(outside)
    tanhs = [t for o, t in zip(found.operations, found.tokens, strict=True) if o.name == "tanh"]
    assert len(set(tanhs)) == len(tanhs) == 3, "of other shapes, and in a checkpoint"
