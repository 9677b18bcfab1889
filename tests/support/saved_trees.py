"""Generates random arrays on virtual devices for tests of snapshots: shapes, shardings and element types."""

import random
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.dialect.dtypes import stored_names
from support.element_types import random_of

jit: Any = jax.jit
DTYPES = (*stored_names(), "key<fry>", "float0")
"""Every element type that a program's array can have."""
_SLICES = pw.make_virtual_device_set()
MESHES: tuple[Mesh, ...] = (
    _SLICES.add_slice(devices=4).mesh(("x", "y"), (2, 2)),
    _SLICES.add_slice(devices=4).mesh(("x", "y"), (4, 1)),
    _SLICES.add_slice(devices=2).mesh(("y", "x"), (2, 1)),
    _SLICES.add_slice(devices=1).mesh(("x", "y"), (1, 1)),
)
SPECS = (P(), P("x"), P("y"), P("x", "y"), P("y", "x"), P(("x", "y")), P(None, ("y", "x")), P(None, "x"))


def sharding_of(rng: random.Random, rank: int) -> NamedSharding:
    specs = [spec for spec in SPECS if len(spec) <= rank]
    return NamedSharding(rng.choice(MESHES), rng.choice(specs))


def shape_of(rng: random.Random) -> tuple[int, ...]:
    return tuple(rng.choice((4, 8, 12)) for _ in range(rng.randrange(4)))


def host_values(dtype: str, shape: tuple[int, ...], seed: int) -> Any:
    """Returns the host array that `placed` turns into an array of this type."""
    if dtype == "key<fry>":
        words: Any = np.random.default_rng(seed).integers(0, 1 << 32, (*shape, 2), np.uint32)
        return jax.random.wrap_key_data(words)
    if dtype == "float0":
        return np.arange(int(np.prod(shape))).reshape(shape).astype(np.int32)
    return random_of(dtype, shape, seed)


def placed(dtype: str, value: Any, sharding: NamedSharding) -> Any:
    """Runs a program that returns the array on virtual devices."""
    if dtype == "float0":  # the gradient with respect to an integer has this type
        call = jit(lambda n: jax.grad(lambda n: (n * 2.0).sum(), allow_int=True)(n), in_shardings=sharding)
    else:
        call = jit(lambda v: v, in_shardings=sharding, out_shardings=sharding)
    return pw.program(lambda v: call(v))(value)


def bits(array: Any) -> tuple[str, tuple[int, ...], bytes]:
    """Returns the type, shape and bytes of an array, to compare two arrays exactly."""
    shown = (str(array.dtype) if array.dtype != jax.dtypes.float0 else "float0", tuple(array.shape))
    if shown[0] == "float0":
        return *shown, b""
    if shown[0].startswith("key<"):
        array = jax.random.key_data(array.to_jax() if isinstance(array, pw.Array) else array)
    return *shown, np.asarray(array).tobytes()


def like(array: Any, sharding: NamedSharding | None = None) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)
