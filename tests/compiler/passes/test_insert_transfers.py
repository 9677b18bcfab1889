"""Where transfers stand: right behind what makes the value, so that they overlap with all that comes after it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.compiler.driver import Compilation
from pathways.compiler.passes.base import Session
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import name_of
from pathways.dialect.phases import Phase
from pathways.dialect.topology import parse_topology

jit: Any = jax.jit
X = np.ones((4, 8), np.float32)


def moved(program: Any, *arguments: Any) -> list[str]:
    """The order of a program's calls and transfers at phase transfer; a transfer is what it moves, and an arrow."""
    lowered = pw.program(program).lower(*arguments)
    topology = parse_topology("islands=2,devices=4")
    compilation = Compilation(ProgramIR(lowered.module), lowered.constants, Session(topology))
    compilation.advance(Phase.TRANSFER)
    found, flow = compilation.program, compilation.program.flow
    names: list[str] = []
    for node in flow.nodes:
        if node.is_transfer:
            (value,) = node.operands
            maker = flow.makers[value]
            made = found.arguments[value].name if maker < 0 else name_of(flow.nodes[maker].op.operation)
            names.append(f"{made} -> {found.slice_of(node.mesh)}")
        else:
            names.append(name_of(node.op.operation))
    return names


def placed(count: int, *names: str) -> list[Any]:
    """Functions with these names, each on the slice that its number says: `f0` on the first."""
    made = pw.make_virtual_device_set()
    homes = [NamedSharding(made.add_slice(devices=2).mesh("x"), P("x")) for _ in range(count)]

    def call(name: str) -> Any:
        def function(*values: Any) -> Any:
            return jnp.tanh(sum(values))

        function.__name__ = name
        return jit(function, in_shardings=homes[int(name[-1])])

    return [call(name) for name in names]


def test_a_value_leaves_as_soon_as_it_is_made() -> None:
    """`g0` and `h0` do not hold up what the other slice waits for, though the program writes them first."""
    f, g, h, last = placed(2, "f0", "g0", "h0", "last1")

    def program(x: Any) -> Any:
        a = f(x)
        b = g(a)
        return last(a, h(b))

    assert moved(program, X) == ["f0", "f0 -> s1", "g0", "h0", "h0 -> s1", "last1"]


def test_an_argument_moves_only_when_it_is_first_needed() -> None:
    """It is there from the start, and would only take memory where it goes."""
    f, g, last = placed(2, "f0", "g0", "last1")
    assert moved(lambda x, w: last(g(f(x)), w), X, X) == ["f0", "g0", "g0 -> s1", "last1"]
    assert moved(lambda x: (g(f(x)), last(x)), X) == ["f0", "g0", "x -> s1", "last1"]


def test_users_that_want_a_value_at_one_place_share_its_transfer() -> None:
    f, *users = placed(3, "f0", "g1", "h1", "k2")
    order = moved(lambda x: [user(y) for y in [f(x)] for user in users], X)
    assert sorted(order[1:3]) == ["f0 -> s1", "f0 -> s2"] and sorted(order[3:]) == ["g1", "h1", "k2"]
