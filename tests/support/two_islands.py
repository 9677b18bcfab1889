"""Two computations on two slices, for programs on two islands with one host each."""

from typing import Any

import jax
import numpy as np
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

X = np.arange(16.0, dtype=np.float32).reshape(4, 4)
here, there = pw.program(lambda x: f(x)), pw.program(lambda x: g(x))


@pw.program
def both(x: Any) -> Any:
    for _ in range(3):
        x = g(f(x)) / 100
    return x, f(x)
