"""Tests along which axis the operands of one operation are cut if its result is cut."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from pathways.compiler.frontends.jax.piecewise import along, followed

_jax: Any = jax
_lax: Any = lax


def equation(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Any:
    (eqn,) = _jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)).eqns
    return eqn


def reshaped(*shape: int) -> Callable[[Any], Any]:
    return lambda x: _lax.reshape(x, shape)


@pytest.mark.parametrize(
    ("function", "shape", "axes"),
    [
        (lambda x: _lax.squeeze(x, (1,)), (6, 1, 4), [0, 2]),
        (lambda x: _lax.squeeze(x, (0, 2)), (1, 6, 1, 4), [1, 3]),
        (lambda x: _lax.transpose(x, (2, 0, 1)), (6, 1, 4), [2, 0, 1]),
        (reshaped(6, 2, 2), (6, 4), [0, None, None]),
        (reshaped(2, 3, 4), (6, 4), [None, None, 1]),
        (reshaped(3, 4, 2), (3, 2, 4), [0, None, None]),
        (reshaped(6, 1, 4), (6, 4), [0, None, 1]),
        (reshaped(6, 4), (6, 1, 4), [0, 2]),
        (reshaped(4, 6), (6, 4), [None, None]),
    ],
)
def test_the_axis_of_an_operand_is_that_of_its_pieces(
    function: Callable[[Any], Any], shape: tuple[int, ...], axes: list[int | None]
) -> None:
    """None: pieces of the result along this axis are no pieces of the operand."""
    eqn = equation(function, shape)
    found = [along(eqn, axis) for axis in range(len(axes))]
    assert found == [None if axis is None else (axis,) for axis in axes]
    followers = [followed(eqn, 0, axis) for axis in range(len(shape))]
    assert followers == [axes.index(axis) if axis in axes else None for axis in range(len(shape))]
