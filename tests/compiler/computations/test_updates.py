"""Tests that results which update arguments are written over the arguments, so that XLA copies nothing."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.fuzz_modules import text_of

import pathways as pw
from pathways.compiler.computations.updates import pair_updates, updates_of
from pathways.dialect.mlir import make_context, parse
from pathways.dialect.plan.nouns import Plan
from pathways.runtime.host.devices.pjrt import compile_module, make_devices

jit: Any = jax.jit
X = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
SHORT = X[:1]


def pairs(function: Any, *example: Any) -> dict[int, int | None]:
    """Returns the pairs of a function whose arguments may all be overwritten by results of the same shape."""
    lowered = jit(function, keep_unused=True).lower(*example)
    inputs, outputs = (jax.tree.leaves(side) for side in (example, lowered.out_info))
    main = parse(lowered.as_text(), make_context()).operation
    arguments = {i: np.shape(x) for i, x in enumerate(inputs)}
    return pair_updates(arguments, [x.shape for x in outputs], updates_of(main, arguments))


def adam(g: Any, mu: Any, p: Any, nu: Any) -> Any:
    mu, nu = 0.9 * mu + 0.1 * g, 0.99 * nu + 0.01 * g * g
    return p - 0.1 * (mu / (jnp.sqrt(nu) + 1e-8)), nu, mu


def calls(x: Any, y: Any) -> Any:
    return jit(lambda a, b: (b * 2 + a @ a, a + 1))(x, y)


def loops(x: Any, y: Any) -> Any:
    return lax.fori_loop(0, 3, lambda _, c: (c[0] @ c[0], c[1] @ c[0]), (y, x))


FUNCTIONS: dict[str, tuple[Any, dict[int, int | None]]] = {
    "a sum": (lambda a, b: a + b, {0: 0}),
    "two sums": (lambda a, b, c, d: (a + c, b + d), {0: 0, 1: 1}),
    "adam": (adam, {1: 2, 2: 0, 3: 1}),
    "the nearest": (lambda a, b: (a * 2 + 1 - b, a), {0: 1, 1: 0}),
    "in another order": (lambda a, b: (b + 1, a - 1), {0: 1, 1: 0}),
    "unchanged": (lambda a, b: (b, a * 2), {0: 1, 1: 0}),
    "through a call": (calls, {0: 1, 1: 0}),
    "carried by a loop": (loops, {0: 1, 1: 0}),
    "part of it": (lambda a, b: (a * 2, lax.dynamic_update_slice(b, a[:1], (0, 0))), {0: 0, 1: 1}),
    "written over": (lambda a, b: lax.dynamic_update_slice(b, a, (0, 0)), {1: 0}),
    "reshaped": (lambda a, b: (b.T, (a.reshape(16) * 2).reshape(4, 4)), {0: 1, 1: None}),
    "no element by element": (lambda a, b: (a @ b, b.T), {0: None, 1: None}),
    "none": (lambda a: a.sum(), {}),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_are_paired_with_the_results_that_update_them(name: str) -> None:
    function, wanted = FUNCTIONS[name]
    assert pairs(function, *[X] * function.__code__.co_argcount) == wanted


CHAIN = """
func.func public @main(%a: tensor<f32>, %b: tensor<f32>) -> (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) {
  %n = stablehlo.negate %a : tensor<f32>
  %c = stablehlo.add %n, %a : tensor<f32>
  %d = stablehlo.add %c, %b : tensor<f32>
  %e = call @twice(%n) : (tensor<f32>) -> tensor<f32>
  return %a, %c, %d, %e : tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>
}
func.func private @twice(%a: tensor<f32>) -> tensor<f32> {
  %b = stablehlo.negate %a : tensor<f32>
  %c = stablehlo.negate %b : tensor<f32>
  return %c : tensor<f32>
}
"""


def test_a_result_is_as_far_from_an_argument_as_the_shortest_way() -> None:
    """A call is one operation beside those inside of it."""
    found = updates_of(parse(CHAIN, make_context()).operation, (0, 1))
    assert found == [{0: 0}, {0: 1}, {0: 2, 1: 1}, {0: 4}]
    assert updates_of(parse(CHAIN, make_context()).operation, (1,)) == [{}, {}, {1: 1}, {}]


def test_pairs_are_listed_by_argument_and_others_are_left_out() -> None:
    assert list(pair_updates({2: "f", 0: "f"}, ["f", "f"], [{2: 1, 7: 0}, {}]).items()) == [(0, None), (2, 0)]
    assert pair_updates({0: "f"}, ["g", "f"], [{0: 0}, {0: 3}]) == {0: 1}


def test_only_results_of_the_same_shape_overwrite_an_argument() -> None:
    assert pairs(lambda a, b: (a + b, b * 2), X, SHORT) == {0: 0, 1: 1}
    assert pairs(lambda a, b: (a + b, a * 2), SHORT, X) == {1: 0, 0: 1}
    assert pairs(lambda a: (a * 2)[:1], X) == {}


def test_no_more_arguments_than_results_of_a_kind_are_overwritten() -> None:
    assert pair_updates({0: "f", 1: "f", 2: "g"}, ["f"], [{}]) == {0: None}
    assert pair_updates({0: "f", 1: "f"}, ["f"], [{1: 3}]) == {1: 0}
    assert pair_updates({3: "f", 5: "f"}, ["f", "f"], [{}, {5: 2, 3: 2}]) == {3: 1, 5: None}


def trained(devices: int, dtype: Any) -> tuple[Plan, Any, Any]:
    """Runs a step of AdamW on one slice. Returns its plan, its results and those of plain JAX."""
    placed = NamedSharding(
        pw.make_virtual_device_set().add_slice(devices=devices).mesh("x"), P("x") if devices > 1 else P()
    )
    optimizer = optax.adamw(1e-1)
    params = {f"w{i}": np.asarray(X[: 2 + 2 * (i % 2)] + i, dtype) for i in range(6)}

    def step(params: Any, state: Any, gradients: Any) -> Any:
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    def start() -> Any:
        return params, jax.tree.map(np.asarray, optimizer.init(params)), jax.tree.map(np.cos, params)

    home = jit(step, in_shardings=jax.tree.map(lambda x: placed if x.ndim else None, start()))
    compiled = pw.program(home, donate_argnums=(0, 1, 2)).lower(*start()).compile()
    return compiled.plan, compiled(*start()), jit(step)(*start())


@pytest.mark.long("more examples of the same kind", keep=("float32-2", "*bfloat16-1"))
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16])
def test_an_optimizer_step_overwrites_its_state_without_copies(devices: int, dtype: Any) -> None:
    plan, ours, plain = trained(devices, dtype)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float32), np.asarray(b, np.float32), rtol=2e-2, atol=1e-3)
    (largest,) = [c for c in plan.computations if len(c.donated) > 1]
    module_text = text_of(largest.module)
    assert (
        module_text.count("tf.aliasing_output") == 19 and "jax.buffer_donor" not in module_text
    )  # six of each kind, and the count
    executable = compile_module(largest.module, make_devices(devices))
    assert " copy(" not in executable.hlo_modules()[0].to_string()
