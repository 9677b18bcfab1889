"""Handles gather, scatter and dynamic slices for the analysis of losses over microbatches. The result depends on what
an index is: an example's own number, its data, or a fixed place in the batch. `rules.py` registers its functions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pathways.compiler.frontends.jax.pipeline.mixing.elementwise import of_totals
from pathways.compiler.frontends.jax.pipeline.mixing.equation_pair import BY_PLACE, EquationPair, Rule
from pathways.compiler.frontends.jax.pipeline.mixing.layout import BOTH, Digit, Layout, moved, numbering_dims
from pathways.compiler.frontends.jax.pipeline.mixing.relation import (
    NO_CAUSES,
    Form,
    MixingCause,
    Relation,
    Why,
    is_close,
    is_level,
    tiles,
)

_OF_OTHERS = "data of one example selects rows of other examples"
_WRITTEN_BY_PLACE = "rows are written by their position in the batch"


@dataclass(frozen=True)
class _Gather:
    """The axes of a gather: the result axis that each axis of the indices and of the operand becomes."""

    of_indices: Mapping[int, int]
    of_operand: Mapping[int, int]
    batching: Mapping[int, int]
    """The axis of the indices that is paired with each batching axis of the operand."""
    start_index_map: tuple[int, ...]
    collapsed: tuple[int, ...]


def _axes(step: EquationPair) -> _Gather:
    numbers = step.params["dimension_numbers"]
    batching = tuple(numbers.operand_batching_dims)
    picked = [i for i in range(len(step.outs[0][0])) if i not in numbers.offset_dims]
    kept = [d for d in range(step.rank()) if d not in numbers.collapsed_slice_dims and d not in batching]
    return _Gather(
        dict(zip(range(step.rank(1) - 1), picked, strict=False)),
        dict(zip(kept, numbers.offset_dims, strict=True)),
        dict(zip(batching, numbers.start_indices_batching_dims, strict=True)),
        tuple(numbers.start_index_map),
        tuple(numbers.collapsed_slice_dims),
    )


def _gather(step: EquationPair) -> Relation:
    operand, indices = step.ins[0], step.unscaled(step.ins[1])
    axes, causes = _axes(step), set(indices.causes - step.ins[1].causes)
    indices = replace(indices, causes=step.ins[1].causes)
    if any(r.is_statistic for r in (operand, indices)):
        if not step.rows:
            if operand.form is Form.TOTAL and indices.form is Form.CONST:
                return operand
            return of_totals(step, step.ins)
        causes |= {step.back(r) for r in (operand, indices) if r.is_statistic}
    if indices.form is Form.ROWS and step.rank(1) - 1 in numbering_dims(indices.layout):
        return step.lost(Why.PAIRS, "an index is computed from several examples")
    if operand.form is Form.ROWS:
        return _of_examples(step, operand, indices, axes, causes)
    if indices.form is Form.ROWS:
        if indices.own:  # a table has other rows for the examples of a microbatch
            causes.add(step.cause(Why.POSITION))
        scale, more = _of_constant(step, operand)
        made = Relation(Form.ROWS, (), scale, causes=frozenset(causes) | more, has_data=True)
        return step.with_layout(made, moved(indices.layout, axes.of_indices))
    return of_totals(step, step.ins)


def _of_examples(
    step: EquationPair, operand: Relation, indices: Relation, axes: _Gather, causes: set[MixingCause]
) -> Relation:
    """Returns the relation of rows that are picked from the batch."""
    layout: list[Digit] = []
    others = set(indices.own)
    """Own numbers that pick along an axis that does not number the examples."""
    for digit in operand.layout:
        if digit.dim < 0:
            layout.append(digit)
        elif digit.dim in axes.batching:
            layout.append(replace(digit, dim=axes.of_indices[axes.batching[digit.dim]]))
        elif digit.dim in axes.of_operand and step.is_whole_axis(digit.dim):
            layout.append(replace(digit, dim=axes.of_operand[digit.dim]))
        elif _is_own_row(step, digit, indices, axes):
            layout.append(replace(digit, dim=axes.of_indices[indices.layout[0].dim]))
            others.discard(axes.start_index_map.index(digit.dim))
        elif indices.form is Form.ROWS and indices.has_data:
            return step.lost(Why.DATA, _OF_OTHERS)
        else:
            return step.lost(Why.POSITION, BY_PLACE)
    if indices.form is Form.ROWS:
        if moved(indices.layout, axes.of_indices) != tuple(layout):
            return step.combines()
    elif indices.form is Form.CONST and axes.batching:
        along = tuple(replace(d, dim=axes.batching[d.dim]) for d in operand.layout if d.dim in axes.batching)
        if not tiles(indices, step.shapes[1], along):
            causes.add(step.misplaced())
    if others:
        causes.add(step.cause(Why.POSITION))
    is_partial = operand.is_partial
    return Relation(
        Form.ROWS, tuple(layout), operand.scale, causes=frozenset(causes), has_data=True, is_partial=is_partial
    )


def _of_constant(step: EquationPair, table: Relation) -> tuple[float, frozenset[MixingCause]]:
    """Returns the scale of values that examples pick from a constant or a statistic.

    Also returns a cause if the values depend on the batch size or differ from row to row.
    """
    if table.form is Form.CONST and not is_level(table, step.shapes[0]):
        return 1.0, frozenset({step.misplaced()})
    if step.shapes[0][0] != step.shapes[0][1]:  # whether an index is out of bounds depends on the length
        return 1.0, frozenset({step.cause(Why.SIZE)})
    if table.form is not Form.CONST:
        return 1.0, NO_CAUSES
    return (1.0, frozenset({step.cause(Why.SIZE)})) if table.factor is None else (table.factor, NO_CAUSES)


def _is_own_row(step: EquationPair, digit: Digit, indices: Relation, axes: _Gather) -> bool:
    """Whether the indices along an axis of the operand are the row's own number."""
    if indices.form is not Form.ROWS or digit.dim not in axes.start_index_map or digit.dim not in axes.collapsed:
        return False
    dim = indices.layout[0].dim
    same = all(step.shapes[0][t][digit.dim] == step.shapes[1][t][dim] for t in BOTH)
    is_own = axes.start_index_map.index(digit.dim) in indices.own
    return same and is_own and replace(digit, dim=dim) in indices.layout


def _dynamic_slice(step: EquationPair) -> Relation:
    operand, starts = step.ins[0], step.ins[1:]
    if any(r.is_statistic for r in starts) and not step.rows:
        return of_totals(step, step.ins)
    by_data = [r for r in starts if r.form is Form.ROWS]
    if by_data:
        if operand.form is Form.CONST or (operand.form is Form.ROWS and operand.layout == by_data[0].layout):
            causes = {step.back(r) for r in starts if r.is_statistic}
            scale, more = _of_constant(step, operand) if operand.form is Form.CONST else (operand.scale, NO_CAUSES)
            return Relation(Form.ROWS, by_data[0].layout, scale, causes=frozenset(causes) | more, has_data=True)
        return step.lost(Why.DATA, _OF_OTHERS)
    if operand.form is not Form.ROWS:
        return replace(operand, known=None)
    if any(d.dim >= 0 and not step.is_whole_axis(d.dim) for d in operand.layout):
        return step.lost(Why.POSITION, BY_PLACE)
    causes = {step.back(r) for r in starts if r.is_statistic}
    return replace(operand, known=None, own=frozenset(), causes=operand.causes | causes)


def _dynamic_update_slice(step: EquationPair) -> Relation:
    operand, update = step.ins[:2]
    if any(r.form is not Form.CONST for r in step.ins[2:]):
        return step.unknown("rows are written at a position that depends on the batch")
    rows = [r for r in (operand, update) if r.form is Form.ROWS]
    if not rows:
        return of_totals(step, [operand, update], "concatenate")
    if any(r.layout != rows[0].layout for r in rows):
        return step.combines()
    if any(step.shapes[0][t][d.dim] != step.shapes[1][t][d.dim] for d in rows[0].layout if d.dim >= 0 for t in (0, 1)):
        return step.lost(Why.POSITION, _WRITTEN_BY_PLACE)
    if operand.form is Form.CONST and not tiles(operand, step.shapes[0], rows[0].layout):
        return step.lost(Why.POSITION)
    scale, causes = step.one_scale([operand, update])
    found = rows[0].causes | causes | {step.back(r) for r in (operand, update) if r.is_statistic}
    return replace(rows[0], known=None, own=frozenset(), has_data=True, scale=scale, causes=found)


def _scatter(step: EquationPair) -> Relation:
    operand, indices, updates = step.ins
    is_sum = step.name in ("scatter-add", "scatter-sub", "scatter_add", "scatter_sub")
    if not step.rows:
        if is_sum and indices.form is Form.CONST:
            return of_totals(step, [operand, updates], "add")
        return of_totals(step, step.ins)
    causes = {step.back(r) for r in step.ins if r.is_statistic}
    if indices.form is Form.ROWS and step.rank(1) - 1 in numbering_dims(indices.layout):
        return step.lost(Why.PAIRS, "an index is computed from several examples")
    written = _written(step)
    if written is None:
        return step.combines()
    target: Layout | None = None
    if written:
        place = _place_of(step, written)
        if isinstance(place, Relation):
            return place
        if not place:
            return _added_into(step, causes, is_sum=is_sum)
        if len(place) < len(written):
            return step.lost(Why.DATA, "several examples write to the same positions")
        target = place
    return _among_rows(step, target, causes)


def _written(step: EquationPair) -> Layout | None:
    """Returns the digits of the updates that number the examples.

    Returns () if there are none, and None if indices and updates disagree.
    """
    numbers = step.params["dimension_numbers"]
    _, indices, updates = step.ins
    scattered = [i for i in range(step.rank(2)) if i not in numbers.update_window_dims]
    found: list[Layout] = []
    if indices.form is Form.ROWS:
        layout = moved(indices.layout, dict(zip(range(step.rank(1) - 1), scattered, strict=False)))
        if layout is None:
            return None
        found.append(layout)
    if updates.form is Form.ROWS:
        found.append(updates.layout)
    if not found:
        return ()
    return found[0] if all(layout == found[0] for layout in found) else None


def _place_of(step: EquationPair, written: Layout) -> Layout | Relation:
    """Finds the operand axes along which the examples write: fewer digits than `written` if they share places."""
    numbers = step.params["dimension_numbers"]
    scattered = [i for i in range(step.rank(2)) if i not in numbers.update_window_dims]
    inserted = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    kept = [d for d in range(step.rank()) if d not in inserted]
    window = dict(zip(numbers.update_window_dims, kept, strict=True))
    batching = dict(zip(numbers.scatter_indices_batching_dims, numbers.operand_batching_dims, strict=True))
    to_operand: tuple[int, ...] = tuple(numbers.scatter_dims_to_operand_dims)
    own = [column for column in step.ins[1].own if column < len(to_operand)]
    place: list[Digit] = []
    for digit in written:
        if digit.dim < 0:
            place.append(digit)
        elif digit.dim in window:
            dim = window[digit.dim]
            if not _is_as_long(step, digit.dim, dim):
                return step.lost(Why.POSITION, _WRITTEN_BY_PLACE)
            place.append(replace(digit, dim=dim))
        elif scattered.index(digit.dim) in batching:
            place.append(replace(digit, dim=batching[scattered.index(digit.dim)]))
        elif own:
            dim = to_operand[own.pop(0)]
            if not _is_as_long(step, digit.dim, dim):
                return step.lost(Why.POSITION, _WRITTEN_BY_PLACE)
            place.append(replace(digit, dim=dim))
    return step.lost(Why.POSITION, _WRITTEN_BY_PLACE) if own else tuple(place)


def _is_as_long(step: EquationPair, of_updates: int, of_operand: int) -> bool:
    """Whether an axis of the updates of a scatter is as long as one of its operand, in both traces."""
    return all(step.shapes[2][t][of_updates] == step.shapes[0][t][of_operand] for t in BOTH)


def _added_into(step: EquationPair, causes: set[MixingCause], *, is_sum: bool) -> Relation:
    """Relates examples that write to shared places: a sum over the examples, if they add."""
    operand, _, updates = step.ins
    if not is_sum:
        return step.lost(Why.DATA, "several examples write to the same positions")
    if operand.form is Form.ROWS or step.outs[0][0] != step.outs[0][1]:
        return step.lost(Why.DATA, "examples write to rows of other examples")
    scale = updates.factor if updates.form is Form.CONST else updates.scale
    total = Relation(Form.TOTAL, scale=scale or 1.0, origin=step.here, causes=frozenset(causes), has_data=True)
    return total if operand.is_zero else of_totals(step, [operand, total], "add")


def _writes_whole_axis(step: EquationPair, dim: int) -> bool:
    """Whether a scatter writes all of an operand axis, or the axis is a batching axis."""
    numbers: Any = step.params["dimension_numbers"]
    if dim in numbers.operand_batching_dims:
        return True
    if dim in numbers.inserted_window_dims:
        return False
    inserted = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    kept = [d for d in range(step.rank()) if d not in inserted]
    window: int = numbers.update_window_dims[kept.index(dim)]
    return _is_as_long(step, window, dim)


def _among_rows(step: EquationPair, target: Layout | None, causes: set[MixingCause]) -> Relation:
    operand, _, updates = step.ins
    if operand.form is Form.ROWS:
        if target is not None and operand.layout != target:
            return step.combines()
        if target is None:
            if not all(_writes_whole_axis(step, d.dim) for d in operand.layout if d.dim >= 0):
                return step.lost(Why.POSITION, _WRITTEN_BY_PLACE)
            target = operand.layout
    elif operand.form is Form.CONST and not tiles(operand, step.shapes[0], target or ()):
        causes.add(step.misplaced())
    scale, more = step.one_scale([operand, updates])
    if step.name == "scatter-mul" and not is_close(scale, 1):
        more |= {step.cause(Why.SIZE)}
    is_partial = any(r.is_partial for r in (operand, updates))
    return Relation(
        Form.ROWS, target or (), scale, causes=frozenset(causes) | more, has_data=True, is_partial=is_partial
    )


RULES: dict[str, Rule] = {
    "gather": _gather,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    **dict.fromkeys(
        ("scatter", "scatter-add", "scatter-mul", "scatter-max", "scatter-min", "scatter-sub", "scatter_add"), _scatter
    ),
}
