"""Tests which mesh runs an operation without a placement, or a jit that lost its shardings: its operands decide."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.compiler.frontends.jax.graph import TracedValue
from pathways.compiler.frontends.jax.strays import Strays
from pathways.dialect.ir.program import ProgramIR

jit: Any = jax.jit


def gathered_meshes(lowered: Any) -> list[str]:
    """Returns the meshes of the calls that gather unplaced operations."""
    program = ProgramIR(lowered.module)
    return [call.mesh for call in program.calls() if call.gathered]


def concatenation_home(here: list[int], there: list[int], *, there_first: bool = False) -> list[str]:
    """Concatenates arrays of these sizes, made on two slices. Returns the mesh that does; m0 is on the first slice."""
    made = pw.make_virtual_device_set()
    first, second = (NamedSharding(made.add_slice(devices=1).mesh("x"), P()) for _ in range(2))
    f = jit(lambda xs: [x + 1 for x in xs], in_shardings=first)
    g = jit(lambda xs: [x * 2 for x in xs], in_shardings=second)

    def program(a: Any, b: Any) -> Any:
        parts = [f(a), g(b)]
        return lax.concatenate([x for part in (reversed(parts) if there_first else parts) for x in part], 0)

    arguments = ([np.ones(n, np.float32) for n in sizes] for sizes in (here, there))
    lowered = pw.program(program).lower(*arguments)
    assert list(ProgramIR(lowered.module).meshes) == ["m0", "m1"]
    return gathered_meshes(lowered)


@pytest.mark.parametrize(
    ("here", "there", "home"),
    [
        ([8, 8, 8], [16], "m0"),  # the largest operand is elsewhere
        ([16], [8, 8, 8], "m1"),
        ([8, 8], [17], "m1"),
        ([4, 4, 4, 4, 4], [19], "m0"),
    ],
)
def test_operations_run_on_the_mesh_that_has_most_bytes_of_their_operands(
    here: list[int], there: list[int], home: str
) -> None:
    for there_first in (False, True):
        assert concatenation_home(here, there, there_first=there_first) == [home]


def test_the_first_operand_decides_between_equal_bytes() -> None:
    assert concatenation_home([8, 8], [16]) == ["m0"]
    assert concatenation_home([8, 8], [16], there_first=True) == ["m1"]


def test_the_largest_operand_decides_between_two_meshes_of_a_slice() -> None:
    slice_ = pw.make_virtual_device_set().add_slice(devices=2)
    rows, columns = NamedSharding(slice_.mesh("x"), P("x")), NamedSharding(slice_.mesh(("y", "z"), (1, 2)), P("z"))
    f, g = jit(lambda x: x + 1, in_shardings=rows), jit(lambda x: x * 2, in_shardings=columns)
    for small, large in ((8, 16), (16, 8)):
        lowered = pw.program(lambda a, b: lax.concatenate([f(a), g(b)], 0)).lower(jnp.ones(small), jnp.ones(large))
        (mesh,) = gathered_meshes(lowered)
        axes = [name for name, _ in ProgramIR(lowered.module).meshes[mesh].axes]
        assert axes == (["y", "z"] if large > small else ["x"])


class Votes:
    """An unplaced jit of a function that is also placed on two meshes, with records of the placed calls."""

    def __init__(self) -> None:
        made = pw.make_virtual_device_set()
        meshes = [made.add_slice(devices=1).mesh("x") for _ in range(2)]
        self.meshes: list[Any] = ["here", "there"]
        self.shardings: list[Any] = [NamedSharding(m, P()) for m in meshes]
        traced = jax.make_jaxpr(jit(lambda x, y: x + y))(1.0, 2.0)
        (self.eqn,) = traced.eqns
        self.strays = Strays()
        self.values: list[Any] = [TracedValue(v.aval) for v in traced.jaxpr.invars]

    def gave(self, mesh: int, *values: int) -> None:
        """Records that a call received these values with a sharding on a mesh."""
        node: Any = SimpleNamespace(inputs=[self.values[v] for v in values], outputs=[])
        self.strays.remember(self.eqn, self.meshes[mesh], [self.shardings[mesh]] * len(values), node)

    def made(self, mesh: int, value: int) -> None:
        """Records that a call of the same function made this value on a mesh."""
        node: Any = SimpleNamespace(inputs=[], outputs=[self.values[value]])
        self.strays.remember(self.eqn, self.meshes[mesh], [], node)

    def home(self) -> Any:
        from pathways.compiler.frontends.jax.mentions import function_of

        finder: Any = SimpleNamespace(places={function_of(self.eqn): dict.fromkeys(self.meshes)})
        found = self.strays.home(finder, self.eqn, self.values)
        return None if found is None else found[0]


def test_an_unplaced_jit_runs_where_placed_calls_received_its_operands() -> None:
    for mesh, name in enumerate(("here", "there")):
        votes = Votes()
        assert votes.home() is None
        votes.gave(mesh, 0)
        assert votes.home() == name
        votes.made(1 - mesh, 1)  # results count less than inputs
        assert votes.home() == name


def test_an_unplaced_jit_gets_no_home_from_a_tie() -> None:
    votes = Votes()
    votes.gave(0, 0)
    votes.gave(1, 1)
    assert votes.home() is None
    votes.gave(1, 0)
    assert votes.home() == "there"
    tied = Votes()
    tied.gave(0, 0, 1)
    tied.gave(1, 0, 1)
    assert tied.home() is None


def test_a_result_that_is_an_argument_is_where_the_placed_calls_are() -> None:
    place = NamedSharding(pw.make_virtual_device_set().add_slice(devices=1).mesh("x"), P())
    placed = jit(lambda x: x + 1, in_shardings=place)
    first, second = np.ones(2, np.float32), np.full(3, 2, np.float32)

    def program(x: Any, y: Any) -> Any:
        placed(x)
        return y

    np.testing.assert_array_equal(pw.program(program)(first, second), second)
