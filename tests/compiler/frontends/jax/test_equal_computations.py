"""Tests that equal groups and functions share one computation, and that different ones never do."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.traced_graphs import loose, meshes, together, value

import pathways as pw
from pathways.compiler.frontends.jax.groups import Group
from pathways.compiler.frontends.jax.lower import Lowering
from pathways.compiler.frontends.jax.structure import Structures
from pathways.dialect.ir.program import ProgramIR

jit: Any = jax.jit
X = np.linspace(-2, 2, 8, dtype=np.float32)

DIFFERENT: dict[str, Callable[[Any, int], Any]] = {
    "a literal": lambda x, i: x * (2.0 + i),
    "a literal's type": lambda x, i: (x.astype("int32") + (1 if i else np.int8(1))).astype("float32"),
    "an operation": lambda x, i: jnp.sin(x) if i else jnp.cos(x),
    "a parameter of an operation": lambda x, i: lax.cumsum(x, reverse=bool(i)),
    "which operand comes first": lambda x, i: x - (x * x) if i else (x * x) - x,
    "which results are taken": lambda x, i: (jnp.sin(x) * 2, jnp.sin(x))[i],
    "how often": lambda x, i: jnp.sin(jnp.sin(x)) if i else jnp.sin(x),
    "an element type": lambda x, i: x.astype("int8" if i else "int32").astype("float32"),
    "a closed-over array": lambda x, i: x + jnp.asarray(np.arange(8, dtype=np.float32) * i),
    "a length": lambda x, i: x[: 4 + i].sum(),
}


def both(f: Callable[[Any, int], Any], slices: int) -> tuple[Any, Any]:
    """Applies a function to the results of two calls, with 0 and with 1. Returns the program and plain JAX."""
    made = pw.make_virtual_device_set()
    homes = [NamedSharding(made.add_slice(devices=2).mesh("x"), P("x")) for _ in range(slices)]
    calls = [jit(lambda x: x + 1, in_shardings=home) for home in homes]
    placed = pw.program(lambda x: [f(calls[i % slices](x + i), i) for i in range(2)])
    return placed, jit(lambda x: [f(x + i + 1, i) for i in range(2)])


@pytest.mark.long("more examples of the same kind", keep=("*-2",))
@pytest.mark.parametrize("slices", [1, 2])
@pytest.mark.parametrize("case", DIFFERENT)
def test_groups_that_differ_in_one_detail_give_their_own_results(case: str, slices: int) -> None:
    placed, plain = both(DIFFERENT[case], slices)
    for ours, theirs in zip(placed(X), plain(X), strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-6)


def test_joined_operations_have_the_structure_of_separate_ones() -> None:
    (mesh,) = meshes(1)
    a, b = value(3), value(3)
    nodes = [loose(lax.add, a, b), loose(lax.sub, b, a)]
    made = [v for node in nodes for v in node.outputs]
    same, other = (
        Structures().of(Group(mesh, operations, [a, b], made, True, (0, 1))) for operations in (nodes, nodes[::-1])
    )
    assert Structures().of(Group(mesh, [together(nodes)], [a, b], made, True, (0, 1))) == same != other


@pytest.mark.parametrize("slices", [1, 2])
def test_equal_groups_share_one_computation(slices: int) -> None:
    placed, plain = both(lambda x, _: jnp.sin(x) * 2 + 1, slices)
    program = ProgramIR(placed.lower(X).module)
    after = [call for call in program.calls() if call.gathered and "sin" in call.callee]
    assert len(after) == 2 and len({call.callee for call in after}) == 1
    for ours, theirs in zip(placed(X), plain(X), strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-6)


def test_values_of_constants_alone_are_computed_in_each_group_that_uses_them() -> None:
    """The program makes the constants once and uses them in two groups; neither group may wait for the other."""
    made = pw.make_virtual_device_set()
    f, g = (jit(jnp.sin, in_shardings=NamedSharding(made.add_slice(devices=1).mesh("x"), P())) for _ in range(2))

    def program(x: Any) -> Any:
        numbers = jnp.arange(8.0) * 2
        return f(x) + numbers, g(x) * numbers, f(numbers)

    traced = pw.program(program).lower(X)
    found = ProgramIR(traced.module)
    flow = found.flow
    gathered = [n for n in flow.calls() if n.op.gathered]
    assert not any(flow.nodes[u].op.gathered for n in gathered for v in n.results for u in flow.users[v])
    behind = [n for n in gathered if n.operands]
    assert [found.slice_of(n.mesh) for n in behind] == ["s0", "s1"] and all(len(n.operands) == 1 for n in behind)
    numbers = np.arange(8, dtype=np.float32) * 2
    plain = np.sin(X) + numbers, np.sin(X) * numbers, np.sin(numbers)
    for ours, theirs in zip(pw.program(program)(X), plain, strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-5, atol=1e-6)


def count_lowerings(spec: Callable[[int], Any], shape: Callable[[int], tuple[int, ...]], count: int) -> int:
    """Counts how often JAX lowers a function that is placed on slices, with a spec and a mesh shape for each."""
    made = pw.make_virtual_device_set()
    meshes = [made.add_slice(devices=4).mesh(("x", "y"), shape(i)) for i in range(count)]
    calls = [jit(stage, in_shardings=NamedSharding(mesh, spec(i))) for i, mesh in enumerate(meshes)]

    def program(x: Any) -> Any:
        for call in calls:
            x = call(x)
        return x

    found: list[str] = []
    real = Lowering._lower  # pyright: ignore[reportPrivateUsage]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lowering, "_lower", lambda self, name, *rest: found.append(name) or real(self, name, *rest))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType, reportUnknownMemberType]
        x = np.ones((4, 4), np.float32)
        np.testing.assert_allclose(np.asarray(pw.program(program)(x)), x + count)
    return found.count("stage")


def stage(x: Any) -> Any:
    return x + 1


def test_equal_stages_on_different_slices_are_lowered_once() -> None:
    assert count_lowerings(lambda _: P("x"), lambda _: (2, 2), 4) == 1


def test_stages_with_different_shardings_are_lowered_separately() -> None:
    assert count_lowerings(lambda i: (P("x"), P("y"))[i], lambda _: (2, 2), 2) == 2
    assert count_lowerings(lambda _: P("x"), lambda i: ((4, 1), (2, 2))[i], 2) == 2
