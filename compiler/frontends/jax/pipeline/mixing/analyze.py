"""Traces a loss for the whole batch and for one microbatch, and relates all of its results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.pipeline.mixing.layout import Digit
from pathways.compiler.frontends.jax.pipeline.mixing.relation import CONST, Kind, Relation
from pathways.compiler.frontends.jax.pipeline.mixing.walk import Walk
from pathways.dialect.jax_api import make_jaxpr


@dataclass(frozen=True, eq=False)
class Traces:
    """The jaxprs of one function for the whole batch and for one microbatch, and which leaves are of the batch."""

    whole: Any
    part: Any
    batch: frozenset[int]
    count: int


def traced_twice(flat: Callable[..., Any], avals: Sequence[Any], batch: frozenset[int], count: int) -> Traces:
    """Traces `flat(*leaves)` for the whole batch, of these types, and for one of `count` microbatches.

    A microbatch of one example broadcasts where several do not: then twice the batch is traced.
    """
    rows = min((avals[i].shape[0] for i in batch if avals[i].shape), default=0)
    larger = 2 if rows == count else 1

    def sized(parts: int) -> list[Any]:
        return [
            jax.ShapeDtypeStruct((a.shape[0] * larger // parts, *a.shape[1:]), a.dtype) if i in batch and a.shape else a
            for i, a in enumerate(avals)
        ]

    return Traces(make_jaxpr(flat)(*sized(1)), make_jaxpr(flat)(*sized(count)), batch, count)


def related(traces: Traces) -> tuple[list[Relation], Walk]:
    """The relation of each result. Raises ProgramsDiffer where the two traces are different programs."""
    bodies = compat.body_of(traces.whole), compat.body_of(traces.part)
    avals = [(x.aval, y.aval) for x, y in zip(bodies[0].invars, bodies[1].invars, strict=True)]
    sizes = frozenset((a.shape[0], b.shape[0]) for i, (a, b) in enumerate(avals) if i in traces.batch and a.shape)
    walk = Walk(traces.count, sizes)
    ins = [_argument(a, b) if i in traces.batch else CONST for i, (a, b) in enumerate(avals)]
    return walk.body(traces.whole, traces.part, ins), walk


def _argument(whole: Any, part: Any) -> Relation:
    """A leaf of the batch: its first axis numbers the examples. A scalar or a key is the same for all of them."""
    if not whole.shape:
        return CONST
    return Relation(Kind.ROWS, (Digit(0, (1, 1), (whole.shape[0], part.shape[0])),), has_data=True)
