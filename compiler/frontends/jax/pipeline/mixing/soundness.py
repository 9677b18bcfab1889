"""Checks what the analysis of a loss concludes about each equation. If the equation depends on the batch size, or
misuses a sum over a part of the batch, it records this as a fault. `walk.py` and `constants.py` call it after each
equation.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pathways.compiler.frontends.jax.pipeline.mixing.elementwise import ELEMENTWISE, SAME
from pathways.compiler.frontends.jax.pipeline.mixing.equation_pair import EquationPair
from pathways.compiler.frontends.jax.pipeline.mixing.layout import BOTH, idle_axes
from pathways.compiler.frontends.jax.pipeline.mixing.relation import (
    Form,
    MixingCause,
    Relation,
    Why,
    is_close,
    is_level,
)

_SIZES: Mapping[str, frozenset[str]] = {
    "reshape": frozenset({"new_sizes"}),
    "broadcast_in_dim": frozenset({"shape"}),
    "iota": frozenset({"shape"}),
    "slice": frozenset({"start_indices", "limit_indices"}),
    "split": frozenset({"sizes"}),
    "gather": frozenset({"slice_sizes"}),
    "dynamic_slice": frozenset({"slice_sizes"}),
    "random_bits": frozenset({"shape"}),
    "random_split": frozenset({"shape"}),
    "random_gamma": frozenset({"shape"}),
    "rng_bit_generator": frozenset({"shape"}),
    "rng_uniform": frozenset({"shape"}),
}
"""Parameters that are sizes of axes. They may differ between the traces. All other parameters must be equal."""
_PLACED = ("sharding", "layout", "memory")
"""Words in the names of parameters that describe where a value lies."""
_INDICES = {"gather": 1, "dynamic_slice": 1, "dynamic_update_slice": 2, "scatter": 1}
"""The first operand that is an index. The last operand of a scatter is not an index."""
_TAKES_IDLE = ELEMENTWISE | {
    *("broadcast_in_dim", "transpose", "squeeze", "expand_dims", "reduce_sum", "reduce_max", "reduce_min"),
    *("reduce_and", "reduce_or", "psum", "psum_invariant", "pmax", "pmin", "pvary", "pcast"),
}
"""Operations that are right along an axis that is longer in the whole batch, if all numbers along it are equal."""
_TAKES_PARTS = SAME | {
    *("add", "sub", "add_any", "mul", "div", "dot_general", "reduce_sum", "psum", "psum_invariant", "reshape"),
    *("broadcast_in_dim", "transpose", "squeeze", "expand_dims", "rev", "slice", "concatenate", "cumsum", "pad"),
    *("select_n", "pvary", "pcast"),
}
"""Operations that may be linear in sums over a part of the batch."""


def differing_sizes(step: EquationPair) -> bool:
    """Returns whether an operation uses a number that differs in the whole batch, and is not a size of the batch."""
    whole, part = step.both
    allowed = _SIZES.get(step.name, frozenset[str]())
    for name in whole:
        is_placed = any(word in name for word in _PLACED)
        if name not in allowed and not is_placed and not _are_equal(whole[name], part.get(name)):
            return True
    return _takes_other_parts(step)


def _are_equal(a: Any, b: Any) -> bool:
    """Whether two parameters are equal; functions and jaxprs count as equal."""
    if callable(a) or hasattr(a, "eqns") or hasattr(a, "jaxpr"):
        return True
    try:
        return bool(a == b) or bool(a != a and b != b)  # NaN fills, too
    except (TypeError, ValueError):
        return True


def _takes_other_parts(step: EquationPair) -> bool:
    """Returns whether the two traces take different parts of an axis that numbers no examples."""
    whole, part = step.both
    if step.name not in ("slice", "gather", "dynamic_slice"):
        return False
    numbering = {d.dim for d in step.ins[0].layout if d.grows}
    for dim, sizes in enumerate(zip(*step.shapes[0], strict=True)):
        if step.name == "slice":
            ends = [(p["start_indices"][dim], p["limit_indices"][dim]) for p in (whole, part)]
            is_all = all(ends[t] == (0, sizes[t]) for t in BOTH)
        else:
            ends = [p["slice_sizes"][dim] for p in (whole, part)]
            is_all = step.is_whole_axis(dim)
        if dim not in numbering and ends[0] != ends[1] and not is_all:
            return True
    return False


def checked(step: EquationPair, made: list[Relation]) -> list[Relation]:
    """Returns the relations of results, with causes if the operation breaks them."""
    if all(r.form is Form.LOST for r in made):
        return made
    if differing_sizes(step):
        return [step.lost(Why.SIZE)] * len(made)
    if (lost := _index_problem(step)) is not None:
        return [lost] * len(made)
    if any(_has_idle_axes(r, s) for r, s in zip(step.ins, step.shapes, strict=True)) and step.name not in _TAKES_IDLE:
        return [_idle(step)] * len(made)
    causes = set(_partial_causes(step))
    found: list[Relation] = []
    for relation, shapes in zip(made, step.outs, strict=True):
        if _has_idle_axes(relation, shapes):
            if step.name not in _TAKES_IDLE:
                found.append(_idle(step))
                continue
            pairs = zip(step.ins, step.shapes, strict=True)
            if any(r.form is Form.CONST and not is_level(r, s) for r, s in pairs):
                causes.add(step.misplaced())
        found.append(replace(relation, causes=relation.causes | causes) if causes else relation)
    return found


def _has_idle_axes(relation: Relation, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> bool:
    return relation.form not in (Form.CONST, Form.LOST) and bool(idle_axes(relation.layout, shapes))


def _idle(step: EquationPair) -> Relation:
    return step.unknown(f"there is no rule for {step.name} along an axis that grows with the batch")


def _index_problem(step: EquationPair) -> Relation | None:
    """Returns a lost relation if the indices are constants that differ between the traces; else None."""
    first = next((n for name, n in _INDICES.items() if step.name.startswith(name)), None)
    if first is None:
        return None
    last = len(step.ins) - 1 if step.name.startswith("scatter") else len(step.ins)
    for relation in step.ins[first:last]:
        if relation.form is Form.CONST and not is_close(relation.factor, 1):
            is_even = relation.known is not None or relation.is_even
            cause = step.cause(Why.SIZE) if is_even else step.misplaced()
            return Relation(Form.LOST, causes=frozenset({cause}), has_data=True)
    return None


def _partial_causes(step: EquationPair) -> Iterator[MixingCause]:
    """Yields a cause if an operation is not linear in sums over a part of the batch."""
    parts = [r for r in step.ins if r.is_partial]
    if not parts:
        return
    others = [r for r in step.ins if not r.is_partial]
    if step.name in ("mul", "dot_general"):
        is_linear = len(parts) == 1 and all(r.form is Form.CONST for r in others)
    elif step.name == "div":
        is_linear = step.ins[0].is_partial and all(r.form is Form.CONST for r in others)
    elif step.name == "select_n":
        is_linear = not step.ins[0].is_partial and all(r.is_partial or r.is_zero for r in step.ins[1:])
    else:
        is_linear = step.name in _TAKES_PARTS and all(r.is_zero for r in others)
    if not is_linear:
        yield step.cause(Why.PARTIAL)
