"""Estimates the cost of one JAX equation: the flops of its forward pass, and the bytes that its backward pass needs.
`open.py` and `compiler/search` use the estimates to choose pipeline stages.

The estimates read only the kind of operation. A cut only compares ranges of equations, and must not take longer than
tracing them. The plan's own figures come later, from compiled code.
"""

import math
from collections.abc import Sequence
from typing import Any

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.compat import Aval, Eqn, body_of
from pathways.compiler.frontends.jax.homes import aval_bytes

JITS = frozenset({"jit", "pjit", "closed_call", "core_call"})
REMATS = frozenset({"checkpoint", "remat", "remat2"})
CUSTOM = frozenset({"custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"})
_MOVES_DATA = frozenset(
    {
        "broadcast_in_dim",
        "concatenate",
        "convert_element_type",
        "copy",
        "copy_p",
        "dynamic_slice",
        "dynamic_update_slice",
        "gather",
        "iota",
        "pad",
        "reshape",
        "rev",
        "sharding_constraint",
        "slice",
        "split",
        "squeeze",
        "stop_gradient",
        "transpose",
    }
)
_KEEPS_OPERANDS = frozenset(
    {"conv_general_dilated", "cos", "div", "dot_general", "erf", "integer_pow", "max", "min", "mul", "pow", "sin"}
    | {"square"}
)
_KEEPS_RESULTS = frozenset(
    {"exp", "expm1", "gather", "log", "log1p", "logistic", "reduce_max", "rsqrt", "select_n", "sqrt", "tanh"}
)


def bytes_of(aval: Aval) -> int:
    """Returns the bytes of a value of this type; 0 if it is not an array."""
    return aval_bytes(aval) if hasattr(aval, "dtype") and hasattr(aval, "shape") else 0


def flops_of_eqn(eqn: Eqn) -> float:
    """Returns the floating-point operations of an equation. A loop counts as often as it runs, if that is known."""
    name: str = eqn.primitive.name
    if name == "scan":
        return eqn.params["length"] * _flops_of_body(eqn.params["jaxpr"])
    if name == "cond":
        return max((_flops_of_body(b) for b in eqn.params["branches"]), default=0)
    if name == "while":
        return _flops_of_body(eqn.params["body_jaxpr"])
    for inner in compat.sub_jaxprs(eqn):
        return _flops_of_body(inner)
    out = sum(_size(v.aval) for v in eqn.outvars)
    if name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return 2 * out * math.prod(eqn.invars[0].aval.shape[i] for i in contracted)
    if name == "conv_general_dilated":
        kernel, features = eqn.invars[1].aval, eqn.params["dimension_numbers"].rhs_spec[0]
        return 2 * out * _size(kernel) // max(kernel.shape[features], 1)
    if name.startswith("reduce") or name in ("argmax", "argmin", "cumsum"):
        return max(_size(v.aval) for v in eqn.invars)
    return 0 if name in _MOVES_DATA or name.startswith("random") else out


def _flops_of_body(jaxpr: Any) -> float:
    return sum(flops_of_eqn(eqn) for eqn in body_of(jaxpr).eqns)


def kept_of_eqn(eqn: Eqn) -> tuple[Sequence[Any], float]:
    """Returns the atoms of an equation that its backward pass keeps, and the bytes that it keeps inside of its body."""
    name: str = eqn.primitive.name
    if name in REMATS or name in CUSTOM:
        return [a for a in eqn.invars if not isinstance(a, compat.Literal)], 0.0
    if name == "scan":
        consts, carry = compat.scan_counts(eqn)
        return [], eqn.params["length"] * _kept_of_body(eqn.params["jaxpr"], (consts, consts + carry))
    if name not in ("cond", "while"):
        for inner in compat.sub_jaxprs(eqn):
            return [], _kept_of_body(inner, None)
    if name in _KEEPS_OPERANDS:
        return [a for a in eqn.invars if not isinstance(a, compat.Literal)], 0.0
    return (list(eqn.outvars), 0.0) if name in _KEEPS_RESULTS else ([], 0.0)


def _kept_of_body(jaxpr: Any, carried: tuple[int, int] | None) -> float:
    """Returns the bytes kept for a body.

    Constants and stacked inputs of a loop do not count: only carried values differ from iteration to iteration.
    """
    body = body_of(jaxpr)
    fixed = set(body.invars[: carried[0]] + body.invars[carried[1] :]) if carried else set[Any]()
    seen: dict[Any, int] = {}
    inside = 0.0
    for eqn in body.eqns:
        atoms, more = kept_of_eqn(eqn)
        inside += more
        seen.update({a: bytes_of(a.aval) for a in atoms if not isinstance(a, compat.Literal) and a not in fixed})
    return sum(seen.values()) + inside


def _size(aval: Aval) -> int:
    return math.prod(getattr(aval, "shape", ()))
