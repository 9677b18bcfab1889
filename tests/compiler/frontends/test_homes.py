"""Where operations without a place of their own go, and jits that lost theirs: as their data says."""

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


def gathered_on(lowered: Any) -> list[str]:
    """The meshes of the calls that were made of loose operations."""
    program = ProgramIR(lowered.module)
    return [call.mesh for call in program.calls() if call.gathered]


def joined(here: list[int], there: list[int], *, there_first: bool = False) -> list[str]:
    """Where arrays of so many floats, made on two slices, are concatenated: m0 is the first of the two."""
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
    return gathered_on(lowered)


@pytest.mark.parametrize(
    ("here", "there", "home"),
    [
        ([8, 8, 8], [16], "m0"),  # the largest operand is elsewhere
        ([16], [8, 8, 8], "m1"),
        ([8, 8], [17], "m1"),
        ([4, 4, 4, 4, 4], [19], "m0"),
    ],
)
def test_operations_go_where_most_bytes_of_their_operands_are(here: list[int], there: list[int], home: str) -> None:
    for there_first in (False, True):
        assert joined(here, there, there_first=there_first) == [home]


def test_of_equal_bytes_the_first_operand_decides() -> None:
    assert joined([8, 8], [16]) == ["m0"]
    assert joined([8, 8], [16], there_first=True) == ["m1"]


def test_of_two_meshes_of_a_slice_that_of_the_largest_operand_is_taken() -> None:
    slice_ = pw.make_virtual_device_set().add_slice(devices=2)
    rows, columns = NamedSharding(slice_.mesh("x"), P("x")), NamedSharding(slice_.mesh(("y", "z"), (1, 2)), P("z"))
    f, g = jit(lambda x: x + 1, in_shardings=rows), jit(lambda x: x * 2, in_shardings=columns)
    for small, large in ((8, 16), (16, 8)):
        lowered = pw.program(lambda a, b: lax.concatenate([f(a), g(b)], 0)).lower(jnp.ones(small), jnp.ones(large))
        (mesh,) = gathered_on(lowered)
        axes = [name for name, _ in ProgramIR(lowered.module).meshes[mesh].axes]
        assert axes == (["y", "z"] if large > small else ["x"])


class Votes:
    """A jit without shardings of a function that is placed on two meshes, and what those were given."""

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
        """A call was given these values with a sharding on a mesh."""
        node: Any = SimpleNamespace(inputs=[self.values[v] for v in values], outputs=[])
        self.strays.remember(self.eqn, self.meshes[mesh], [self.shardings[mesh]] * len(values), node)

    def made(self, mesh: int, value: int) -> None:
        """A call of the same function made this value on a mesh."""
        node: Any = SimpleNamespace(inputs=[], outputs=[self.values[value]])
        self.strays.remember(self.eqn, self.meshes[mesh], [], node)

    def home(self) -> Any:
        from pathways.compiler.frontends.jax.mentions import function_of

        finder: Any = SimpleNamespace(places={function_of(self.eqn): dict.fromkeys(self.meshes)})
        found = self.strays.home(finder, self.eqn, self.values)
        return None if found is None else found[0]


def test_a_stray_goes_where_its_operands_were_given() -> None:
    for mesh, name in enumerate(("here", "there")):
        votes = Votes()
        assert votes.home() is None
        votes.gave(mesh, 0)
        assert votes.home() == name
        votes.made(1 - mesh, 1)  # what was made there says less
        assert votes.home() == name


def test_a_stray_of_which_nobody_can_tell_stays_where_its_data_is() -> None:
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
