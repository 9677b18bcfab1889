"""Two computations on two slices, for programs whose islands are two hosts."""

from typing import Any

import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

jit: Any = jax.jit
SLICES = pw.make_virtual_device_set()
HERE, THERE = (NamedSharding(SLICES.add_slice(devices=2).mesh("x"), P("x")) for _ in range(2))


def double(x: Any) -> Any:
    return x * 2 + 1


def square(x: Any) -> Any:
    return x @ x.T


f = jit(double, in_shardings=HERE, out_shardings=HERE)
g = jit(square, in_shardings=THERE, out_shardings=THERE)
