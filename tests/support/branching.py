"""A program with a loop and a data-dependent branch over two slices, and its expected results."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

jit: Any = jax.jit
X = np.arange(8, dtype=np.float32)


def placed(function: Callable[..., Any], devices: int = 2) -> Any:
    """Jits a function on a new slice."""
    split = NamedSharding(pw.make_virtual_device_set().add_slice(devices=devices).mesh("x"), P("x"))
    return jit(function, in_shardings=split, out_shardings=split)


def double(x: Any) -> Any:
    return 2 * x


def less(x: Any) -> Any:
    return x - 1


def half(x: Any) -> Any:
    return x / 2


def other(x: Any) -> Any:
    return x + 100


def looping() -> Any:
    """Builds a program with a loop over two slices, a branch after the loop, and a call independent of both."""
    f, g, h = placed(double), placed(less), placed(other)

    @pw.program
    def work(x: Any, n: Any) -> Any:
        y = lax.fori_loop(0, n, lambda i, v: g(f(v)), x)
        z = lax.cond(y.sum() > 0, lambda v: f(v), lambda v: g(v) * 3, y)
        return y, z, h(x)

    return work


def plain(x: Any, n: int) -> tuple[Any, Any, Any]:
    y = x
    for _ in range(n):
        y = 2 * y - 1
    return y, (2 * y if y.sum() > 0 else (y - 1) * 3), x + 100


def same(results: Any, expected: Any) -> None:
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-6)


SOURCE = """
import jax, numpy as np, pathways as pw
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P

def placed(function):
    split = NamedSharding(pw.make_virtual_device_set().add_slice(devices=2).mesh("x"), P("x"))
    return jax.jit(function, in_shardings=split, out_shardings=split)

def double(x):
    return 2 * x

def less(x):
    return x - 1

f, g = placed(double), placed(less)

@pw.program(example_args=(jax.ShapeDtypeStruct((8,), np.float32), jax.ShapeDtypeStruct((), np.int32)))
def work(x, n):
    y = lax.fori_loop(0, n, lambda i, v: g(f(v)), x)
    return y, lax.cond(y.sum() > 0, lambda v: f(v), lambda v: g(v) * 3, y)

args = jax.ShapeDtypeStruct((8,), np.float32), jax.ShapeDtypeStruct((), np.int32)

@pw.program(example_args=args)
def nested(x, n):
    def inner(i, v):
        return lax.cond(v.sum() > 10, lambda u: g(f(u)), lambda u: f(u) + i, v)
    return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, lax.fori_loop(0, c[0], inner, c[1])), (0, x))

@pw.program(example_args=args)
def differentiated(x, n):
    def loss(x):
        def body(c, _):
            return lax.cond(c[0] > 0, lambda v: g(f(v)), lambda v: g(v), c), c.sum()
        c, ys = lax.scan(body, x, None, length=3)
        return (c**2).sum() + ys.sum()
    return jax.value_and_grad(loss)(x)

@pw.program(example_args=args)
def randomized(x, n):
    return f(x) + jax.random.normal(jax.random.key(0), (8,)) + n

@pw.program(example_args=args)
def of_nothing(x, n):
    return lax.cond(n > 0, lambda: f(np.ones(8, np.float32)), lambda: g(np.zeros(8, np.float32)))
"""
"""A source file with similar programs: plain, nested, differentiated, randomized, and without operands."""
