"""Traces a loss twice, for the whole batch and for one microbatch. It then finds how each result of one trace relates
to the same result of the other. `handling.py` and `hoist.py` call it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.pipeline.mixing.layout import Digit
from pathways.compiler.frontends.jax.pipeline.mixing.relation import Form, Relation
from pathways.compiler.frontends.jax.pipeline.mixing.walk import Walk
from pathways.dialect.jax_api import dtypes, make_jaxpr, numpy


class NoWholeTrace(Exception):
    """The loss cannot be traced for the whole batch."""


@dataclass(frozen=True, eq=False)
class Traces:
    """The jaxprs of one function for the whole batch and for one microbatch.

    `batch` holds the positions of the batch leaves.
    """

    whole: Any
    part: Any
    batch: frozenset[int]
    count: int


def traced_twice(
    flat: Callable[..., Any], avals: Sequence[Any], batch: frozenset[int], count: int, times: int = 1
) -> Traces:
    """Traces `flat(*leaves)` for `times` the whole batch, and for one of `count` microbatches of it.

    `avals` are the types of the leaves for the whole batch. Raises what the loss raises for a microbatch, and
    NoWholeTrace if it raises anything for the whole batch.
    """

    whole_types, part_types = (types_of_part(avals, batch, times, parts) for parts in (1, count))
    part = make_jaxpr(flat)(*part_types) if times == 1 else None
    try:
        whole = make_jaxpr(flat)(*whole_types)
        part = make_jaxpr(flat)(*part_types) if part is None else part
    except Exception as error:  # the user's error: the loss may accept only the rows of a microbatch
        raise NoWholeTrace(f"{type(error).__name__}: {error}".splitlines()[0]) from error
    return Traces(whole, part, batch, count)


def types_of_part(avals: Sequence[Any], batch: frozenset[int], times: int, parts: int) -> list[Any]:
    """Returns the types of the leaves for one of `parts` parts of `times` the whole batch."""
    return [
        jax.ShapeDtypeStruct((a.shape[0] * times // parts, *a.shape[1:]), a.dtype) if i in batch and a.shape else a
        for i, a in enumerate(avals)
    ]


def has_single_rows(avals: Sequence[Any], batch: frozenset[int], count: int) -> bool:
    """Whether a microbatch is one example: an axis of size one broadcasts, and a longer axis does not."""
    return any(avals[i].shape[:1] == (count,) for i in batch)


def related(traces: Traces) -> tuple[list[Relation], Walk]:
    """Relates each result. Raises ProgramsDiffer if the two traces are different programs."""
    ins, sizes = arguments_of(traces)
    walk = Walk(traces.count, sizes)
    return walk.body(traces.whole, traces.part, ins), walk


def arguments_of(traces: Traces) -> tuple[list[Relation], frozenset[tuple[int, int]]]:
    """Relates the arguments of a loss. Also returns the numbers of examples in both traces."""
    bodies = compat.body_of(traces.whole), compat.body_of(traces.part)
    avals = [(x.aval, y.aval) for x, y in zip(bodies[0].invars, bodies[1].invars, strict=True)]
    sizes = frozenset((a.shape[0], b.shape[0]) for i, (a, b) in enumerate(avals) if i in traces.batch and a.shape)
    return [_argument(a, b, is_batch=i in traces.batch) for i, (a, b) in enumerate(avals)], sizes


def _argument(whole: Any, part: Any, *, is_batch: bool) -> Relation:
    """Relates a leaf of the loss's arguments.

    The first axis of a leaf of the batch numbers the examples. A scalar or a key is the same for all examples.
    """
    if is_batch and whole.shape:
        layout = (Digit(0, (1, 1), (whole.shape[0], part.shape[0])),)
        return Relation(Form.ROWS, layout, has_data=True, is_pure=True)
    is_number = dtypes.issubdtype(whole.dtype, numpy.inexact)
    return Relation(is_pure=is_batch or not is_number)
