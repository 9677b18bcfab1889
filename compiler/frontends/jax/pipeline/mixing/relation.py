"""Defines how a value in the trace of a whole batch can relate to the same value in the trace of one microbatch. It
may, for example, be the sum over the microbatches. `walk.py` computes such a relation for each value of a loss.

Write v for the value in the whole batch, and v_k for it in microbatch k:

    CONST   v = s v_k                      the value holds nothing of the batch
    ROWS    v[examples of k] = s v_k       the layout says which digits of which axes number the examples
    TOTAL   v = s (v_1 + v_2 + ...)        a sum over all examples
    TAIL    v = f(totals), f not linear    right in microbatches if the totals are added up first
    LOST    the value holds data of examples in no known layout

`s` is the scale. A cause says why a relation does not hold. Causes follow the data: only those that reach the loss
count.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from pathways.compiler.frontends.jax.compat import Eqn
from pathways.compiler.frontends.jax.pipeline.mixing.layout import BOTH, Layout, Shapes, grown_axes

Known: TypeAlias = tuple[Any, Any]
"""The numpy arrays of a value that tracing already fixes, in both traces."""
KNOWN_LIMIT = 1 << 18
"""Largest number of elements of a computed known array. Constants of one repeated number are known at any size."""
_SCALE_TOLERANCE = 1e-5
"""Relative tolerance: 32-bit constants, such as 1 / batch, are rounded."""
_ROUNDING_16_BITS = 1e-2
"""Relative tolerance within which the ratio of two 16-bit constants counts as the nearest simple fraction."""
_MAX_DENOMINATOR = 64
"""The largest denominator of a simple fraction."""


class Form(Enum):
    CONST = "const"
    ROWS = "rows"
    TOTAL = "total"
    TAIL = "tail"
    LOST = "lost"


class Tail(Enum):
    """The kind of function of totals that a tail is."""

    RATIO = "a quotient of two sums"
    INVERSE = "one divided by a sum"
    GUARDED = "a sum with a lower bound"
    SHIFTED = "a sum plus a constant"
    UNEQUAL = "a sum of terms that grow differently with the batch"
    ANY = "whether any or all examples meet a condition"
    OTHER = "another function of sums"


class Why(Enum):
    """A reason that keeps a loss over microbatches from being the loss of the whole batch."""

    BACK = "a statistic of the whole batch is applied to its examples"
    PAIRS = "examples are combined with each other"
    ORDER = "the batch is sorted, or summed in order"
    POSITION = "a number depends on the position of an example in the batch"
    SIZE = "a number depends on the number of examples"
    CONTROL = "values of the batch decide which code runs"
    PARTIAL = "a function of a sum over a part of the batch"
    DATA = "an example selects rows of other examples"
    NOISE = "one random key draws numbers for the whole batch"
    UNKNOWN = "it is not known what an operation does with the batch"

    @property
    def mixes(self) -> bool:
        return self not in (Why.NOISE, Why.UNKNOWN)


@dataclass(frozen=True, eq=False, slots=True)
class Site:
    """One equation of the loss, and the calls around it, the outermost first. Compared by identity."""

    eqn: Eqn
    calls: tuple[tuple[Eqn, bool], ...]
    """Each call, and whether JAX itself wrote the called function."""


@dataclass(frozen=True, slots=True)
class MixingCause:
    """One reason, and the equation at which it arises. `source` is the site of the statistic, if there is one."""

    why: Why
    site: Site
    text: str
    source: Site | None = None


NO_CAUSES: frozenset[MixingCause] = frozenset()


@dataclass(frozen=True, slots=True)
class Relation:
    """Relates one value of the whole batch's trace to the same value of a microbatch's trace."""

    form: Form = Form.CONST
    layout: Layout = ()
    scale: float | None = 1.0
    """None if no single factor relates the two values."""
    known: Known | None = field(default=None, compare=False)
    own: frozenset[int] = frozenset()
    """Columns of an index array that hold the example's own number."""
    causes: frozenset[MixingCause] = NO_CAUSES
    origin: Site | None = None
    """The site at which a total or a tail is computed."""
    tail: Tail | None = None
    is_partial: bool = False
    """Whether rows are sums over a part of the batch."""
    has_data: bool = False
    """Whether rows hold data of examples, and not only their shape."""
    is_even: bool = True
    """Whether an unknown constant is the same along each axis that grows with the batch."""
    is_pure: bool = False
    """Whether it depends only on the batch, on keys and on integers, and not on numbers that may be parameters."""
    adds_up: bool = False
    """Whether it is the sum that a loop over the examples has carried so far."""

    @property
    def is_statistic(self) -> bool:
        """Whether it is one value of the whole batch."""
        return self.form in (Form.TOTAL, Form.TAIL)

    @property
    def factor(self) -> float | None:
        """Returns the scale, from the numbers if the constant is known; None for a constant that is not even."""
        if self.form is not Form.CONST:
            return self.scale
        if self.known is not None:
            return _factor_of(self.known)
        return self.scale if self.is_even else None

    @property
    def is_zero(self) -> bool:
        if self.form is not Form.CONST or self.known is None:
            return False
        return not any(np.any(np.asarray(_first_if_filled(k), bool)) for k in self.known)


CONST = Relation()


def fill_of(array: Any) -> Any:
    """Returns the number that fills a whole array, as a scalar array; None if the strides do not show one number."""
    if array.size == 1:
        return array.reshape(())
    same = array.size and all(s == 0 or d == 1 for s, d in zip(array.strides, array.shape, strict=True))
    return array[(0,) * array.ndim] if same else None


def is_close(a: float | None, b: float | None) -> bool:
    """Whether two scales are equal up to rounding."""
    return a is not None and b is not None and abs(a - b) <= _SCALE_TOLERANCE * max(abs(a), abs(b))


def is_same_everywhere(scales: Iterable[float | None]) -> bool:
    """Whether all scales are known and equal."""
    found = list(scales)
    return all(is_close(s, found[0]) for s in found)


def is_level(relation: Relation, shapes: Shapes) -> bool:
    """Whether a constant is the same along each axis that grows with the batch, and in both traces."""
    if shapes[0] == shapes[1] or relation.known is None or fill_of(relation.known[0]) is not None:
        return relation.is_even
    grown = grown_axes(shapes)
    first = tuple(slice(0, 1) if axis in grown else slice(None) for axis in range(len(shapes[0])))
    row = relation.known[1][first]
    return all(np.array_equal(k, np.broadcast_to(row, k.shape)) for k in relation.known)


def filled(relation: Relation, shapes: Shapes) -> Known | None:
    """Returns a known constant of one repeated number in other shapes; None if it has several numbers."""
    fills = None if relation.known is None else [fill_of(k) for k in relation.known]
    if fills is None or any(f is None for f in fills):
        return None
    return np.broadcast_to(fills[0], shapes[0]), np.broadcast_to(fills[1], shapes[1])


def per_microbatch(factor: float | None, count: int) -> float | None:
    """Returns the scale of a constant as the total of `count` equal parts."""
    return None if factor is None else factor / count


def forgotten(relation: Relation, shapes: Shapes) -> Relation:
    """Returns the same constant without its known numbers."""
    if relation.form is not Form.CONST or relation.known is None:
        return replace(relation, known=None)
    return replace(relation, known=None, scale=relation.factor, is_even=is_level(relation, shapes))


def tiles(relation: Relation, shapes: Shapes, layout: Layout) -> bool:
    """Whether a microbatch's rows of a constant equal the constant in the microbatch's trace, for each microbatch."""
    if relation.known is None:
        return relation.is_even and (not shapes[0] or not _has_fixed_parts(layout))
    if fill_of(relation.known[0]) is not None:
        return True
    if shapes[0] == shapes[1] and not _has_fixed_parts(layout):
        return True
    rows = [_in_rows(relation.known[t], t, layout) for t in BOTH]
    if rows[0] is None or rows[1] is None or not len(rows[1]) or len(rows[0]) % len(rows[1]):
        return False
    return all(np.array_equal(rows[0][k : k + len(rows[1])], rows[1]) for k in range(0, len(rows[0]), len(rows[1])))


def _has_fixed_parts(layout: Layout) -> bool:
    """Whether an axis numbers equally many parts of the batch and of a microbatch: these hold different examples."""
    return any(d.dim >= 0 and not d.grows and any(e.grows for e in layout[i + 1 :]) for i, d in enumerate(layout))


def _in_rows(array: Any, t: int, layout: Layout) -> Any:
    """Returns a matrix with one row per example, in order; None if the layout does not match the array."""
    shape: list[int] = []
    axis_of: dict[int, int] = {}
    for dim, size in enumerate(array.shape):
        left = size
        for digit in sorted((d for d in layout if d.dim == dim), key=lambda d: -d.inner[t]):
            if not digit.block[t] or left % digit.block[t]:
                return None
            shape += [left // digit.block[t], digit.n[t]]
            axis_of[layout.index(digit)] = len(shape) - 1
            left = digit.inner[t]
        shape.append(left)
    front = [axis_of[i] for i in sorted(axis_of)]
    rest = [i for i in range(len(shape)) if i not in front]
    count = math.prod(shape[i] for i in front)
    return array.reshape(shape).transpose(front + rest).reshape((count, -1)) if count else None


def _first_if_filled(array: Any) -> Any:
    fill = fill_of(array)
    return array if fill is None else fill


def _rounded(ratio: float, dtype: Any) -> float:
    """Returns the ratio of two constants; for 16-bit constants, the nearest simple fraction."""
    if dtype.itemsize != 2:
        return ratio
    simple = float(Fraction(ratio).limit_denominator(_MAX_DENOMINATOR))
    return simple if abs(simple - ratio) <= _ROUNDING_16_BITS * ratio else ratio


def _factor_of(known: Known) -> float | None:
    a, b = fill_of(known[0]), fill_of(known[1])
    if a is not None and b is not None:
        if a == b or (a != a and b != b):
            return 1.0
        is_ratio = bool(b) and np.issubdtype(np.result_type(a), np.number) and float(a) / float(b) > 0
        return _rounded(float(a) / float(b), known[0].dtype) if is_ratio else None
    if known[0].shape != known[1].shape or known[0].size > KNOWN_LIMIT:
        return 1.0
    has_nan = np.issubdtype(known[0].dtype, np.inexact)
    return 1.0 if np.array_equal(*known, equal_nan=has_nan) else None
