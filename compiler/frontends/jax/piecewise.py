"""Knows which JAX operations can be computed piece by piece, if an array is stored in several buffers along an axis.
For one piece, it returns the equation. `partitions.py` and `pieces.py` use it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.compat import Aval, Eqn

ELEMENTWISE = frozenset(
    {
        "abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil",
        "clamp", "complex", "conj", "convert_element_type", "copy", "copy_p", "cos", "cosh", "digamma", "div", "eq",
        "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt", "imag", "integer_pow", "is_finite", "le",
        "lgamma", "log", "log1p", "logistic", "lt", "max", "min", "mul", "ne", "neg", "nextafter", "not", "or", "pow",
        "real", "reduce_precision", "rem", "round", "rsqrt", "select_n", "shift_left", "shift_right_arithmetic",
        "shift_right_logical", "sign", "sin", "sinh", "sqrt", "square", "stop_gradient", "sub", "tan", "tanh", "xor",
    }
)  # fmt: skip
REDUCTIONS = {"reduce_sum": "add", "reduce_max": "max", "reduce_min": "min", "reduce_prod": "mul",
              "reduce_and": "and", "reduce_or": "or"}  # fmt: skip
"""Reductions, and the operation that combines the results of two pieces."""
KEEP_ZERO = frozenset({"convert_element_type", "copy", "copy_p", "neg", "reshape", "squeeze", "transpose"})
"""Operations that map zeros to zeros. Their zero pieces are never built."""


@dataclass(frozen=True)
class Partition:
    """One axis of an array, cut into pieces of these sizes."""

    axis: int
    sizes: tuple[int, ...]

    @cached_property
    def starts(self) -> tuple[int, ...]:
        return tuple(accumulate(self.sizes, initial=0))[:-1]

    @property
    def intervals(self) -> list[tuple[int, int]]:
        return [(a, a + n) for a, n in zip(self.starts, self.sizes, strict=True)]

    def moved(self, axis: int) -> "Partition":
        """Returns the same cuts of another axis."""
        return self if axis == self.axis else Partition(axis, self.sizes)


def piece_aval(aval: Aval, axis: int, size: int) -> Aval:
    """Returns the type of a piece with `size` elements along an axis."""
    shape = list(aval.shape)
    shape[axis] = size
    return compat.array_aval(tuple(shape), aval.dtype, weak_type=bool(getattr(aval, "weak_type", False)))


def along(eqn: Eqn, axis: int) -> tuple[int | None, ...] | None:
    """Finds the axis to cut in each operand of an equation whose only result is cut along an axis.

    An operand's axis is None if every piece takes it whole. Returns None if pieces of the result do not follow from
    pieces of the operands.
    """
    name: str = eqn.primitive.name
    if len(eqn.outvars) != 1 or eqn.effects:
        return None
    out, shapes, params = eqn.outvars[0].aval.shape, [v.aval.shape for v in eqn.invars], eqn.params
    if name in ELEMENTWISE:
        return tuple(axis if shape and shape[axis] == out[axis] else None for shape in shapes) if out else None
    if params.get("sharding") is not None or params.get("out_sharding") is not None:
        return None
    match name:
        case "broadcast_in_dim":
            found = [i for i, d in enumerate(params["broadcast_dimensions"]) if d == axis]
            cut = found[0] if found and shapes[0][found[0]] == out[axis] else None
            return (cut,) if len(shapes) == 1 else None
        case "transpose":
            return (params["permutation"][axis],)
        case "squeeze":
            return (_kept(len(shapes[0]), params["dimensions"])[axis],)
        case "reshape":
            return _reshaped(shapes, out, axis) if params.get("dimensions") is None else None
        case "pad":
            return (axis, None) if tuple(map(int, params["padding_config"][axis])) == (0, 0, 0) else None
        case "slice":
            whole = params["start_indices"][axis] == 0 and out[axis] == shapes[0][axis]
            return (axis,) if whole else None
        case "concatenate":
            return (axis,) * len(shapes) if params["dimension"] != axis else None
        case "iota":
            return () if params["dimension"] != axis and not shapes else None
        case _ if name in REDUCTIONS:
            return (_kept(len(shapes[0]), params["axes"])[axis],)
        case _:
            return None


def _kept(rank: int, dropped: Sequence[int]) -> list[int]:
    return [i for i in range(rank) if i not in dropped]


def _reshaped(shapes: Sequence[tuple[int, ...]], out: tuple[int, ...], axis: int) -> tuple[int | None, ...] | None:
    """Finds the axis that a reshape keeps: it has the same number of elements before and after it."""
    (given,) = shapes
    before = math.prod(out[:axis])
    for i, size in enumerate(given):
        if size == out[axis] and math.prod(given[:i]) == before and out[axis] > 1:
            return (i,)
    return None


def followed(eqn: Eqn, operand: int, axis: int) -> int | None:
    """Returns the axis of the result that is cut like this axis of an operand; None if pieces end here."""
    if len(eqn.outvars) != 1:
        return None
    for out in range(len(eqn.outvars[0].aval.shape)):
        cut = along(eqn, out)
        if cut is not None and cut[operand] == axis:
            return out
    return None


def piece_equation(eqn: Eqn, axis: int, size: int) -> Eqn:
    """Returns the equation that computes `size` elements of the result along an axis."""
    aval = piece_aval(eqn.outvars[0].aval, axis, size)
    cut = along(eqn, axis) or ()
    invars = [
        v if a is None or isinstance(v, compat.Literal) else compat.variable(piece_aval(v.aval, a, size))
        for v, a in zip(eqn.invars, cut, strict=True)
    ]
    params: dict[str, Any] = dict(eqn.params)
    match eqn.primitive.name:
        case "broadcast_in_dim" | "iota":
            params["shape"] = aval.shape
        case "reshape":
            params["new_sizes"] = aval.shape
        case "slice":
            limits = list(params["limit_indices"])
            limits[axis] = size
            params["limit_indices"] = tuple(limits)
        case _:
            pass
    return eqn.replace(invars=invars, outvars=[compat.variable(aval)], params=params)
