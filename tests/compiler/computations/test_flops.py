"""Floating-point operations of computations, compared with counts by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from pathways.compiler.computations.flops import flops_of
from pathways.dialect.mlir import make_context, parse


def flops(text: str) -> float:
    return flops_of(parse(text, make_context()).operation)


def flops_of_function(function: Any, *shapes: tuple[int, ...]) -> float:
    return flops(jax.jit(function).lower(*[jax.ShapeDtypeStruct(s, "float32") for s in shapes]).as_text())


DOTS: list[tuple[str, tuple[int, ...], tuple[int, ...], int]] = [
    ("ij,jk->ik", (2, 3), (3, 4), 2 * (2 * 4) * 3),
    ("i,i->", (7,), (7,), 2 * 7),
    ("bij,bjk->bik", (5, 2, 3), (5, 3, 4), 2 * (5 * 2 * 4) * 3),
    ("abij,abjk->abik", (5, 6, 2, 3), (5, 6, 3, 4), 2 * (5 * 6 * 2 * 4) * 3),
    ("bi,bi->b", (5, 3), (5, 3), 2 * 5 * 3),
    ("aij,ijk->ak", (2, 3, 5), (3, 5, 4), 2 * (2 * 4) * 15),
    ("i,j->ij", (3,), (4,), 2 * 12),
    ("ij,jk->ik", (0, 3), (3, 4), 0),
    ("ij,jk->ik", (2, 0), (0, 4), 0),
]


@pytest.mark.parametrize(("formula", "left", "right", "count"), DOTS)
def test_a_product_counts_a_multiply_add_as_two(
    formula: str, left: tuple[int, ...], right: tuple[int, ...], count: int
) -> None:
    given = [f"tensor<{''.join(f'{n}x' for n in s)}f32>" for s in (left, right)]
    a, b = (jax.ShapeDtypeStruct(s, "float32") for s in (left, right))
    lowered = jax.jit(lambda a, b: jnp.einsum(formula, a, b)).lower(a, b)
    assert all(type_ in lowered.as_text() for type_ in given) and flops(lowered.as_text()) == count


def test_a_convolution_counts_the_window_of_each_result() -> None:
    def conv(x: Any, w: Any) -> Any:
        return lax.conv(x, w, (1, 1), "VALID")

    assert flops_of_function(conv, (1, 2, 5, 5), (4, 2, 3, 3)) == 2 * (4 * 3 * 3) * (2 * 3 * 3)
    assert flops_of_function(conv, (3, 1, 4, 4), (1, 1, 2, 2)) == 2 * (3 * 3 * 3) * (2 * 2)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.T, lambda x: x.reshape(6), lambda x: jnp.concatenate([x, x]), lambda x: x[::-1], lambda x: x[1:],
        lambda x: jnp.pad(x, 1), lambda x: jnp.broadcast_to(x, (4, 2, 3)), lambda x: x.astype(jnp.int32),
    ],
)  # fmt: skip
def test_moving_data_counts_nothing(function: Any) -> None:
    assert flops_of_function(function, (2, 3)) == 0


def test_elementwise_operations_count_one_an_element_and_reductions_their_operand() -> None:
    assert flops_of_function(lambda x: jnp.exp(x) + x, (2, 3)) == 12
    assert flops_of_function(lambda x: lax.erf(x), (2, 3)) == 6
    assert flops_of_function(lambda x: lax.reduce(x, 0.0, lax.add, (0,)), (4, 6)) == 24
    assert flops_of_function(lambda x, y: x + 1, (), (3,)) == 1


CALLS = """
func.func public @main(%a: tensor<8xf32>) -> tensor<8xf32> {
  %b = call @f(%a) : (tensor<8xf32>) -> tensor<8xf32>
  %c = call @f(%b) : (tensor<8xf32>) -> tensor<8xf32>
  return %c : tensor<8xf32>
}
func.func private @f(%a: tensor<8xf32>) -> tensor<8xf32> {
  %b = stablehlo.add %a, %a : tensor<8xf32>
  return %b : tensor<8xf32>
}
func.func private @unused(%a: tensor<8xf32>) -> tensor<8xf32> {
  %b = stablehlo.add %a, %a : tensor<8xf32>
  return %b : tensor<8xf32>
}
"""


def test_a_function_counts_as_often_as_it_is_called() -> None:
    assert flops(CALLS) == 16


CASE = """
func.func public @main(%i: tensor<i32>, %a: tensor<8xf32>) -> tensor<8xf32> {
  %r = "stablehlo.case"(%i) ({
    %b = stablehlo.add %a, %a : tensor<8xf32>
    %c = stablehlo.add %b, %a : tensor<8xf32>
    stablehlo.return %c : tensor<8xf32>
  }, {
    %b = stablehlo.add %a, %a : tensor<8xf32>
    stablehlo.return %b : tensor<8xf32>
  }) : (tensor<i32>) -> tensor<8xf32>
  return %r : tensor<8xf32>
}
"""


def test_of_the_branches_of_a_case_the_largest_counts() -> None:
    assert flops(CASE) == 16


LOOP = """
func.func public @main(%a: tensor<8xf32>, %g: tensor<i32>) -> tensor<8xf32> {{
  %s = stablehlo.constant dense<{start}> : tensor<i32>
  %r:2 = stablehlo.while(%x = %a, %i = {given}) : tensor<8xf32>, tensor<i32>
    cond {{
      %n = stablehlo.constant dense<{limit}> : tensor<i32>
      %c = stablehlo.compare LT, %i, {against}, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }} do {{
      %one = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %i, %one : tensor<i32>
      %y = stablehlo.add %x, %x : tensor<8xf32>
      stablehlo.return %y, %j : tensor<8xf32>, tensor<i32>
    }}
  return %r#0 : tensor<8xf32>
}}
"""


@pytest.mark.parametrize(
    ("start", "limit", "given", "against", "trips"),
    [
        (0, 5, "%s", "%n", 5),
        (2, 7, "%s", "%n", 5),
        (-3, 7, "%s", "%n", 10),
        (-7, -3, "%s", "%n", 4),
        (7, 2, "%s", "%n", 0),
        (0, 5, "%g", "%n", 1),
        (0, 5, "%s", "%g", 1),
    ],
)
def test_a_loop_counts_as_often_as_it_runs(start: int, limit: int, given: str, against: str, trips: int) -> None:
    assert flops(LOOP.format(start=start, limit=limit, given=given, against=against)) == trips * 9


def test_a_loop_of_jax_counts_as_often_as_it_runs() -> None:
    assert flops_of_function(lambda x: lax.fori_loop(2, 9, lambda _, y: y * y, x), (64,)) == 7 * (64 + 1)
