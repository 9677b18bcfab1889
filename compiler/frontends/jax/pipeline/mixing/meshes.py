"""Handles `shard_map` and its collectives for the analysis of losses over microbatches. There, a mesh axis may number
examples, like an axis of an array. `rules.py` registers its functions.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from pathways.compiler.frontends.jax.pipeline.mixing.equation_pair import EquationPair, Made, Rule
from pathways.compiler.frontends.jax.pipeline.mixing.layout import Digit, Shapes, merged, numbering_dims
from pathways.compiler.frontends.jax.pipeline.mixing.reductions import reduced
from pathways.compiler.frontends.jax.pipeline.mixing.relation import Form, Relation, Why, filled, forgotten


def _shard_map(step: EquationPair) -> Made:
    sizes = dict(step.params["mesh"].shape)
    ins: list[Relation] = []
    by_batch = _axes_of_batch(step)
    for relation, shapes, spec in zip(step.ins, step.shapes, step.params["in_specs"], strict=True):
        inside = _local(step, relation, shapes, spec, sizes)
        if inside is None:
            return step.unknown("a mesh splits single examples of the batch")
        if inside.form is not Form.ROWS and by_batch & _names_in(spec) and inside.known is None:
            inside = replace(inside, is_even=False)  # each device combines another part of it with other examples
        ins.append(inside)
    made = step.walk.body(step.both[0]["jaxpr"], step.both[1]["jaxpr"], ins)
    results = zip(made, step.outs, step.params["out_specs"], strict=True)
    return [_global(step, relation, shapes, spec, sizes) for relation, shapes, spec in results]


def _names_in(spec: Any) -> set[Any]:
    return {name for dim in range(len(spec)) for name in _names_of(spec, dim)}


def _axes_of_batch(step: EquationPair) -> set[Any]:
    """Returns the mesh axes over which examples are split."""
    found = set[Any]()
    for relation, spec in zip(step.ins, step.params["in_specs"], strict=True):
        if relation.form is Form.ROWS:
            found |= {name for d in relation.layout if d.dim >= 0 for name in _names_of(spec, d.dim)}
    return found


def _names_of(spec: Any, dim: int) -> tuple[Any, ...]:
    """Returns the mesh axes over which one axis of an array is split."""
    return _listed(spec[dim]) if dim < len(spec) and spec[dim] is not None else ()


def _listed(names: Any) -> tuple[Any, ...]:
    return tuple(cast("Sequence[Any]", names)) if isinstance(names, tuple | list | frozenset) else (names,)


def _local_shape(shape: Sequence[int], spec: Any, sizes: dict[Any, int]) -> tuple[int, ...]:
    split = [int(np.prod([sizes[n] for n in _names_of(spec, d)])) for d in range(len(shape))]
    return tuple(size // k for size, k in zip(shape, split, strict=True))


def _local_shapes(shapes: Shapes, spec: Any, sizes: dict[Any, int]) -> Shapes:
    return _local_shape(shapes[0], spec, sizes), _local_shape(shapes[1], spec, sizes)


def _local(step: EquationPair, relation: Relation, shapes: Shapes, spec: Any, sizes: dict[Any, int]) -> Relation | None:
    """Returns the relation of one device's part; None if an example lies on several devices."""
    if relation.form is not Form.ROWS:
        known = filled(relation, _local_shapes(shapes, spec, sizes))
        return replace(forgotten(relation, shapes), known=known)
    layout = list(relation.layout)
    for dim in range(len(shapes[0])):
        for name in _names_of(spec, dim):
            found = max((d for d in layout if d.dim == dim), key=lambda d: d.inner[0], default=None)
            if found is None:
                continue
            parts = sizes[name]
            covers = found.block == (shapes[0][dim], shapes[1][dim])
            if found.n[0] % parts or found.n[1] % parts or not covers:
                return None
            rest = replace(found, n=(found.n[0] // parts, found.n[1] // parts))
            at = layout.index(found)
            layout[at : at + 1] = [Digit(step.walk.named_axis(name), (1, 1), (parts, parts)), rest]
    return replace(relation, layout=tuple(layout), known=None, own=frozenset())


def _global(step: EquationPair, relation: Relation, shapes: Shapes, spec: Any, sizes: dict[Any, int]) -> Relation:
    """Returns the relation of the array that the parts of all devices form."""
    if relation.form is not Form.ROWS:
        return forgotten(relation, _local_shapes(shapes, spec, sizes))
    axes: dict[int, tuple[int, tuple[int, int]]] = {}
    local = _local_shapes(shapes, spec, sizes)
    for dim in range(len(shapes[0])):
        below = (local[0][dim], local[1][dim])
        for name in reversed(_names_of(spec, dim)):
            axes[step.walk.named_axis(name)] = (dim, below)
            below = (below[0] * sizes[name], below[1] * sizes[name])
    layout = merged([Digit(*axes[d.dim], d.n) if d.dim in axes else d for d in relation.layout])
    if any(d.dim in {step.walk.named_axis(name) for name in sizes} for d in layout):
        return step.unknown("a result differs between devices that hold different examples")
    return replace(relation, layout=layout, known=None)


def _axes_of(step: EquationPair, names: Any) -> set[int]:
    return {n if isinstance(n, int) else step.walk.named_axis(n) for n in _listed(names)}


def _reduce(*, is_sum: bool) -> Rule:
    def apply(step: EquationPair) -> Made:
        axes = _axes_of(step, step.params.get("axes", step.params.get("axis_name")))
        return [reduced(step, i, axes, is_sum=is_sum) for i in range(len(step.ins))]

    return apply


def _all_gather(step: EquationPair) -> Made:
    rows = step.ins[0]
    dim: int = step.params["all_gather_dimension"]
    if rows.form is not Form.ROWS:
        return replace(rows, known=None)
    (axis, *others) = _axes_of(step, step.params["axis_name"])
    if others:
        return step.unknown("there is no rule for all_gather over several axes")
    is_tiled, moved = step.params["tiled"], list[Digit]()
    if is_tiled and dim in numbering_dims(rows.layout) and axis not in numbering_dims(rows.layout):
        return step.unknown("the batch is repeated")
    below = (step.shapes[0][0][dim], step.shapes[0][1][dim]) if is_tiled else (1, 1)
    for digit in rows.layout:
        if digit.dim == axis:
            moved.append(Digit(dim, below, digit.n))
        else:
            moved.append(digit if is_tiled or digit.dim < dim else replace(digit, dim=digit.dim + 1))
    return step.with_layout(rows, merged(moved))


def _permute(step: EquationPair) -> Made:
    rows = step.ins[0]
    axes = _axes_of(step, step.params["axis_name"])
    if rows.form is not Form.ROWS:
        return replace(rows, known=None)
    return step.touched(rows, axes, Why.ORDER, "examples move between devices")


def _alike(step: EquationPair) -> Made:
    """Returns the operands' relations: these operations only declare over which axes a value differs."""
    return list(step.ins)


RULES: dict[str, Rule] = {
    "shard_map": _shard_map,
    **dict.fromkeys(("psum", "psum_invariant", "psum2"), _reduce(is_sum=True)),
    **dict.fromkeys(("pmax", "pmin"), _reduce(is_sum=False)),
    **dict.fromkeys(("all_gather", "all_gather_invariant"), _all_gather),
    "ppermute": _permute,
    "pbroadcast": _permute,
    **dict.fromkeys(("pvary", "pcast"), _alike),
}
