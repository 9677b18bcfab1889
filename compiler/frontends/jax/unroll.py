"""Unrolls a scan whose body contains placed jits. Arrays that the scan stacks stay lists of one element per iteration,
so that microbatches stay independent. `flatten.py` uses it.

A forward scan stacks the residuals that the backward scan slices again. As an array, the stack would make every
backward step wait for every forward step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from jax import lax

from pathways.compiler.frontends.jax.compat import Aval
from pathways.compiler.frontends.jax.graph import Constant, Operand, TracedValue
from pathways.dialect.jax_api import numpy


class UnrollTracer(Protocol):
    """The methods that unrolling needs from the graph walk in `flatten.py`."""

    def constant(self, array: Any, name: str = "") -> Constant: ...
    def as_value(self, operand: Operand) -> TracedValue: ...
    def traced(self, function: Callable[..., Any], operands: Sequence[Operand], scope: str) -> list[Operand]: ...


@dataclass(eq=False)
class Stacked:
    """An array with one element per iteration in its leading dimension, not built yet."""

    aval: Aval
    elements: list[Operand]
    scope: str
    built: list[TracedValue] = field(default_factory=list[TracedValue])


def unrolled_order(length: int, reverse: bool) -> Sequence[int]:
    return range(length)[::-1] if reverse else range(length)


def index_of(tracer: UnrollTracer, xs: Operand, t: int, scope: str) -> Operand:
    """Returns element t of a scanned array. t is an operand, not part of the code, so one computation serves all t."""
    if isinstance(xs, Stacked):
        return xs.elements[t]
    index = tracer.constant(np.uint32(t), name=f"index {t}")
    (element,) = tracer.traced(_element, [xs, index], scope)
    return element


def _element(xs: Any, t: Any) -> Any:
    """Extracts one element. An unsigned index needs no code for negative indices."""
    starts = [t] + [np.uint32(0)] * (xs.ndim - 1)
    return lax.squeeze(lax.dynamic_slice(xs, starts, (1, *xs.shape[1:])), [0])


def stack(tracer: UnrollTracer, stacked: Stacked) -> TracedValue:
    """Builds the array, once."""
    if not stacked.built:
        if stacked.elements:
            (array,) = tracer.traced(_stack, stacked.elements, stacked.scope)
        else:
            (array,) = tracer.traced(lambda: numpy.empty(stacked.aval.shape, stacked.aval.dtype), [], stacked.scope)
        stacked.built.append(tracer.as_value(array))
    return stacked.built[0]


def _stack(*elements: Any) -> Any:
    return numpy.stack(elements)
