"""Tests where transfers are inserted: right after the producer of a value, so that they overlap with later calls."""

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


def calls_and_transfers(program: Any, *arguments: Any) -> list[str]:
    """Returns a program's calls and transfers in order at phase transfer; a transfer is `value -> slice`."""
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
            made = found.arguments[value].name if maker < 0 else name_of(flow.nodes[maker].op)
            names.append(f"{made} -> {found.slice_of(node.mesh)}")
        else:
            names.append(name_of(node.op))
    return names


def placed(count: int, *names: str) -> list[Any]:
    """Returns functions with these names; the digit is the number of the slice: `f0` is on the first."""
    made = pw.make_virtual_device_set()
    homes = [NamedSharding(made.add_slice(devices=2).mesh("x"), P("x")) for _ in range(count)]

    def call(name: str) -> Any:
        def function(*values: Any) -> Any:
            return jnp.tanh(sum(values))

        function.__name__ = name
        return jit(function, in_shardings=homes[int(name[-1])])

    return [call(name) for name in names]


def test_a_value_is_transferred_right_after_its_producer() -> None:
    """`g0` and `h0` must not delay the value that the other slice waits for, although they come first."""
    f, g, h, last = placed(2, "f0", "g0", "h0", "last1")

    def program(x: Any) -> Any:
        a = f(x)
        b = g(a)
        return last(a, h(b))

    assert calls_and_transfers(program, X) == ["f0", "f0 -> s1", "g0", "h0", "h0 -> s1", "last1"]


def test_an_argument_is_transferred_right_before_its_first_use() -> None:
    """Moved at the start, the argument would only take memory on the other slice."""
    f, g, last = placed(2, "f0", "g0", "last1")
    assert calls_and_transfers(lambda x, w: last(g(f(x)), w), X, X) == ["f0", "g0", "g0 -> s1", "last1"]
    assert calls_and_transfers(lambda x: (g(f(x)), last(x)), X) == ["f0", "g0", "x -> s1", "last1"]


def test_consumers_of_a_value_on_one_slice_share_its_transfer() -> None:
    f, *users = placed(3, "f0", "g1", "h1", "k2")
    order = calls_and_transfers(lambda x: [user(y) for y in [f(x)] for user in users], X)
    assert sorted(order[1:3]) == ["f0 -> s1", "f0 -> s2"] and sorted(order[3:]) == ["g1", "h1", "k2"]
