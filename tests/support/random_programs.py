"""Generates random programs: draws a description from a seed, and reads it as a placed program and as plain JAX.

A description is a block of statements on arrays of one shape. Both readings do the same arithmetic, so their results
must agree. `draw(seed)` is deterministic.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

SHAPE = (8, 8)
INPUTS = 3


def _slices() -> list[list[Mesh]]:
    """Creates three slices; returns the meshes of each slice."""
    devices = pw.make_virtual_device_set()
    two, four, one = (devices.add_slice(devices=n) for n in (2, 4, 1))
    return [
        [two.mesh("x")],
        [four.mesh(("x", "y"), (2, 2)), four.mesh("z", (4,))],
        [one.mesh("x")],
    ]


MESHES = [mesh for slice_ in _slices() for mesh in slice_]


def twin_meshes() -> list[Mesh]:
    """Creates four meshes on four slices: two pairs of meshes with equal axes."""
    two, again, four, more = (pw.make_virtual_device_set().add_slice(devices=n) for n in (2, 2, 4, 4))
    return [two.mesh("x"), again.mesh("x"), four.mesh(("x", "y"), (2, 2)), more.mesh(("x", "y"), (2, 2))]


@dataclass(frozen=True)
class Statement:
    """One operation `kind` on the values with indices `a` and `b`; the meaning of `detail` depends on the kind."""

    kind: str
    a: int
    b: int
    detail: Any


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "dot": lambda a, b: jnp.tanh(a @ b),
    "add": lambda a, b: a + 0.5 * b,
    "sin": lambda a, b: jnp.sin(a) * jnp.cos(b),
    "norm": lambda a, b: (a - a.mean(0)) / (1 + jnp.abs(b).sum()),
    "flip": lambda a, b: a[::-1].T + b[:, :1],
}


REGULAR = ("scan", "grad", "vmap", "remat")
LOOPS = ("while", "fori")
"""Loops without a reverse-mode derivative."""
BRANCHES = ("cond", "switch")
IRREGULAR = (*BRANCHES, *LOOPS)
"""Data-dependent control flow."""


def _spec(rng: random.Random, mesh: Mesh) -> P:
    axes = list(mesh.axis_names)
    rng.shuffle(axes)
    entries: list[Any] = [None, None]
    for axis in axes:
        where = rng.choice([0, 1, 2])
        if where < 2:
            old = entries[where]
            entries[where] = axis if old is None else (*((old,) if isinstance(old, str) else old), axis)
    return P(*entries)


def _sharding(rng: random.Random, mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, _spec(rng, mesh))


def draw_block(
    rng: random.Random,
    inputs: int,
    length: int,
    depth: int,
    *,
    batched: bool = False,
    compound: Sequence[str] = REGULAR,
) -> tuple[Statement, ...]:
    """Draws a block on `inputs` values; statement i defines value `inputs + i`.

    `compound` are the allowed kinds of statements that contain blocks. A `batched` block has no device_put, because
    `jax.vmap` does not adapt its sharding: the sharding would apply to the wrong dimensions.
    """
    statements: list[Statement] = []
    for i in range(length):
        a, b = rng.randrange(inputs + i), rng.randrange(inputs + i)
        simple = ["call", "call", "call", "loose", "jit", "put", "constrain", "shard_map"]
        if batched:
            simple.remove("put")
        kind = rng.choice(simple + (list(compound) if depth else []))
        statements.append(Statement(kind, a, b, _detail(rng, kind, depth, batched, compound)))
    return tuple(statements)


def _detail(rng: random.Random, kind: str, depth: int, batched: bool, compound: Sequence[str]) -> Any:
    mesh = rng.choice(MESHES)

    def block(*, batched: bool = batched, compound: Sequence[str] = compound) -> tuple[Statement, ...]:
        return draw_block(rng, 2, rng.randint(1, 3), depth - 1, batched=batched, compound=compound)

    match kind:
        case "call":
            given = [_sharding(rng, mesh) if rng.random() < 0.7 else None for _ in range(3)]
            if given[0] is None and given[1] is None:
                given[rng.randrange(2)] = _sharding(rng, mesh)
            return rng.choice(list(FUNCTIONS)), given
        case "loose" | "jit":
            return rng.choice(list(FUNCTIONS))
        case "put" | "constrain":
            return _sharding(rng, mesh)
        case "shard_map":
            return mesh, _spec(rng, mesh)
        case "scan":
            return block(), rng.randint(1, 3), rng.random() < 0.5
        case "cond" | "switch":
            return [block() for _ in range(2 if kind == "cond" else 3)]
        case "while":
            return block(), block() if rng.random() < 0.5 else ()
        case "fori" | "vmap":
            return block(batched=batched or kind == "vmap")
        case _:
            return block(compound=[k for k in compound if k not in LOOPS])


def run_block(block: Sequence[Statement], values: Sequence[Any], placed: bool) -> list[Any]:
    """Runs a block; returns all its values, inputs first."""
    known = list(values)
    for statement in block:
        known.append(_run(statement, known[statement.a], known[statement.b], placed))
    return known


def _run(statement: Statement, a: Any, b: Any, placed: bool) -> Any:
    detail = statement.detail
    match statement.kind:
        case "call":
            name, (first, second, out) = detail
            function = FUNCTIONS[name]
            if not placed:
                return function(a, b)
            return jax.jit(function, in_shardings=(first, second), out_shardings=out)(a, b)
        case "loose":
            return FUNCTIONS[detail](a, b)
        case "jit":
            return jax.jit(FUNCTIONS[detail])(a, b)
        case "put":
            return jax.device_put(a, detail) if placed else a
        case "constrain":
            return lax.with_sharding_constraint(a, detail) if placed else a
        case "shard_map":
            mesh, spec = detail
            body = partial(_centered, axes=tuple(mesh.axis_names) if placed else ())
            return (
                jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(a) if placed else body(a)
            )
        case "scan":
            return _scan(detail, a, b, placed)
        case "cond":
            yes, no = (partial(_last, block, placed) for block in detail)
            return lax.cond(_number(a) % 2 == 0, yes, no, a, b)
        case "switch":
            return lax.switch(_number(a) - 1, [partial(_last, block, placed) for block in detail], a, b)
        case "while":
            return _while(detail, a, b, placed)
        case "fori":
            return lax.fori_loop(0, _number(b) % 4, lambda i, x: jnp.tanh(_last(detail, placed, x, b * i)), a)
        case "grad":
            return jax.grad(lambda x: (run_block(detail, [x, b], placed)[-1] ** 2).mean())(a)
        case "vmap":
            return jax.vmap(lambda x: run_block(detail, [x, b], placed)[-1])(jnp.stack([a, b])).sum(0)
        case _:
            inner = jax.checkpoint(lambda x: run_block(detail, [x, b], placed)[-1])
            return jax.grad(lambda x: inner(x).sum())(a)


def _centered(x: Any, axes: tuple[str, ...]) -> Any:
    """Subtracts the mean of the whole array: the mean of the shards' means, since shards have equal sizes."""
    return x - (lax.pmean(x.mean(), axes) if axes else x.mean())


def _scan(detail: Any, a: Any, b: Any, placed: bool) -> Any:
    block, length, reverse = detail

    def body(carry: Any, x: Any) -> Any:
        result = run_block(block, [carry, x], placed)[-1]
        return jnp.tanh(result), result.mean()

    carry, ys = lax.scan(body, a, jnp.stack([b * (i + 1) for i in range(length)]), reverse=reverse)
    return carry + ys.sum()


def _last(block: Sequence[Statement], placed: bool, *values: Any) -> Any:
    return run_block(block, values, placed)[-1]


def _number(x: Any) -> Any:
    """Computes an integer from 0 to 4 from the data of `x`."""
    return (jnp.abs(x).sum() * 7).astype(jnp.int32) % 5


def _while(detail: Any, a: Any, b: Any, placed: bool) -> Any:
    """Runs a while loop; in half of all programs, its condition contains placed calls."""
    body, test = detail
    count = _number(b)

    def goes_on(carry: Any) -> Any:
        i, x = carry
        return (i < count) & (jnp.abs(_last(test, placed, x, b)).max() >= 0 if test else True)

    def once(carry: Any) -> Any:
        i, x = carry
        return i + 1, jnp.tanh(_last(body, placed, x, b))

    return lax.while_loop(goes_on, once, (0, a))[1]


def draw_irregular(seed: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Draws a program as `draw` does, with data-dependent control flow at least in the last statement."""
    rng = random.Random(f"irregular {seed}")
    compound = (*REGULAR, *IRREGULAR)
    block = draw_block(rng, INPUTS, rng.randint(1, 3), depth=1, compound=compound)
    values = INPUTS + len(block)
    kind = IRREGULAR[seed % len(IRREGULAR)]
    detail = _detail(rng, kind, 1 + (seed % 8 == 0), False, compound)
    block = (*block, Statement(kind, rng.randrange(values), rng.randrange(values), detail))
    return _readings(block, [rng.randrange(values), values])


def draw(seed: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Draws program `seed`; returns its placed and its plain reading, functions of `INPUTS` arrays of `SHAPE`."""
    rng = random.Random(seed)
    block = draw_block(rng, INPUTS, rng.randint(2, 6), depth=2)
    return _readings(block, [rng.randrange(INPUTS + len(block)) for _ in range(2)] + [INPUTS + len(block) - 1])


def _readings(block: Sequence[Statement], results: Sequence[int]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def read(placed: bool) -> Callable[..., Any]:
        def program(*values: Any) -> Any:
            known = run_block(block, values, placed)
            return [known[i] for i in results]

        return program

    return read(True), read(False)
