"""Handles operations that read no data of the batch, for the analysis of losses over microbatches. Some of their
results, such as masks and positions, still have one row for each example. `walk.py` calls it for such equations.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from pathways.compiler.frontends.jax.pipeline.mixing.elementwise import ELEMENTWISE, scale_of
from pathways.compiler.frontends.jax.pipeline.mixing.equation_pair import EquationPair, Made, Rule
from pathways.compiler.frontends.jax.pipeline.mixing.known import computed
from pathways.compiler.frontends.jax.pipeline.mixing.layout import Digit, Shapes, grown_axes
from pathways.compiler.frontends.jax.pipeline.mixing.relation import CONST, Form, Relation, is_level, tiles
from pathways.compiler.frontends.jax.pipeline.mixing.soundness import checked, differing_sizes

_KEEP_EVEN = frozenset(
    {
        *("reduce_max", "reduce_min", "reduce_and", "reduce_or", "transpose", "squeeze", "expand_dims", "rev"),
        "slice",
    }
)
"""Operations whose result has equal numbers along an axis if their operand has equal numbers along it."""


def constant(step: EquationPair, rules: Mapping[str, Rule]) -> Made:
    """Relates the results of an operation on constants."""
    ins, name, count = step.ins, step.name, len(step.outs)
    if all(r.known is not None for r in ins) and (ins or name == "iota"):
        known = [computed(eqn, [r.known[t] for r in ins if r.known]) for t, eqn in enumerate((step.whole, step.part))]
        if known[0] is not None and known[1] is not None:
            return [Relation(known=pair) for pair in zip(known[0], known[1], strict=True)]
    grows_in = any(a != b for a, b in step.shapes)
    grows_out = any(a != b for a, b in step.outs)
    if name == "iota":
        whole, part = step.outs[0]
        dim: int = step.params["dimension"]
        return Relation(is_even=not grows_out or whole[dim] == part[dim])
    if name == "axis_index" or (not (name == "slice" and grows_in) and differing_sizes(step)):
        return Relation(is_even=False)  # it differs between devices, or with the number of examples
    scales = [r.factor for r in ins]
    is_even = all(is_level(r, shapes) for r, shapes in zip(ins, step.shapes, strict=True))
    if name == "broadcast_in_dim":
        return Relation(scale=scales[0], is_even=is_even)
    if name in ELEMENTWISE or not (grows_in or grows_out):
        scale = scale_of(name, step.params, ins, scales) if ins else 1.0
        return [Relation(scale=scale, is_even=is_even)] * count
    if is_even and name == "reduce_sum":
        whole, part = step.shapes[0]
        axes: tuple[int, ...] = step.params["axes"]
        ratio = math.prod(whole[a] / max(1, part[a]) for a in axes)
        return Relation(scale=None if scales[0] is None else scales[0] * ratio)
    if is_even and name in _KEEP_EVEN:
        return Relation(scale=scales[0])
    return _as_rows(step, rules) if name in rules else Relation(is_even=False)


def _as_rows(step: EquationPair, rules: Mapping[str, Rule]) -> Made:
    """Applies the rule for rows to constants with one row per example, such as masks and positions."""
    count, ins = len(step.outs), list[Relation]()
    for relation, shapes in zip(step.ins, step.shapes, strict=True):
        if shapes[0] == shapes[1]:
            ins.append(relation)
            continue
        layout, scale = _layout_of(step, relation, shapes), relation.factor
        if layout is None or scale is None:
            return [Relation(is_even=False)] * count
        ins.append(replace(relation, form=Form.ROWS, layout=layout, scale=scale, known=None))
    if not any(r.form is Form.ROWS for r in ins):
        grows = any(a != b for a, b in step.outs)
        return [Relation(is_even=not grows)] * count
    as_rows = step.with_ins(ins)
    made = rules[step.name](as_rows)
    found = checked(as_rows, made if isinstance(made, list) else [made] * count)
    return [r if r.form in (Form.ROWS, Form.CONST, Form.TOTAL) else replace(CONST, is_even=False) for r in found]


def _layout_of(step: EquationPair, relation: Relation, shapes: Shapes) -> tuple[Digit, ...] | None:
    """Returns the digit of the one axis that grows with the batch, if the rows of each microbatch are equal."""
    (a, b), grown = shapes, grown_axes(shapes)
    if len(grown) != 1 or a[grown[0]] != b[grown[0]] * step.walk.count:
        return None
    layout = (Digit(grown[0], (1, 1), (a[grown[0]], b[grown[0]])),)
    return layout if tiles(relation, shapes, layout) else None
