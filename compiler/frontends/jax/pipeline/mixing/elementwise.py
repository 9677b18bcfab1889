"""Handles elementwise operations for the analysis of losses over microbatches. Operands are rows of examples,
constants, or values computed from the whole batch, such as a mean. `rules.py` registers its functions; other modules of
this package reuse `of_totals`.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pathways.compiler.frontends.jax.pipeline.mixing.equation_pair import EquationPair, Made, Rule
from pathways.compiler.frontends.jax.pipeline.mixing.layout import common
from pathways.compiler.frontends.jax.pipeline.mixing.relation import (
    Form,
    Relation,
    Tail,
    Why,
    fill_of,
    is_close,
    is_same_everywhere,
    per_microbatch,
    tiles,
)

SAME = frozenset(
    {
        *("neg", "convert_element_type", "copy", "copy_p", "stop_gradient", "name", "sharding_constraint", "real"),
        *("imag", "conj", "reduce_precision", "device_put", "layout_constraint", "nonbatchable"),
        *("nondifferentiable_backward", "to_edtype", "from_edtype", "stage", "reshard", "mesh_cast"),
    }
)
"""Linear operations of one operand."""
_JOINS = frozenset({"add", "sub", "add_any", "max", "min", "select_n", "clamp", "concatenate"})
"""Operations that keep the common scale of their operands."""
_COMPARES = frozenset({"lt", "le", "gt", "ge", "eq", "ne", "sign", "is_finite", "lt_to", "le_to", "eq_to"})
"""Operations whose result stays the same when all operands are scaled alike."""
_OTHERS = frozenset(
    {
        *("abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "bessel_i0e", "bessel_i1e", "cbrt"),
        *("ceil", "clz", "complex", "cos", "cosh", "digamma", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1"),
        *("floor", "igamma", "igamma_grad_a", "igammac", "integer_pow", "lgamma", "log", "log1p", "logistic"),
        *("mul", "mulhi", "div", "nextafter", "not", "or", "and", "xor", "polygamma", "population_count", "pow"),
        *("regularized_incomplete_beta", "rem", "round", "rsqrt", "shift_left", "shift_right_arithmetic"),
        *("shift_right_logical", "sin", "sinh", "sqrt", "square", "tan", "tanh", "zeta", "tie", "max", "min"),
    }
)
ELEMENTWISE = SAME | _COMPARES | _OTHERS | {"add", "sub", "add_any", "select_n", "clamp", "optimization_barrier"}


def scale_of(
    name: str, params: dict[str, object], ins: Sequence[Relation], scales: Sequence[float | None]
) -> float | None:
    """Returns the scale of an elementwise result; None if no single factor relates the two results."""
    if name == "select_n":
        if not is_close(scales[0], 1):
            return None
        ins, scales = ins[1:], scales[1:]
    first = scales[0]
    if name in SAME or name == "abs":
        return first
    live = [s for r, s in zip(ins, scales, strict=True) if not r.is_zero]
    numbers = [s for s in live if s is not None]
    if len(numbers) < len(live):
        return None
    if name in _JOINS:
        return (numbers[0] if numbers else 1.0) if is_same_everywhere(numbers) else None
    if name in _COMPARES:
        return 1.0 if is_same_everywhere(numbers) else None
    if name == "mul":
        return math.prod(numbers)
    if first is not None:
        match name:
            case "div":
                return first / scales[1] if scales[1] else None
            case "square":
                return first**2
            case "sqrt" | "rsqrt":
                return first ** (0.5 if name == "sqrt" else -0.5) if first > 0 else None
            case "integer_pow":
                return _power(first, params["y"])
            case _:
                pass
    return 1.0 if all(is_close(s, 1) for s in numbers) else None


def _power(scale: float, power: Any) -> float | None:
    return float(scale**power) if scale else None


def elementwise(step: EquationPair) -> Made:
    """Relates the results of an elementwise operation that has a batch operand."""
    name, ins = step.name, step.ins
    if name == "optimization_barrier":
        return list(ins)
    if name == "select_n" and (case := _known_case(ins[0])) is not None:
        return ins[1 + case]
    if any(r.adds_up for r in ins):
        return _added_up(step)
    if name in SAME and step.shapes[0] != step.outs[0]:
        return step.unknown(f"{name} changes the shape")
    if name in SAME and not _rounds(step):
        return replace(ins[0], own=frozenset()) if name == "neg" else ins[0]
    return _of_rows(step) if step.rows else of_totals(step, ins)


def _rounds(step: EquationPair) -> bool:
    """Whether an operation rounds: a cast to a type with fewer values, or a division of integers."""
    dtypes: list[Any] = [step.whole.invars[0].aval.dtype, step.whole.outvars[0].aval.dtype]
    if step.name == "div":
        return dtypes[1].kind in _INTEGERS
    is_cast = step.name == "convert_element_type" and dtypes[0] != dtypes[1]
    return is_cast and (dtypes[1].kind == "b" or (dtypes[1].kind in _INTEGERS and dtypes[0].kind not in "bui"))


def _known_case(which: Relation) -> int | None:
    """Returns the case that a known predicate selects everywhere, in both traces."""
    if which.form is not Form.CONST or which.known is None:
        return None
    whole, part = (fill_of(k) for k in which.known)
    return int(whole) if whole is not None and part is not None and whole == part else None


def _added_up(step: EquationPair) -> Relation:
    """Relates the sum that a loop over the examples carries, after one more example is added."""
    total = next(r for r in step.ins if r.adds_up)
    if step.name in SAME and step.name != "neg" and not _rounds(step):
        return total
    others = [r for r in step.ins if not r.adds_up]
    scales = [s for s in (total.scale, *(r.factor for r in others if not r.is_zero)) if s != 0]
    if any(r.form is Form.CONST and r.known is None and not r.is_even for r in others):
        return step.lost(Why.POSITION, "a loop over the batch counts its rows")
    is_sum = step.name in ("add", "add_any") and len(others) == 1 and others[0].form in (Form.ROWS, Form.CONST)
    if is_sum and is_same_everywhere(scales):
        return replace(total, scale=scales[0] if scales else 0.0)
    return step.lost(Why.ORDER, "a number is carried from example to example")


def _of_rows(step: EquationPair) -> Relation:
    rows = step.rows
    layout = common([r.layout for r in rows])
    if layout is None:
        return step.combines()
    causes = {step.back(r) for r in step.ins if r.is_statistic}
    for relation, shapes in zip(step.ins, step.shapes, strict=True):
        if relation.form is Form.CONST and not tiles(relation, shapes, layout):
            causes.add(step.misplaced())
    scales = [1.0 if r.is_statistic else r.factor for r in step.ins]
    scale = scale_of("rounded" if _rounds(step) else step.name, step.params, step.ins, scales)
    if scale is None:
        if not causes:
            causes.add(step.cause(Why.SIZE))
        scale = 1.0
    is_partial = any(r.is_partial for r in rows)
    has_data = any(r.has_data for r in rows) or bool(causes)
    return Relation(Form.ROWS, layout, scale, causes=frozenset(causes), has_data=has_data, is_partial=is_partial)


def of_totals(step: EquationPair, ins: Sequence[Relation], name: str | None = None) -> Relation:
    """Relates a function of statistics and constants, as if the operation were `name`."""
    name = name or ("rounded" if _rounds(step) else step.name)
    if name == "is_finite":  # numbers that are not finite are out of scope
        return Relation(known=(_TRUE, _TRUE))
    origin = next((r.origin for r in ins if r.origin is not None), step.here)

    def tail(kind: Tail) -> Relation:
        return Relation(Form.TAIL, origin=step.here if kind is Tail.OTHER else origin, tail=kind, has_data=True)

    if name == "select_n" and ins[0].form is not Form.CONST:  # a guard: where(count > 0, total / count, 0)
        cases = [r for r in ins[1:] if r.form is not Form.CONST]
        return tail((cases[0].tail or Tail.GUARDED) if len(cases) == 1 else Tail.OTHER)
    has_tail = any(r.form is Form.TAIL for r in ins)
    made = _of_tails(name, ins) if has_tail else _of_sums(step, name, ins)
    return tail(made) if isinstance(made, Tail) else made


def _of_sums(step: EquationPair, name: str, ins: Sequence[Relation]) -> Relation | Tail:
    """Relates a function of totals and constants: it is still a total if the operation is linear."""
    totals = [r for r in ins if r.form is Form.TOTAL]
    first = ins[0]
    if name in ("add", "sub", "add_any", "select_n") and (name != "select_n" or is_close(first.factor, 1)):
        terms = [r for r in (ins[1:] if name == "select_n" else ins) if not r.is_zero]
        scales = [r.scale if r.form is Form.TOTAL else per_microbatch(r.factor, step.walk.count) for r in terms]
        if None not in scales and is_same_everywhere(scales):
            return Relation(Form.TOTAL, scale=scales[0], origin=totals[0].origin, has_data=True)
        return Tail.SHIFTED if len(totals) == 1 else Tail.UNEQUAL
    if name == "mul" and len(totals) == 1 and totals[0].scale is not None:
        factor = next(r for r in ins if r is not totals[0]).factor
        if factor is not None:
            return replace(totals[0], scale=totals[0].scale * factor)
    if name == "div" and first.form is Form.TOTAL:
        if ins[1].form is Form.TOTAL:
            return Tail.RATIO
        if first.scale is not None and (factor := ins[1].factor):
            return replace(first, scale=first.scale / factor)
    if name == "div" and first.form is Form.CONST:
        return Tail.INVERSE
    return Tail.GUARDED if name in ("max", "clamp") and len(totals) == 1 else Tail.OTHER


def _of_tails(name: str, ins: Sequence[Relation]) -> Relation | Tail:
    """Relates a function of tails, totals and constants. A quotient of two sums stays recognized as one."""
    tails = [r for r in ins if r.form is Form.TAIL]
    totals = [r for r in ins if r.form is Form.TOTAL]
    constants = [r for r in ins if r.form is Form.CONST]
    kind, is_only = tails[0].tail, len(tails) == 1 and not totals
    name = "convert_element_type" if name == "rounded" else name
    if name in _LOGIC and not totals and all(r.tail is Tail.ANY for r in tails):
        return Tail.ANY
    bounded = (Tail.GUARDED, Tail.SHIFTED)
    if name == "div" and len(tails) == 1 and ins[1].form is Form.TAIL and ins[1].tail in bounded:
        if ins[0].form is Form.TOTAL:
            return Tail.RATIO
        if ins[0].form is Form.CONST:
            return Tail.INVERSE
    if name == "mul" and len(tails) == 1 and len(totals) == 1 and kind is Tail.INVERSE:
        return Tail.RATIO
    keeps = name == "mul" or (name == "div" and ins[0].form is Form.TAIL)
    if keeps and is_only and constants and is_close(constants[0].factor, 1):
        return kind or Tail.OTHER
    if name in ("add", "sub", "add_any") and is_only and any(r.is_zero for r in constants):
        return tails[0]
    if name in ("max", "clamp", "add") and is_only and kind in bounded:
        return Tail.GUARDED
    if name in SAME and is_only:
        return tails[0]
    return Tail.OTHER


_INTEGERS = "iub"
"""Numpy kinds of integer and boolean types."""
_LOGIC = frozenset({"and", "or", "not", "convert_element_type", "ne", "eq", "gt", "lt"})
"""Operations on a condition that any or all examples meet."""

_TRUE = np.asarray(True)

RULES: dict[str, Rule] = dict.fromkeys(ELEMENTWISE, elementwise)
