"""Handles reshape, transpose, slice and other operations that only move elements, for the analysis of losses over
microbatches. It tracks which axes number the examples afterwards. `rules.py` registers its functions.
"""

from dataclasses import replace
from typing import Any, cast

import numpy as np

from pathways.compiler.frontends.jax.pipeline.mixing.elementwise import of_totals
from pathways.compiler.frontends.jax.pipeline.mixing.equation_pair import BY_PLACE, EquationPair, Rule
from pathways.compiler.frontends.jax.pipeline.mixing.layout import (
    BOTH,
    Digit,
    Shapes,
    by_group,
    common,
    moved,
    numbering_dims,
    reshaped,
)
from pathways.compiler.frontends.jax.pipeline.mixing.relation import (
    Form,
    Known,
    MixingCause,
    Relation,
    Why,
    tiles,
)

_INTEGERS = "iu"
"""Numpy kinds of the types that an index can have."""


def _reshape(step: EquationPair) -> Relation:
    (rows,) = step.ins
    return step.with_layout(rows, reshaped(rows.layout, step.shapes[0], step.outs[0]))


def _transpose(step: EquationPair) -> Relation:
    where = {old: new for new, old in enumerate(step.params["permutation"])}
    return step.with_layout(step.ins[0], moved(step.ins[0].layout, where))


def _squeeze(step: EquationPair) -> Relation:
    removed = {d % step.rank() for d in step.params["dimensions"]}
    left = [d for d in range(step.rank()) if d not in removed]
    return step.with_layout(step.ins[0], moved(step.ins[0].layout, {old: new for new, old in enumerate(left)}))


def _expand_dims(step: EquationPair) -> Relation:
    added = set(step.params["dimensions"])
    left = [d for d in range(len(step.outs[0][0])) if d not in added]
    return step.with_layout(step.ins[0], moved(step.ins[0].layout, dict(enumerate(left))))


def _broadcast_in_dim(step: EquationPair) -> Relation:
    dims: tuple[int, ...] = step.params["broadcast_dimensions"]
    return step.with_layout(step.ins[0], moved(step.ins[0].layout, dict(enumerate(dims))))


def _rev(step: EquationPair) -> Relation:
    return step.touched(step.ins[0], set(step.params["dimensions"]), Why.ORDER, "the batch is reversed")


def _tile(step: EquationPair) -> Relation:
    repeats = step.params.get("reps") or step.params.get("repeats")
    rows = step.ins[0]
    if repeats is None or any(repeats[d] != 1 for d in numbering_dims(rows.layout) if d >= 0):
        return step.unknown("the batch is repeated")
    return step.with_layout(rows, rows.layout)


def _bitcast(step: EquationPair) -> Relation:
    rows = step.ins[0]
    if len(step.outs[0][0]) < step.rank() and step.rank() - 1 in numbering_dims(rows.layout):
        return step.unknown("values of several examples become one value")
    return step.with_layout(step.unscaled(rows), rows.layout)


def _slice(step: EquationPair) -> Relation:
    rows = step.ins[0]
    for digit in rows.layout:
        if digit.dim < 0:
            continue
        kept = by_group(rows.layout)
        if digit not in kept and not any(d.dim == digit.dim for d in kept):  # within a group: it may lose rows
            if not _is_all(step, digit):
                rows = replace(rows, layout=kept)
        elif not _is_all(step, digit) and not _is_blocks(step, digit, rows):
            return step.touched(rows, {digit.dim}, Why.POSITION, BY_PLACE)
    return replace(rows, known=None, own=frozenset())


def _bounds(step: EquationPair, dim: int, t: int) -> tuple[int, int, int]:
    p = step.both[t]
    return p["start_indices"][dim], p["limit_indices"][dim], (p["strides"] or [1] * (dim + 1))[dim]


def _is_all(step: EquationPair, digit: Digit) -> bool:
    return all(_bounds(step, digit.dim, t) == (0, step.shapes[0][t][digit.dim], 1) for t in BOTH)


def _is_blocks(step: EquationPair, digit: Digit, rows: Relation) -> bool:
    """Whether a slice takes whole blocks of examples from an axis that holds several blocks."""
    if sum(d.dim == digit.dim for d in rows.layout) > 1:
        return False
    for t in BOTH:
        begin, end, stride = _bounds(step, digit.dim, t)
        if stride != 1 or begin % digit.block[t] or end % digit.block[t]:
            return False
    return True


def _split(step: EquationPair) -> Relation:
    rows, axis = step.ins[0], step.params["axis"]
    digits = [d for d in rows.layout if d.dim == axis]
    if not digits:
        return replace(rows, known=None, own=frozenset())
    if len(digits) == 1:
        sizes = zip(BOTH, step.both, strict=True)
        if all(size % digits[0].block[t] == 0 for t, p in sizes for size in p["sizes"]):
            return rows
    return step.touched(rows, {axis}, Why.POSITION, BY_PLACE)


def _unstack(step: EquationPair) -> Relation:
    rows, axis = step.ins[0], step.params["axis"]
    if axis in numbering_dims(rows.layout):
        return step.lost(Why.POSITION, BY_PLACE)
    return step.with_layout(rows, moved(rows.layout, {d: d - (d > axis) for d in range(step.rank())}))


def _pad(step: EquationPair) -> Relation:
    value, padding = step.ins
    if value.form is not Form.ROWS:
        if padding.form is Form.ROWS:
            return step.unknown("padding with a value of an example")
        return value if padding.is_zero else of_totals(step, step.ins)
    padded = {i for p in step.both for i, c in enumerate(p["padding_config"]) if tuple(c) != (0, 0, 0)}
    if padded & numbering_dims(value.layout):
        return step.unknown("the batch is padded")
    if padding.form is Form.ROWS:
        return step.unknown("padding with a value of an example")
    scale, causes = step.one_scale(step.ins)
    return _joined(step, value, scale, causes)


def _joined(step: EquationPair, rows: Relation, scale: float | None, causes: frozenset[MixingCause]) -> Relation:
    """Returns the relation of rows that are joined with other operands."""
    found = rows.causes | causes | {step.back(r) for r in step.ins if r.is_statistic}
    return replace(rows, known=None, own=frozenset(), has_data=True, scale=scale, causes=found)


def _concatenate(step: EquationPair) -> Relation:
    return _put_together(step, step.ins, step.params["dimension"], is_new_axis=False)


def _stack(step: EquationPair) -> Relation:
    axis = step.params["axis"]
    where = {d: d + (d >= axis) for d in range(step.rank())}
    grown = [step.with_layout(r, moved(r.layout, where)) if r.form is Form.ROWS else r for r in step.ins]
    return _put_together(step, grown, axis, is_new_axis=True)


def _put_together(step: EquationPair, ins: list[Relation], axis: int, *, is_new_axis: bool) -> Relation:
    rows = [r for r in ins if r.form is Form.ROWS]
    if not rows:
        sums = all(r.form in (Form.TOTAL, Form.CONST) for r in ins)
        return of_totals(step, ins, "add" if sums else "concatenate")
    layout = common([r.layout for r in rows])
    if layout is None:
        return step.combines()
    first = replace(rows[0], layout=layout)
    scale, causes = step.one_scale(ins)
    if axis in numbering_dims(layout) and not is_new_axis:
        if len(rows) < len(ins) or sum(d.dim == axis for d in layout) > 1:
            return step.unknown("rows that are not examples are concatenated with the batch")
        return _joined(step, first, scale, causes)
    found, own, column = set(causes), set[int](), 0
    has_columns = not is_new_axis and axis == step.rank() - 1
    """Whether the operands are columns of indices. Along another axis, no column has all examples' own numbers."""
    before = moved(layout, {d: d - (d > axis) for d in range(step.rank() + 1)}) if is_new_axis else layout
    for relation, shapes in zip(ins, step.shapes, strict=True):
        if relation.form is Form.CONST:
            if has_columns and _is_own_number(relation, shapes, axis, layout):
                own.add(column)
            elif not tiles(relation, shapes, before or ()):
                found.add(step.misplaced())
        own |= {column + c for c in relation.own if has_columns}
        column += shapes[0][axis] if has_columns else 0
    made = _joined(step, first, scale, frozenset(found))
    return replace(made, own=frozenset(own), is_partial=any(r.is_partial for r in rows))


def _is_own_number(relation: Relation, shapes: Shapes, axis: int, layout: tuple[Digit, ...]) -> bool:
    """Whether a column of indices counts along the axis of the examples: `arange(batch)`."""
    a, b = shapes
    if relation.known is None or a == b or axis != len(a) - 1 or a[axis] != 1:
        return False
    if relation.known[0].dtype.kind not in _INTEGERS:
        return False
    return len({d.dim for d in layout}) == 1 and _counts_along(relation.known, layout[0].dim)


def _counts_along(known: Known, dim: int) -> bool:
    for array in known:
        line: Any = cast("Any", np.arange(array.shape[dim])).reshape([-1 if i == dim else 1 for i in range(array.ndim)])
        if not np.array_equal(array, np.broadcast_to(line, array.shape)):
            return False
    return True


def of_rows(rule: Rule) -> Rule:
    """Returns the rule for operands that are rows. Statistics and constants of the batch keep their relation."""

    def apply(step: EquationPair) -> Relation | list[Relation]:
        return rule(step) if step.ins[0].form is Form.ROWS else replace(step.ins[0], known=None)

    return apply


RULES: dict[str, Rule] = {
    "reshape": of_rows(_reshape),
    "transpose": of_rows(_transpose),
    "squeeze": of_rows(_squeeze),
    "expand_dims": of_rows(_expand_dims),
    "broadcast_in_dim": of_rows(_broadcast_in_dim),
    "rev": of_rows(_rev),
    "tile": of_rows(_tile),
    "bitcast_convert_type": of_rows(_bitcast),
    "slice": of_rows(_slice),
    "split": of_rows(_split),
    "unstack": of_rows(_unstack),
    "pad": _pad,
    "concatenate": _concatenate,
    "stack": _stack,
}
