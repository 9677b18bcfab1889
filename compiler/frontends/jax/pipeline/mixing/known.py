"""Computes constants of a loss with numpy during the analysis: iota, masks, one divided by the batch size. Their values
show if rows of the batch are treated differently. `constants.py` calls it.

Constants of one repeated number are never materialized at full size.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.compat import Eqn
from pathways.compiler.frontends.jax.pipeline.mixing.relation import KNOWN_LIMIT, fill_of
from pathways.dialect import jax_api

_any_np = cast("Any", np)
_Params = Mapping[str, Any]
_Compute = Callable[..., Any]


def _divided(a: Any, b: Any) -> Any:
    quotient: Any = _any_np.divide(a, b)
    return quotient if np.issubdtype(a.dtype, np.inexact) else _any_np.asarray(_any_np.trunc(quotient), a.dtype)


def _selected(which: Any, *cases: Any) -> Any:
    return _any_np.where(which, cases[1], cases[0]) if len(cases) == 2 else None


def _clamped(low: Any, x: Any, high: Any) -> Any:
    return np.minimum(np.maximum(x, low), high)


def _inverse_root(a: Any) -> Any:
    return 1 / np.sqrt(a)


def _same(a: Any) -> Any:
    return a


_UFUNCS: dict[str, _Compute] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divided,
    "rem": np.fmod,
    "max": np.maximum,
    "min": np.minimum,
    "pow": np.power,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "neg": np.negative,
    "sign": np.sign,
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "sqrt": np.sqrt,
    "rsqrt": _inverse_root,
    "log": np.log,
    "exp": np.exp,
    "sin": np.sin,
    "cos": np.cos,
    "square": np.square,
    "is_finite": np.isfinite,
    "select_n": _selected,
    "clamp": _clamped,
    "stop_gradient": _same,
    "copy": _same,
    "copy_p": _same,
    "sharding_constraint": _same,
    "reduce_precision": _same,
}


def _powered(p: _Params, a: Any) -> Any:
    return a ** p["y"] if p["y"] >= 0 else 1 / a ** -p["y"]


def _converted(p: _Params, a: Any) -> Any:
    return a.astype(p["new_dtype"])


_WITH_PARAMS: dict[str, _Compute] = {"integer_pow": _powered, "convert_element_type": _converted}


def _broadcast(p: _Params, a: Any) -> Any:
    shape = [1] * len(p["shape"])
    for axis, dim in enumerate(p["broadcast_dimensions"]):
        shape[dim] = a.shape[axis]
    return np.broadcast_to(np.reshape(a, shape), p["shape"])


def _reshaped(p: _Params, a: Any) -> Any:
    fill = fill_of(a)
    return np.broadcast_to(fill, p["new_sizes"]) if fill is not None else a.reshape(p["new_sizes"])


def _sliced(p: _Params, a: Any) -> Any:
    bounds = zip(p["start_indices"], p["limit_indices"], p["strides"] or [1] * a.ndim, strict=True)
    return a[tuple(slice(*b) for b in bounds)]


def _cumulated(p: _Params, a: Any) -> Any:
    if p["reverse"]:
        return np.flip(np.cumsum(np.flip(a, p["axis"]), p["axis"], dtype=a.dtype), p["axis"])
    return np.cumsum(a, p["axis"], dtype=a.dtype)


def _axes(p: _Params) -> tuple[int, ...]:
    return tuple(int(axis) for axis in p["axes"])


def _transposed(p: _Params, a: Any) -> Any:
    return a.transpose(p["permutation"])


def _squeezed(p: _Params, a: Any) -> Any:
    return np.squeeze(a, tuple(p["dimensions"]))


def _reversed(p: _Params, a: Any) -> Any:
    return np.flip(a, p["dimensions"])


def _concatenated(p: _Params, *arrays: Any) -> Any:
    return np.concatenate(arrays, p["dimension"])


def _summed(p: _Params, a: Any) -> Any:
    return np.asarray(a.sum(_axes(p), dtype=None if a.dtype == bool else a.dtype))


def _reduced(name: str) -> _Compute:
    def reduce(p: _Params, a: Any) -> Any:
        return getattr(a, name)(_axes(p))

    return reduce


_SHAPES: dict[str, _Compute] = {
    "broadcast_in_dim": _broadcast,
    "reshape": _reshaped,
    "transpose": _transposed,
    "squeeze": _squeezed,
    "rev": _reversed,
    "slice": _sliced,
    "concatenate": _concatenated,
    "cumsum": _cumulated,
    "reduce_sum": _summed,
    "reduce_max": _reduced("max"),
    "reduce_min": _reduced("min"),
    "reduce_and": _reduced("all"),
    "reduce_or": _reduced("any"),
}
_DEPEND_ON_FILL = ("reduce_max", "reduce_min", "reduce_and", "reduce_or")
"""Reductions that return the number itself for an array of one repeated number."""
_BY_JAX = (
    *("gather", "scatter", "scatter-add", "dynamic_slice", "dynamic_update_slice", "pad", "sort", "argmax", "split"),
    *("stack", "unstack", "argmin", "top_k"),
)
"""Operations on small known arrays whose results JAX itself computes."""


def computed(eqn: Eqn, args: Sequence[Any]) -> list[Any] | None:
    """Returns the numpy results of an equation on known arrays.

    Returns None if they are too large or numpy lacks the operation.
    """
    name, aval = eqn.primitive.name, eqn.outvars[0].aval
    try:
        with np.errstate(all="ignore"):
            if name == "iota":
                return _iota(eqn.params)
            out = None
            if name in _UFUNCS or name in _WITH_PARAMS:
                out = _elementwise(name, eqn.params, args, aval)
            elif name in _SHAPES:
                out = _of_shapes(name, eqn.params, args, aval)
            if out is not None:
                return [out]
        if name in _BY_JAX and max(math.prod(v.aval.shape) for v in (*eqn.invars, *eqn.outvars)) <= KNOWN_LIMIT:
            with compat.computed_at_once():
                return [np.asarray(x) for x in compat.bind(eqn, [jax_api.numpy.asarray(a) for a in args])]
    except (TypeError, ValueError, KeyError, IndexError, OverflowError):  # numpy lacks it, as powers of bfloat16
        return None
    return None


def _iota(p: _Params) -> list[Any] | None:
    shape = p["shape"]
    if math.prod(shape) > KNOWN_LIMIT:
        return None
    line = np.arange(shape[p["dimension"]], dtype=p["dtype"])
    return [np.broadcast_to(line.reshape([-1 if i == p["dimension"] else 1 for i in range(len(shape))]), shape)]


def _elementwise(name: str, p: _Params, args: Sequence[Any], aval: Any) -> Any:
    def compute(*given: Any) -> Any:
        return _UFUNCS[name](*given) if name in _UFUNCS else _WITH_PARAMS[name](p, *given)

    fills = [fill_of(a) for a in args]
    if all(f is not None for f in fills):
        out = compute(*fills)
        return None if out is None else np.broadcast_to(np.asarray(out, aval.dtype), aval.shape)
    if math.prod(aval.shape) > KNOWN_LIMIT:
        return None
    out = compute(*args)
    return None if out is None else np.asarray(out, aval.dtype)


def _of_shapes(name: str, p: _Params, args: Sequence[Any], aval: Any) -> Any:
    fill, size = fill_of(args[0]), math.prod(aval.shape)
    if name == "reduce_sum" and fill is not None:
        return np.broadcast_to(np.asarray(fill * (args[0].size // max(1, size)), aval.dtype), aval.shape)
    if max(size, *(a.size for a in args)) > KNOWN_LIMIT:
        if fill is None or name in ("concatenate", "cumsum"):
            return None
        if name in _DEPEND_ON_FILL:
            return np.broadcast_to(np.asarray(fill, aval.dtype), aval.shape)
    out = _SHAPES[name](p, *args)
    if out.dtype == aval.dtype:
        return out
    fill = fill_of(out)
    return out.astype(aval.dtype) if fill is None else np.broadcast_to(np.asarray(fill, aval.dtype), out.shape)
