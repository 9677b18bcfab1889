"""Tests that an optimizer's update is one computation per slice.

Operations that would divide its groups are removed before the groups are gathered.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.dialect.ir.flow import Node
from pathways.dialect.ir.program import ProgramIR

jit: Any = jax.jit
SLICES, WIDTH = 3, 4


def stage(weights: Any, x: Any) -> Any:
    for weight in weights:
        x = jnp.tanh(x @ weight)
    return x


def placed() -> list[Any]:
    made = pw.make_virtual_device_set()
    homes = [NamedSharding(made.add_slice(devices=1).mesh("x"), P()) for _ in range(SLICES)]
    return [jit(stage, in_shardings=home) for home in homes]


def parameters() -> list[list[Any]]:
    return [[np.full((WIDTH, WIDTH), 0.1 * (i + j + 1), np.float32) for j in range(10)] for i in range(SLICES)]


def loss(stages: list[Any], params: Any, x: Any) -> Any:
    for one, weights in zip(stages, params, strict=True):
        x = one(weights, x)
    return x.sum()


def step(optimizer: Any, stages: list[Any], params: Any, state: Any, x: Any) -> Any:
    gradients = jax.grad(partial(loss, stages))(params, x)
    updates, state = optimizer.update(gradients, state, params)
    return optax.apply_updates(params, updates), state


def gathered(program: Any, *arguments: Any) -> list[Node]:
    return [n for n in ProgramIR(program.lower(*arguments).module).flow.calls() if n.op.gathered]


def assert_close(found: Any, expected: Any) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(one), other, rtol=2e-5, atol=1e-6)


def test_an_adam_update_is_one_computation_per_slice() -> None:
    """Corrections by the count and decayed moments wait for nothing and are no separate computations."""
    optimizer = optax.adamw(optax.cosine_decay_schedule(1e-2, 100))
    params, x = parameters(), np.ones((2, WIDTH), np.float32)
    state = optimizer.init(params)
    program = pw.program(partial(step, optimizer, placed()))
    groups = gathered(program, params, state, x)
    updates = [g for g in groups if len(g.results) == 3 * len(params[0])]
    assert len(updates) == SLICES
    assert all(len(g.operands) <= 2 for g in groups if g not in updates)  # counts are results that wait for no gradient
    assert_close(program(params, state, x), jit(partial(step, optimizer, [stage] * SLICES))(params, state, x))


def test_a_result_of_arguments_alone_waits_for_no_placed_call() -> None:
    """The next step can start with it, for example with a new key, although a waiting group uses it, too."""
    first, *_ = placed()

    def program(params: Any, rate: Any, x: Any) -> Any:
        half = rate * jnp.float32(0.5)
        return first(params, x) * half, half

    compiled = pw.program(program)
    x, weights = np.ones((2, WIDTH), np.float32), parameters()[0]
    groups = gathered(compiled, weights, np.ones((2, WIDTH), np.float32), x)
    assert len(groups) == 2
    assert any(len(g.operands) == 1 for g in groups)
    assert_close(compiled(weights, np.float32(3), x), (stage(weights, x) * 1.5, np.float32(1.5)))


def test_a_sum_that_starts_with_zeros_has_no_computation_that_adds_zeros() -> None:
    params, xs = parameters(), np.ones((3, 2, WIDTH), np.float32)

    def added(stages: list[Any], params: Any, xs: Any) -> Any:
        def body(total: Any, x: Any) -> Any:
            return jax.tree.map(jnp.add, total, jax.grad(partial(loss, stages))(params, x)), ()

        return lax.scan(body, jax.tree.map(jnp.zeros_like, params), xs)[0]

    program = pw.program(partial(added, placed()))
    adding = [n for n in gathered(program, params, xs) if len(n.results) == len(params[0])]
    assert len(adding) == SLICES * (len(xs) - 1)
    assert_close(program(params, xs), jit(partial(added, [stage] * SLICES))(params, xs))


def test_additions_of_zeros_that_change_the_result_are_kept() -> None:
    """Zeros stay if they broadcast a value, or if the value is subtracted from them."""
    first, *_ = placed()

    def program(weights: Any, x: Any) -> Any:
        return jnp.zeros((3, 2, WIDTH), jnp.float32) + first(weights, x), jnp.zeros((2, WIDTH)) - first(weights, x)

    x, weights = np.ones((2, WIDTH), np.float32), parameters()[0]
    y = stage(weights, x)
    assert_close(pw.program(program)(weights, x), (jnp.broadcast_to(y, (3, 2, WIDTH)), -y))


def test_names_of_parameters_do_not_make_computations_differ() -> None:
    """The names of the first stage's weights sort in another order than that of their use: 10, 11, 6, 7, 8, 9."""
    names = [[f"w{i}" for i in range(first, first + 6)] for first in (6, 12)]
    weights = (name for stage_names in names for name in stage_names)
    params = {name: np.full((WIDTH, WIDTH), 0.1 * (i + 1), np.float32) for i, name in enumerate(weights)}

    def squares(stages: list[Any], params: Any, xs: Any) -> Any:
        def over_all(params: Any) -> Any:
            def one(total: Any, x: Any) -> Any:
                for use, own in zip(stages, names, strict=True):
                    x = use([params[name] for name in own], x)
                return total + x.sum(), ()

            return lax.scan(one, jnp.float32(0), xs)[0]

        gradients = jax.grad(over_all)(params)
        return gradients, jax.tree.map(lambda g: (g**2).sum(), gradients)

    program, xs = pw.program(partial(squares, placed()[:2])), np.ones((2, 2, WIDTH), np.float32)
    callees = [g.callee for g in gathered(program, params, xs) if len(g.results) == 2 * len(names[0])]
    assert len(callees) == 2 and len(set(callees)) == 1
    assert_close(program(params, xs), jit(partial(squares, [stage] * 2))(params, xs))
