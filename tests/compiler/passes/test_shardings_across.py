"""Tests that shardings propagate between slices of equal axes, unless a mesh states its own sharding."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from support import random_programs

import pathways as pw
from pathways.compiler.passes import propagate_shardings
from pathways.compiler.passes.inbound_moves import Taken, find_taken
from pathways.dialect.ir import pw as ops
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import make_context, parse

X = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
ONE = np.float32(1)
ROWS, COLUMNS, WHOLE = (("x",), ()), ((), ("x",)), ((), ())

jit: Any = jax.jit


def mesh_of(axis: str = "x", devices: int = 2) -> Mesh:
    return pw.make_virtual_device_set().add_slice(devices=devices).mesh(axis)


def stated(mesh: Mesh, *axes: str | None, makes: bool = False) -> Callable[[Any], Any]:
    """Returns a function of an array with a sharding stated by the user, of its operand or of its result."""
    sharding = NamedSharding(mesh, P(*axes))
    return jit(jnp.sin, in_shardings=None if makes else sharding, out_shardings=sharding if makes else None)


def open_on(mesh: Mesh) -> Callable[[Any], Any]:
    """Returns a function that states no sharding of its array; a scalar operand determines where it runs."""
    scaled = jit(lambda x, one: x * one, in_shardings=(None, NamedSharding(mesh, P())))
    return lambda x: scaled(x, ONE)


def lowered(phase: str, function: Callable[..., Any], *args: Any) -> ProgramIR:
    text = pw.program(function).lower(*args).as_text(phase, debug_info=True)
    return ProgramIR(parse(text, make_context()))


def first_dims(program: ProgramIR) -> list[tuple[Any, Any]]:
    """Returns the dims of the first operand and of the first result of each call."""
    return [(c.in_shardings[0].dims, c.out_shardings[0].dims) for c in program.calls() if c.in_shardings]  # pyright: ignore


def moves(program: ProgramIR) -> Iterator[Any]:
    for function in program.functions:
        for op in function.nodes():
            if isinstance(op, ops.TransferOp) and program.slice_of(op.source[0].mesh) != program.slice_of(op.mesh):  # pyright: ignore
                yield op


def bytes_between(program: ProgramIR) -> int:
    return sum(op.bytes for op in moves(program))


def test_a_stage_without_a_sharding_takes_that_of_its_producer() -> None:
    """This holds over several slices; each device then receives only its own shard."""
    first, rest = stated(mesh_of(), "x"), [open_on(mesh_of()) for _ in range(3)]

    def model(x: Any) -> Any:
        x = first(x)
        for stage in rest:
            x = stage(x)
        return x

    program = lowered("transfer", model, X)
    assert first_dims(program) == [(ROWS, ROWS)] * 4
    assert bytes_between(program) == 3 * X.nbytes
    np.testing.assert_allclose(np.asarray(pw.program(model)(X)), np.sin(X), rtol=1e-6)


def test_an_open_value_takes_the_sharding_of_its_consumer() -> None:
    """The sharding propagates back over two slices, to the argument of the program."""
    stages = [open_on(mesh_of()), open_on(mesh_of()), stated(mesh_of(), None, "x")]

    def model(x: Any) -> Any:
        for stage in stages:
            x = stage(x)
        return x

    program = lowered("shard", model, X)
    assert first_dims(program) == [(COLUMNS, COLUMNS)] * 3
    assert [a.sharding.dims for a in program.arguments if a.name == "x" and a.sharding] == [COLUMNS]


def test_shardings_stated_on_a_mesh_take_precedence() -> None:
    """The first stage makes rows as it states, and the second takes columns as it states."""
    here, there = mesh_of(), mesh_of()
    first, second = stated(here, "x"), stated(there, None, "x")
    program = lowered("shard", lambda x: second(first(x)), X)
    assert first_dims(program) == [(ROWS, ROWS), (COLUMNS, COLUMNS)]
    made = stated(there, None, "x", makes=True)
    program = lowered("shard", lambda x: made(first(x)), X)
    assert first_dims(program) == [(ROWS, ROWS), (COLUMNS, COLUMNS)]


def test_a_stated_unsharded_array_is_kept_whole() -> None:
    first, second = stated(mesh_of(), "x"), stated(mesh_of(), None, None)
    assert first_dims(lowered("shard", lambda x: second(first(x)), X)) == [(ROWS, ROWS), (WHOLE, WHOLE)]
    first, second = stated(mesh_of(), None, None, makes=True), open_on(mesh_of())
    assert first_dims(lowered("shard", lambda x: second(first(x)), X)) == [(WHOLE, WHOLE)] * 2


@pytest.mark.parametrize(("axis", "devices"), [("y", 2), ("x", 4)])
def test_shardings_do_not_propagate_between_meshes_of_different_axes(axis: str, devices: int) -> None:
    first, second = stated(mesh_of(), "x"), open_on(mesh_of(axis, devices))
    assert first_dims(lowered("shard", lambda x: second(first(x)), X)) == [(ROWS, ROWS), (WHOLE, WHOLE)]


def test_all_consumers_of_a_value_on_a_mesh_share_one_transfer() -> None:
    """The open consumer takes the sharding of the transfer that exists anyway, not that of the producer."""
    there = mesh_of()
    first, second, third = stated(mesh_of(), "x"), stated(there, None, "x"), open_on(there)

    def model(x: Any) -> Any:
        y = first(x)
        return second(y), third(y)

    program = lowered("transfer", model, X)
    assert first_dims(program) == [(ROWS, ROWS), (COLUMNS, COLUMNS), (COLUMNS, COLUMNS)]
    assert bytes_between(program) == X.nbytes


def test_a_loop_keeps_the_sharding_of_its_carried_value() -> None:
    first, turns = stated(mesh_of(), "x"), [open_on(mesh_of()), open_on(mesh_of())]

    def model(x: Any, n: Any) -> Any:
        return jax.lax.fori_loop(0, n, lambda i, y: turns[1](turns[0](y)), first(x))

    program = lowered("transfer", model, X, np.int32(3))
    np.testing.assert_allclose(np.asarray(pw.program(model)(X, np.int32(3))), np.sin(X), rtol=1e-6)
    found = [dims for body in program.bodies.values() for dims in first_dims(body) if len(dims[0]) == X.ndim]
    assert found == [(ROWS, ROWS)] * 2


def without_moves_between_slices(program: ProgramIR, lives: list[str | None]) -> Taken:
    taken = find_taken(program, lives)
    return replace(taken, moves=[move for move in taken.moves if move.is_on_one_mesh])


SEEDS = range(12)


@pytest.mark.long("more random examples of the same kind", keep=("[1-5]-draw", "5-draw_irregular", "8-draw_irregular"))
@pytest.mark.parametrize("draw", [random_programs.draw, random_programs.draw_irregular])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_on_equal_slices_keep_values_and_move_no_more(
    draw: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They equal plain JAX, and move no more bytes between slices than without propagation between slices."""
    monkeypatch.setattr(random_programs, "MESHES", random_programs.twin_meshes())
    rng = np.random.default_rng(seed)
    values = [0.5 * rng.standard_normal((8, 8)).astype(np.float32) for _ in range(random_programs.INPUTS)]
    placed, plain = draw(seed)
    for ours, theirs in zip(pw.program(placed)(*values), jit(plain)(*values), strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=2e-4, atol=2e-5)
    across = bytes_between(lowered("transfer", placed, *values))
    monkeypatch.setattr(propagate_shardings, "find_taken", without_moves_between_slices)
    assert across <= bytes_between(lowered("transfer", placed, *values))
