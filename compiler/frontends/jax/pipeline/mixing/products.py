"""Handles matrix products and convolutions for the analysis of losses over microbatches. A product sums over the batch,
keeps its examples apart, or combines different examples. `rules.py` registers its functions.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from pathways.compiler.frontends.jax.pipeline.mixing.elementwise import of_totals
from pathways.compiler.frontends.jax.pipeline.mixing.equation_pair import EquationPair, Rule
from pathways.compiler.frontends.jax.pipeline.mixing.layout import BOTH, Digit, Shapes, by_group, moved, numbering_dims
from pathways.compiler.frontends.jax.pipeline.mixing.relation import (
    Form,
    MixingCause,
    Relation,
    Tail,
    Why,
    fill_of,
    forgotten,
    is_level,
    tiles,
)

_Axes: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class _Product:
    """The axes of a product: for each operand, the contracted axes and the paired axes."""

    contracted: tuple[_Axes, _Axes]
    paired: tuple[_Axes, _Axes]
    shapes: tuple[Shapes, Shapes]

    def free(self, side: int) -> list[int]:
        used = {*self.contracted[side], *self.paired[side]}
        return [d for d in range(len(self.shapes[side][0])) if d not in used]

    def result_axes(self, side: int) -> Mapping[int, int]:
        """Returns the axis of the result that each kept axis of an operand becomes."""
        paired, before = self.paired[side], len(self.free(0)) if side else 0
        axes = {d: i for i, d in enumerate(paired)}
        return axes | {d: len(paired) + before + i for i, d in enumerate(self.free(side))}

    def partners(self, side: int) -> dict[int, int]:
        """Returns the axis of the other operand that each contracted or paired axis meets."""
        ours, theirs = ((*self.contracted[s], *self.paired[s]) for s in (side, 1 - side))
        return dict(zip(ours, theirs, strict=True))

    def role(self, side: int, digit: Digit) -> tuple[object, ...]:
        """Returns the effect of the product on a digit. Digits of both operands with one role are the same examples."""
        size = (digit.inner, digit.n)
        if digit.dim < 0:
            return (*size, "loop", digit.dim)
        for what, axes in (("contracted", self.contracted), ("paired", self.paired)):
            if digit.dim in axes[side]:
                return (*size, what, axes[side].index(digit.dim))
        return (*size, "free", side, digit.dim)


def _dot_general(step: EquationPair) -> Relation:
    numbers: tuple[tuple[_Axes, _Axes], tuple[_Axes, _Axes]] = step.params["dimension_numbers"]
    left, right = step.ins
    product = _Product(*numbers, (step.shapes[0], step.shapes[1]))
    return _contract(step, left, right, product)


def _contract(step: EquationPair, left: Relation, right: Relation, product: _Product) -> Relation:
    ins = (left, right)
    factors = [1.0 if r.form is Form.TAIL else r.factor for r in ins]
    dims = [numbering_dims(r.layout) if r.form is Form.ROWS else set[int]() for r in ins]
    whole, part = product.shapes[0]
    axes = zip(*product.contracted, strict=True)
    free = math.prod(whole[x] / max(1, part[x]) for x, y in axes if x not in dims[0] and y not in dims[1])
    known = [f for f in factors if f is not None]
    rows = [side for side in BOTH if ins[side].form is Form.ROWS]
    if not rows:
        if {r.form for r in ins} == {Form.TOTAL, Form.CONST} and len(known) == 2:
            origin = next(r.origin for r in ins if r.origin is not None)
            const = next(i for i in BOTH if ins[i].form is Form.CONST)
            if is_level(ins[const], product.shapes[const]):
                return Relation(Form.TOTAL, scale=math.prod(known) * free, origin=origin, has_data=True)
        return of_totals(step, ins)
    causes = set[MixingCause]()
    if len(known) < 2:
        causes.add(step.cause(Why.SIZE))
        known = [1.0]
    scale = math.prod(known) * free
    if len(rows) == 1:
        return _with_one_side(step, ins, rows[0], product, scale, causes)
    return _with_both_sides(step, left, right, product, scale, causes)


def _with_one_side(
    step: EquationPair,
    ins: Sequence[Relation],
    side: int,
    product: _Product,
    scale: float,
    causes: set[MixingCause],
) -> Relation:
    rows, other = ins[side], ins[1 - side]
    inside = [d for d in rows.layout if d.dim in product.contracted[side]]
    if other.is_statistic:
        if inside:
            return Relation(Form.TAIL, tail=Tail.OTHER, origin=step.here, has_data=True)
        causes.add(step.back(other))
        scale = 1.0 if rows.scale is None else rows.scale
    else:
        partners = product.partners(side)
        met = tuple(replace(d, dim=partners[d.dim]) for d in rows.layout if d.dim in partners)
        if met and not _is_equal_factor(rows, other, product.shapes[1 - side], met):
            causes.add(step.misplaced())
    if inside and len(inside) == len(rows.layout):
        if not rows.has_data and not causes:
            return Relation(scale=scale * step.walk.count)
        return Relation(Form.TOTAL, scale=scale, origin=step.here, causes=frozenset(causes), has_data=True)
    layout = moved(tuple(d for d in rows.layout if d not in inside), product.result_axes(side))
    has_data, is_partial = rows.has_data or bool(causes), rows.is_partial or bool(inside)
    made = Relation(
        Form.ROWS,
        (),
        scale,
        causes=frozenset(causes),
        has_data=has_data,
        is_partial=is_partial,
        origin=rows.origin,
    )
    return step.with_layout(made, layout)


def _is_equal_factor(rows: Relation, other: Relation, shapes: Shapes, met: tuple[Digit, ...]) -> bool:
    """Whether a constant multiplies each example by the same numbers in both traces."""
    if len(met) == len(rows.layout):
        return tiles(other, shapes, met)
    return other.known is not None and fill_of(other.known[0]) is not None  # it is the same for all parts of the batch


def _with_both_sides(
    step: EquationPair, left: Relation, right: Relation, product: _Product, scale: float, causes: set[MixingCause]
) -> Relation:
    has_data = left.has_data or right.has_data
    roles = [[product.role(side, d) for d in r.layout] for side, r in enumerate((left, right))]
    if roles[0] != roles[1]:
        by_groups = [by_group(left.layout), by_group(right.layout)]
        heads = [r[: len(g)] for r, g in zip(roles, by_groups, strict=True)]
        tails = [role for r, g in zip(roles, by_groups, strict=True) for role in r[len(g) :]]
        if heads[0] != heads[1] or any("free" not in role for role in tails):
            combines_all = any("free" in role for role in (*roles[0], *roles[1]))
            return step.lost(Why.PAIRS, "every example is combined with every other" if combines_all else "")
        left, roles = replace(left, layout=by_groups[0]), heads
    is_partial = left.is_partial or right.is_partial
    if any("free" in role for role in roles[0]):
        return step.lost(Why.PAIRS, "every example is combined with every other")
    if all("contracted" in role for role in roles[0]):
        if not has_data:
            return Relation(scale=scale * step.walk.count)
        return Relation(Form.TOTAL, scale=scale, origin=step.here, causes=frozenset(causes), has_data=True)
    rest = tuple(d for d in left.layout if d.dim not in product.contracted[0])
    is_partial = is_partial or len(rest) < len(left.layout)
    made = Relation(Form.ROWS, (), scale, causes=frozenset(causes), has_data=has_data, is_partial=is_partial)
    return step.with_layout(made, moved(rest, product.result_axes(0)))


def _convolution(step: EquationPair) -> Relation:
    """Relates a convolution: a product of features and batch, whose axes then move.

    Spatial axes must hold no examples.
    """
    numbers = step.params["dimension_numbers"]
    specs = (numbers.lhs_spec, numbers.rhs_spec)
    if step.params["batch_group_count"] != 1:
        return step.unknown("there is no rule for convolutions with batch groups")
    dims = [numbering_dims(r.layout) if r.form is Form.ROWS else set[int]() for r in step.ins]
    if step.params["feature_group_count"] != 1 and (dims[1] or dims[0] - {numbers.lhs_spec[0]}):
        return step.unknown("there is no rule for convolutions with feature groups of examples")
    if any(set(spec[2:]) & held for spec, held in zip(specs, dims, strict=True)):
        return step.lost(Why.ORDER, "a convolution over the batch")
    ordered = zip(step.ins, step.shapes, specs, strict=True)
    left, right = (_in_order(r, shapes, spec) for r, shapes, spec in ordered)
    (lhs, rhs) = (_features(shape, spec) for shape, spec in zip(step.shapes, specs, strict=True))
    made = _contract(step, left, right, _Product(((1,), (1,)), ((), ()), (lhs, rhs)))
    if made.form is not Form.ROWS:
        return made
    return step.with_layout(made, moved(made.layout, {0: numbers.out_spec[0], 1: numbers.out_spec[1]}))


def _in_order(relation: Relation, shapes: Shapes, spec: Sequence[int]) -> Relation:
    if relation.form is Form.ROWS:
        layout = moved(relation.layout, {axis: i for i, axis in enumerate(spec)})
        return replace(relation, layout=layout or (), known=None)
    is_filled = relation.known is not None and fill_of(relation.known[0]) is not None
    return relation if is_filled else forgotten(relation, shapes)


def _features(shapes: Shapes, spec: Sequence[int]) -> Shapes:
    whole, part = shapes
    return (whole[spec[0]], whole[spec[1]]), (part[spec[0]], part[spec[1]])


RULES: dict[str, Rule] = {"dot_general": _dot_general, "conv_general_dilated": _convolution}
