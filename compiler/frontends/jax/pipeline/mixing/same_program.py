"""Checks that a loss runs the same operations for one example as for several. With one example, JAX may omit a
broadcast. `handling.py` calls it if microbatches have one example, because it then analyzes a trace with more examples.
"""

from typing import Any, TypeAlias

import numpy as np

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.compat import Eqn, body_of
from pathways.compiler.frontends.jax.pipeline.mixing.analyze import Traces
from pathways.compiler.frontends.jax.pipeline.mixing.relation import is_close
from pathways.compiler.frontends.jax.pipeline.mixing.walk import (
    axis_counts,
    closed_over,
    is_written_by_jax,
    works_along_same_axes,
)
from pathways.compiler.frontends.jax.pipeline.work import JITS

_Numbers: TypeAlias = tuple[Any, Any]
"""A number in the programs for several examples and for one: a literal, a size, or what fills a constant, if any."""


def compared(several: Traces, single: Traces) -> list[tuple[_Numbers, _Numbers]] | None:
    """Returns each number of the programs for several examples and for one, in the whole batch and in a microbatch.

    Returns None if microbatches of one example run other operations than microbatches of several. Functions of JAX
    itself are compared by name.
    """
    whole, part = list[_Numbers](), list[_Numbers]()
    if not (_are_alike(several.part, single.part, part) and _are_alike(several.whole, single.whole, whole)):
        return None
    return [*zip(whole, part, strict=True)] if len(whole) == len(part) else None


def grow_alike(whole: _Numbers, part: _Numbers) -> bool:
    """Returns whether a number grows with the batch in the same way for one example as for several.

    A number such as `max(1, rows // 2)` does not. Arrays of different numbers, and sizes inside functions of JAX
    itself, are not compared.
    """
    if any(number is None for number in (*whole, *part)):
        return True
    if all(a is b or np.array_equal(a, b, equal_nan=True) for a, b in (whole, part)):  # they may be infinite
        return True
    if any(np.ndim(number) for number in (*whole, *part)):
        return False
    found: list[Any] = [complex(number) for number in (*whole, *part)]
    return is_close(found[0] * found[3], found[1] * found[2])


def _are_alike(one: Any, other: Any, numbers: list[_Numbers]) -> bool:
    """Whether two programs run the same operations. Adds the numbers of both to `numbers`."""
    a, b = body_of(one), body_of(other)
    if len(a.eqns) != len(b.eqns) or len(a.outvars) != len(b.outvars):
        return False
    numbers += [(_filling(x), _filling(y)) for x, y in zip(a.consts, b.consts, strict=False)]
    twins = dict(zip((*a.constvars, *a.invars), (*b.constvars, *b.invars), strict=False))

    def is_twin(x: Any, y: Any) -> bool:
        if isinstance(x, compat.Literal) and isinstance(y, compat.Literal):
            numbers.append((compat.as_literal_value(x), compat.as_literal_value(y)))
            return True
        return not isinstance(x, compat.Literal) and twins.get(x) is y

    for x, y in zip(a.eqns, b.eqns, strict=True):
        if not _does_the_same(x, y, numbers) or not all(map(is_twin, x.invars, y.invars)):
            return False
        twins.update(zip(x.outvars, y.outvars, strict=True))
        numbers += [n for v, w in zip(x.outvars, y.outvars, strict=True) for n in zip(*_shapes(v, w), strict=True)]
    return all(map(is_twin, a.outvars, b.outvars))


def _shapes(x: Any, y: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return getattr(x.aval, "shape", ()), getattr(y.aval, "shape", ())


def _filling(array: Any) -> Any:
    """Returns the number that a small array repeats, which the loss closes over; None if it is another array."""
    known = closed_over(array, array).known
    if known is None or not known[0].size:
        return None
    first = known[0].reshape(-1)[:1]
    return first[0] if np.array_equal(known[0], np.broadcast_to(first, known[0].shape)) else None


def _does_the_same(x: Eqn, y: Eqn, numbers: list[_Numbers]) -> bool:
    if x.primitive is not y.primitive or axis_counts(x) != axis_counts(y):
        return False
    if not works_along_same_axes(x.params, y.params):
        return False
    if x.primitive.name in JITS and is_written_by_jax(x.params["jaxpr"]):
        return x.params.get("name") == y.params.get("name")
    inner = [*compat.sub_jaxprs(x)], [*compat.sub_jaxprs(y)]
    return len(inner[0]) == len(inner[1]) and all(_are_alike(a, b, numbers) for a, b in zip(*inner, strict=True))
