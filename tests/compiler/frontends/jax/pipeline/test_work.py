"""Tests the estimates of what one equation costs: operations of its forward pass, and what its backward pass keeps."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from pathways.compiler.frontends.jax.pipeline.work import bytes_of, flops_of_eqn, kept_of_eqn

_lax: Any = lax
_jax: Any = jax
X = jax.ShapeDtypeStruct((3, 5), jnp.float32)
W = jax.ShapeDtypeStruct((5, 7), jnp.float32)
V = jax.ShapeDtypeStruct((6,), jnp.float32)


def equation(function: Any, *args: Any) -> Any:
    """Returns the last equation of a traced function."""
    return _jax.make_jaxpr(function)(*args).eqns[-1]


def batched(x: Any, w: Any) -> Any:
    return jnp.einsum("bij,bjk->bik", x, w)


def convolved(x: Any, kernel: Any) -> Any:
    return _lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def grouped(x: Any, kernel: Any) -> Any:
    return _lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=3
    )


def repeated(x: Any) -> Any:
    """Runs 3 operations on 6 elements in each of 4 turns."""
    return _lax.scan(lambda c, _: (jnp.tanh(c) * 2 + 1, None), x, None, length=4)[0]


def branching(x: Any) -> Any:
    return _lax.switch(1, [lambda x: x + 1, lambda x: jnp.tanh(x) * x + 1, lambda x: x * x - x], x)


def on_a_condition(i: Any, x: Any) -> Any:
    return _lax.cond(i > 0, lambda x: x + 1, lambda x: jnp.tanh(x) * x + 1, x)


def looping(x: Any) -> Any:
    """Computes 2 operations on 6 elements in its body, and one sum in its condition."""
    return _lax.while_loop(lambda x: x.sum() < 3, lambda x: jnp.exp(x) * 2, x)


@jax.custom_jvp
def opaque(x: Any, y: Any = 3.0) -> Any:
    return jnp.tanh(jnp.exp(x)) * y


opaque.defjvp(lambda primals, tangents: (opaque(*primals), tangents[0]))


@pytest.mark.parametrize(
    ("function", "shapes", "flops"),
    [
        (jnp.dot, [(3, 5), (5, 7)], 2 * 3 * 7 * 5),
        (batched, [(2, 3, 5), (2, 5, 7)], 2 * (2 * 3 * 7) * 5),
        (convolved, [(2, 8, 8, 3), (3, 3, 3, 4)], 2 * (2 * 8 * 8 * 4) * (3 * 3 * 3)),
        (grouped, [(1, 4, 4, 3), (3, 3, 1, 6)], 2 * (4 * 4 * 6) * (3 * 3)),
        (jnp.tanh, [(3, 5)], 15),
        (lax.add, [(3, 5), (3, 5)], 15),
        (lambda x: _lax.reduce_sum_p.bind(x, axes=(0,), out_sharding=None), [(3, 5)], 15),
        (lambda x: _lax.argmax(x, 1, jnp.int32), [(3, 5)], 15),
        (lambda x: _lax.argmin(x, 1, jnp.int32), [(3, 5)], 15),
        (_lax.cumsum, [(3, 5)], 15),
        (lambda x: _lax.reshape(x, (15,)), [(3, 5)], 0),
        (lambda x: _lax.transpose(x, (1, 0)), [(3, 5)], 0),
        (repeated, [(6,)], 4 * 3 * 6),
        (on_a_condition, [(), (6,)], 3 * 6),
        (looping, [(6,)], 2 * 6),
        (jax.jit(lambda x: jnp.tanh(x) * x), [(6,)], 2 * 6),
    ],
)
def test_the_operations_of_an_equation_are_counted(function: Any, shapes: list[tuple[int, ...]], flops: int) -> None:
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    assert flops_of_eqn(equation(function, *args)) == flops


def test_drawing_random_bits_counts_as_no_work() -> None:
    draw: Any = jax.random.bits
    key = jax.eval_shape(lambda: jax.random.key(0))
    body = equation(draw, key).params["jaxpr"].eqns if equation(draw, key).primitive.name == "jit" else None
    eqns = body if body is not None else [equation(draw, key)]
    assert any(e.primitive.name == "random_bits" for e in eqns)
    assert [flops_of_eqn(e) for e in eqns if e.primitive.name.startswith("random")] == [0]


def test_bytes_are_those_of_arrays_and_of_keys_and_none_of_other_values() -> None:
    assert bytes_of(X) == 60
    assert bytes_of(jax.ShapeDtypeStruct((3,), jnp.bfloat16)) == 6
    assert bytes_of(jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 3))) == 24
    assert bytes_of(object()) == 0


@pytest.mark.parametrize(
    ("function", "kept"),
    [
        (lambda x: x * 2.0, ["in"]),
        (lambda x: 2.0 / x, ["in"]),
        (jnp.sin, ["in"]),
        (lax.exp, ["out"]),
        (lax.tanh, ["out"]),
        (lambda x: x + 1.0, []),
        (lambda x: _lax.reshape(x, (2, 3)), []),
        (jax.checkpoint(lambda x: jnp.tanh(jnp.exp(x))), ["in"]),
        (opaque, ["in"]),
    ],
)
def test_the_backward_pass_keeps_what_the_derivative_of_an_operation_needs(function: Any, kept: list[str]) -> None:
    eqn = equation(function, V)
    atoms, inside = kept_of_eqn(eqn)
    names = {id(a): "in" for a in eqn.invars} | {id(a): "out" for a in eqn.outvars}
    assert [names[id(a)] for a in atoms] == kept
    assert inside == 0


def test_literal_operands_are_not_kept() -> None:
    assert [a.aval.shape for a in kept_of_eqn(equation(lambda x: opaque(x, 3.0), V))[0]] == [(6,)]
    assert [a.aval.shape for a in kept_of_eqn(equation(lambda x: x * 2.0, V))[0]] == [(6,)]
    inner = equation(jax.jit(lambda x: x * 2.0), V)
    assert kept_of_eqn(inner) == ([], 24)


def test_a_call_keeps_what_its_body_keeps_once() -> None:
    """The body keeps x of both products, and the results of tanh and exp."""
    eqn = equation(jax.jit(lambda x: jnp.exp(jnp.tanh(x * 2.0)) + x * 3.0), V)
    assert kept_of_eqn(eqn) == ([], 3 * 24)


def test_a_loop_keeps_what_each_turn_makes_but_not_its_constants_and_rows() -> None:
    """In each turn, c * w keeps c and w, and tanh its result. The weight w is a constant, r is a row of xs."""

    def function(w: Any, c: Any, xs: Any) -> Any:
        return _lax.scan(lambda c, r: (jnp.tanh(c * w) + r * w, None), c, xs)[0]

    rows = jax.ShapeDtypeStruct((5, 6), jnp.float32)
    assert kept_of_eqn(equation(function, V, V, rows)) == ([], 5 * (24 + 24))


def test_a_loop_in_a_call_in_a_loop_keeps_what_all_turns_keep() -> None:
    inner = jax.jit(lambda x: repeated(x) * 2.0)

    def function(x: Any) -> Any:
        return _lax.scan(lambda c, _: (inner(c), None), x, None, length=3)[0]

    one_turn_inside = 24 + 24  # the result of tanh, which its product keeps as well, and nothing of the sum
    kept = kept_of_eqn(equation(function, V))[1]
    assert kept == 3 * (4 * 24 + 24) != 3 * (4 * one_turn_inside)


@pytest.mark.parametrize("function", [looping, lambda x: on_a_condition(x[0], x)])
def test_branches_and_loops_of_unknown_length_keep_nothing_that_is_counted(function: Any) -> None:
    assert kept_of_eqn(equation(function, V)) == ([], 0)
