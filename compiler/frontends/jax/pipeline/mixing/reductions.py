"""Handles sums, maxima and other reductions for the analysis of losses over microbatches. They reduce over examples,
over a part of the batch, or over other axes. `rules.py` registers its functions, and `meshes.py` calls `reduced` for
collectives.
"""

import math
from dataclasses import replace

from pathways.compiler.frontends.jax.pipeline.mixing.elementwise import of_totals
from pathways.compiler.frontends.jax.pipeline.mixing.equation_pair import EquationPair, Made, Rule
from pathways.compiler.frontends.jax.pipeline.mixing.layout import Shapes, by_group, moved, numbering_dims
from pathways.compiler.frontends.jax.pipeline.mixing.relation import Form, MixingCause, Relation, Tail, Why

_CONDITIONS = ("reduce_or", "reduce_and")
_KEEP_SCALE = ("reduce_max", "reduce_min")


def _sum(step: EquationPair) -> Made:
    return reduced(step, 0, set(step.params["axes"]), is_sum=True)


def _not_a_sum(step: EquationPair) -> Made:
    return reduced(step, 0, set(step.params["axes"]), is_sum=False)


def reduced(step: EquationPair, operand: int, axes: set[int], *, is_sum: bool) -> Relation:
    """Returns the relation of a reduction over some axes of an operand. Axes below zero are mesh axes."""
    value, shapes = step.ins[operand], step.shapes[operand]
    factor = _free_factor(shapes, axes - numbering_dims(value.layout)) if is_sum else 1.0
    if value.form is not Form.ROWS:
        if not is_sum:
            return of_totals(step, [value])
        if value.form is Form.TAIL or value.scale is None:
            return replace(value, known=None)
        return replace(value, scale=value.scale * factor, known=None)
    value = _without_rows_of_groups(value, axes)
    over = [d for d in value.layout if d.dim in axes]
    left = [d for d in range(len(shapes[0])) if d not in axes]
    where = {old: new for new, old in enumerate(left)}
    if not over:
        return _kept(step, value, where, factor, is_sum=is_sum)
    if len(over) == len(value.layout):
        return _over_all(step, value, factor, is_sum=is_sum)
    rest = moved(tuple(d for d in value.layout if d.dim not in axes), where)
    made = step.with_layout(value, rest)
    if is_sum:
        return replace(made, is_partial=True, scale=None if made.scale is None else made.scale * factor)
    return replace(made, causes=made.causes | {step.cause(Why.PARTIAL, f"{step.name} over a part of the batch")})


def _free_factor(shapes: Shapes, axes: set[int]) -> float:
    """Returns the factor by which axes without examples are longer in the whole batch."""
    whole, part = shapes
    return math.prod(whole[a] / max(1, part[a]) for a in axes if a >= 0)


def _without_rows_of_groups(value: Relation, axes: set[int]) -> Relation:
    """Removes digits that only count within groups, if the reduction covers these digits and no group numbers."""
    kept = by_group(value.layout)
    others = [d for d in value.layout if d not in kept]
    is_inside = bool(others) and all(d.dim in axes for d in others) and not any(d.dim in axes for d in kept)
    return replace(value, layout=kept) if is_inside else value


def _kept(step: EquationPair, value: Relation, where: dict[int, int], factor: float, *, is_sum: bool) -> Relation:
    if step.name in ("argmax", "argmin"):
        value = replace(value, scale=1.0)
    elif not is_sum and step.name not in _KEEP_SCALE:
        value = step.unscaled(value)
    scale = None if value.scale is None else value.scale * factor
    return step.with_layout(value, moved(value.layout, where), scale=scale)


def _over_all(step: EquationPair, value: Relation, factor: float, *, is_sum: bool) -> Relation:
    scale = None if value.scale is None else value.scale * factor
    if is_sum:
        if not value.has_data and not value.causes:
            return Relation(scale=None if scale is None else scale * step.walk.count)
        return Relation(Form.TOTAL, scale=scale, origin=step.here, has_data=True)
    causes = {step.cause(Why.PARTIAL)} if value.is_partial else set[MixingCause]()
    is_condition = step.name in _CONDITIONS or step.whole.invars[0].aval.dtype == bool
    tail = Tail.ANY if is_condition else Tail.OTHER
    if not is_condition:
        causes.add(step.cause(Why.ORDER, f"{step.name} over the batch, which is not a sum"))
    return Relation(Form.TAIL, tail=tail, origin=step.here, causes=frozenset(causes), has_data=True)


def _any_of_vmap(step: EquationPair) -> Made:
    """Relates `eqx.internal.unvmap_any` and similar operations: one result for all examples."""
    if step.ins[0].form is Form.ROWS:
        return Relation(Form.TAIL, tail=Tail.ANY, origin=step.here, has_data=True)
    return step.ins[0]


RULES: dict[str, Rule] = {
    "reduce_sum": _sum,
    **dict.fromkeys(
        (
            *("reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor"),
            *("argmax", "argmin"),
        ),
        _not_a_sum,
    ),
    **dict.fromkeys(("unvmap_any", "unvmap_all", "unvmap_max"), _any_of_vmap),
}
