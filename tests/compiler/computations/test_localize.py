"""Tests that computations whose devices exchange nothing run per device and give the same results."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.compiler.computations.localize import localize
from pathways.dialect.mlir import make_context, parse
from pathways.dialect.plan.check_modules import check_modules
from pathways.dialect.plan.plan_file import read_plan, write_plan

jit: Any = jax.jit
MESH = pw.make_virtual_device_set().add_slice(devices=4).mesh(("a", "b"), (2, 2))
X = np.linspace(-1, 1, 8 * 16, dtype=np.float32).reshape(8, 16)
Y = np.cos(X)
ROWS, BOTH, OTHER, WHOLE = P("a", None), P("a", "b"), P("b", None), P()


def shard_mapped(function: Callable[..., Any]) -> Callable[..., Any]:
    return jax.shard_map(function, mesh=MESH, in_specs=BOTH, out_specs=BOTH)


CASES: dict[str, tuple[Callable[..., Any], Any, Any, bool]] = {
    "elementwise": (lambda x, y: jnp.where(x > 0, x * 2 + jnp.tanh(y), 1.0), BOTH, BOTH, True),
    "a product of rows and columns": (lambda x, y: x @ y.T, ROWS, OTHER, True),
    "a product over a split dimension": (lambda x, y: x.T @ y, ROWS, ROWS, False),
    "a batched product": (lambda x, y: jnp.einsum("bi,bi->b", x, y), ROWS, ROWS, True),
    "sums of rows": (lambda x, y: (x * y).sum(1), ROWS, ROWS, True),
    "sums of columns": (lambda x, y: (x * y).sum(0), ROWS, ROWS, False),
    "softmax of rows": (lambda x, y: jax.nn.softmax(x) + y.mean(1, keepdims=True), ROWS, ROWS, True),
    "softmax of split rows": (lambda x, y: jax.nn.softmax(x) + y, BOTH, BOTH, False),
    "normalized": (lambda x, y: (x - x.mean(-1, keepdims=True)) / (y.std(-1)[:, None] + 1), ROWS, ROWS, True),
    "reshaped": (lambda x, y: (x[:, None, :] + y[:, None, :]).reshape(8, 16), ROWS, ROWS, True),
    "cut across shards": (lambda x, y: x[:4] + y[:4], ROWS, ROWS, False),
    "a scalar beside": (lambda x, y: x * y[0, 0], WHOLE, WHOLE, True),
    "counted": (lambda x, y: x + jnp.arange(16.0) * y, BOTH, BOTH, False),
    "shard_map": (shard_mapped(lambda x, y: x + y.sum()), BOTH, BOTH, True),
    "shard_map that meets": (shard_mapped(lambda x, y: x + jax.lax.pmean(y, "a")), BOTH, BOTH, False),
    "a loop": (lambda x, y: jax.lax.fori_loop(0, 3, lambda i, v: v * y, x), WHOLE, WHOLE, True),
    "branches on the whole": (
        lambda x, y: jax.lax.cond(y[0, 0] > 0, lambda: x.sum(), lambda: x.max()) + y,
        WHOLE,
        WHOLE,
        True,
    ),
    "branches on shards": (
        lambda x, y: jax.lax.cond(y.sum() > 0, lambda: x.sum(), lambda: x.max()) + y,
        ROWS,
        WHOLE,
        False,
    ),
    "sorted": (lambda x, y: jnp.sort(x, axis=0) + y, WHOLE, WHOLE, True),
}


SHARD_SUMS = Y.reshape(2, 4, 2, 8).sum((1, 3))
"""Sums of Y over each of the four shards."""
BY_HAND = {
    "shard_map": X + np.kron(SHARD_SUMS, np.ones((4, 8), np.float32)),
    "shard_map that meets": X + np.tile((Y[:4] + Y[4:]) / 2, (2, 1)),
}
"""Expected results that plain JAX cannot compute without the devices of the mesh."""


@pytest.mark.parametrize("name", CASES)
def test_computations_without_communication_run_per_device(name: str) -> None:
    function, left, right, is_per_device = CASES[name]
    call = jit(function, in_shardings=(NamedSharding(MESH, left), NamedSharding(MESH, right)))
    lowered = pw.program(lambda x, y: call(x, y)).lower(X, Y)
    compiled = lowered.compile()
    (computation,) = compiled.plan.computations
    assert bool(computation.local) == is_per_device
    wanted = BY_HAND[name] if name in BY_HAND else np.asarray(jit(function)(X, Y))
    np.testing.assert_allclose(np.asarray(compiled(X, Y)), wanted, rtol=2e-5, atol=1e-6)
    plan = read_plan(write_plan(compiled.plan))
    assert plan == compiled.plan
    check_modules(plan, "plan")


OPERATIONS = {
    "an elementwise sum": ("stablehlo.add %x, %x : tensor<4xf32>", True),
    "a call of unknown meaning": ("stablehlo.custom_call @own(%x) : (tensor<4xf32>) -> tensor<4xf32>", False),
    "a sum over devices": (
        """"stablehlo.all_reduce"(%x) ({
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
            %c = stablehlo.add %a, %b : tensor<f32>
            stablehlo.return %c : tensor<f32>
        }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>""",
        False,
    ),
}


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_needs_other_devices_is_found_at_any_depth_of_branches(name: str, depth: int) -> None:
    """All values are whole on both devices."""
    operation, is_local = OPERATIONS[name]
    for _ in range(depth):
        then = f"{{ %t = {operation} stablehlo.return %t : tensor<4xf32> }}"
        other = "{ stablehlo.return %x : tensor<4xf32> }"
        operation = f'"stablehlo.if"(%p) ({then}, {other}) : (tensor<i1>) -> tensor<4xf32>'
    module = f"""module @f attributes {{mhlo.num_partitions = 2 : i32}} {{
      func.func public @main(%p: tensor<i1>, %x: tensor<4xf32>) -> tensor<4xf32> {{
        %r = {operation}
        return %r : tensor<4xf32>
      }}
    }}"""
    computation = parse(module, make_context()).operation
    with computation.context:
        found = localize(computation, (("x", 2),), [(), ((),)], [((),)])
    assert (found is not None) is is_local


def test_chained_calls_per_device_give_the_right_values() -> None:
    on = NamedSharding(MESH, BOTH)

    def double(x: Any) -> Any:
        return x * 2

    def total(x: Any) -> Any:
        return x.sum()

    f, g = jit(double, in_shardings=on), jit(total, in_shardings=on)

    def work(x: Any) -> Any:
        y = f(f(x))
        z = f(y)
        return g(y), z, f(z)

    compiled = pw.program(work).lower(X).compile(merge=False)
    for found, expected in zip(compiled(X), (4 * X.sum(), 8 * X, 16 * X), strict=True):
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-4)  # a sum of near 0


def test_a_per_device_module_of_other_shapes_is_refused() -> None:
    call = jit(lambda x: x + 1, in_shardings=NamedSharding(MESH, BOTH))
    plan = pw.program(lambda x: call(x)).lower(X).compile().plan
    (computation,) = plan.computations

    wrong = replace(plan, computations=(replace(computation, local=computation.module),))
    with pytest.raises(pw.PathwaysError, match="for one device"):
        check_modules(wrong, "plan")
