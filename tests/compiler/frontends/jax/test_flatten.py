"""Tests which parts of a program are inlined, and which become one call, one unplaced operation or control flow."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.traced_graphs import names

import pathways as pw
from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.flatten import flatten
from pathways.compiler.frontends.jax.graph import Constant, ControlFlow, TracedGraph
from pathways.dialect.ir.arguments import INLINE_LIMIT

any_jax: Any = jax
any_lax: Any = lax
_set = pw.make_virtual_device_set()
HERE, THERE = (NamedSharding(_set.add_slice(devices=1).mesh("x"), P()) for _ in range(2))
X = jnp.ones(4)


def double(x: Any) -> Any:
    return x * 2


f, unplaced = any_jax.jit(double, in_shardings=HERE), any_jax.jit(double)
g = any_jax.jit(lambda x: x + 1, in_shardings=THERE)


def flat(function: Callable[..., Any], *arguments: Any) -> TracedGraph:
    return flatten(compat.traced_jaxpr(function, *arguments), "program", None)


def test_operations_that_nothing_needs_are_left_out() -> None:
    assert names(flat(lambda x: (jnp.sin(g(x)), f(x) + 1)[1], X)) == ["Call", "add"]


def while_positive(body: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: any_lax.while_loop(lambda v: v[0] > 0, body, x)


def if_positive(body: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: any_lax.cond(x[0] > 0, body, lambda v: v, x)


@pytest.mark.parametrize(
    ("function", "last"),
    [
        (while_positive(lambda v: g(f(v))), "ControlFlow"),
        (if_positive(lambda v: g(f(v))), "ControlFlow"),
        (while_positive(f), "Call"),
        (if_positive(f), "Call"),
        (while_positive(if_positive(f)), "ControlFlow"),
        (while_positive(if_positive(double)), "while"),
        (lambda x: if_positive(unplaced)(f(x)), "cond"),
    ],
    ids=["loop", "branch", "loop on a mesh", "branch on a mesh", "placed branch", "unplaced", "unplaced branch"],
)
def test_control_flow_on_one_mesh_is_one_call_unless_a_placed_branch_is_inside(
    function: Callable[[Any], Any], last: str
) -> None:
    assert names(flat(function, X))[-1] == last


@pytest.mark.parametrize("calls_back", [False, True])
def test_a_constant_result_waits_for_the_host_callbacks_of_the_program_alone(calls_back: bool) -> None:
    def program(x: Any) -> Any:
        x = any_jax.pure_callback(lambda v: v, x, x) if calls_back else jnp.tanh(x)
        return f(x), 3.0

    made = flat(program, X)
    assert names(made) == (["pure_callback", "Call", "optimization_barrier"] if calls_back else ["tanh", "Call"])
    assert isinstance(made.outputs[1], Constant) != calls_back


@pytest.mark.parametrize(("more", "inside"), [(0, 1), (1, 0)])
def test_a_constant_over_the_limit_is_an_operand_of_control_flow(more: int, inside: int) -> None:
    constant = np.ones(INLINE_LIMIT // 4 + more, np.float32)
    placed = any_jax.jit(lambda x: x + constant, in_shardings=HERE)
    node = flat(if_positive(lambda v: g(placed(v))), jnp.asarray(constant)).nodes[-1]
    assert isinstance(node, ControlFlow)
    assert [len([*body.constants()]) for body in node.bodies] == [0, inside]
    assert len(node.taken) == 2 - inside
