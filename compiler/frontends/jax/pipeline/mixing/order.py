"""Handles operations along an axis for the analysis of losses over microbatches: sorts, cumulative sums, windows, FFTs,
matrix decompositions. They mix examples only if the axis numbers examples. `rules.py` registers its functions.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pathways.compiler.frontends.jax.pipeline.mixing.elementwise import of_totals
from pathways.compiler.frontends.jax.pipeline.mixing.equation_pair import EquationPair, Made, Rule
from pathways.compiler.frontends.jax.pipeline.mixing.relation import (
    Form,
    Relation,
    Why,
    is_close,
    is_same_everywhere,
    tiles,
)

_KEEP_SCALE = frozenset(
    {
        *("sort", "top_k", "approx_top_k", "fft", "cumsum", "cummax", "cummin", "reduce_window_max"),
        *("reduce_window_min", "reduce_window_sum", "select_and_scatter_add", "select_and_gather_add"),
    }
)
_BESIDE = ("sort", "triangular_solve", "tridiagonal_solve", "select_and_scatter_add", "select_and_gather_add")
"""Operations with several operands, some of which may be constants."""
_INTEGERS = "iu"


def over_axes(step: EquationPair, dims: set[int], text: str) -> Relation:
    """Returns the relation of an operation that works along some axes."""
    rows = step.rows
    if not rows:
        return of_totals(step, step.ins, "along an axis")
    out, causes = rows[0], {step.back(r) for r in step.ins if r.is_statistic}
    if step.name not in _KEEP_SCALE:
        causes |= {c for r in rows for c in step.unscaled(r).causes - r.causes}
        out = replace(out, scale=1.0)
    elif not is_same_everywhere(r.scale for r in rows):
        causes.add(step.cause(Why.SIZE))
        out = replace(out, scale=1.0)
    if any(r.layout != out.layout for r in rows):
        return step.combines()
    for relation, shapes in zip(step.ins, step.shapes, strict=True):
        if relation.form is Form.CONST and not relation.is_zero:
            if not tiles(relation, shapes, out.layout):
                causes.add(step.misplaced())
            elif step.name in _BESIDE and not is_close(relation.factor, 1):
                causes.add(step.cause(Why.SIZE))
    out = step.touched(out, dims, Why.ORDER, text)
    return replace(out, causes=out.causes | causes, has_data=True)


def _sort(step: EquationPair) -> Made:
    return _numbers_unscaled(step, over_axes(step, {step.params["dimension"]}, "the batch is sorted"))


def _top_k(step: EquationPair) -> Made:
    axis = step.params.get("axis", step.params.get("reduction_dimension", -1)) % step.rank()
    return _numbers_unscaled(step, over_axes(step, {axis}, "the largest values of the batch are selected"))


def _numbers_unscaled(step: EquationPair, made: Relation) -> list[Relation]:
    """Returns the relations of a sort's results. Its indices do not scale with its numbers."""
    are_numbers = step.whole.invars[0].aval.dtype.kind not in _INTEGERS
    avals = [v.aval for v in step.whole.outvars]
    return [replace(made, scale=1.0) if are_numbers and a.dtype.kind in _INTEGERS else made for a in avals]


def _cumulative(step: EquationPair) -> Made:
    if step.ins[0].form is Form.TOTAL and step.name == "cumsum":
        return step.ins[0]
    return over_axes(step, {step.params["axis"]}, f"{step.name} over the batch")


def _fft(step: EquationPair) -> Made:
    rank = step.rank()
    return over_axes(
        step, set(range(rank - len(step.params["fft_lengths"]), rank)), "a Fourier transform over the batch"
    )


def _of_last_axes(count: int) -> Rule:
    """Returns the rule of an operation on matrices or vectors, which are the last axes of its operands."""

    def apply(step: EquationPair) -> Made:
        return over_axes(step, {step.rank() - 1 - i for i in range(count)}, "the batch is an axis of a matrix")

    return apply


def _window(step: EquationPair) -> Made:
    window: Sequence[int] = step.params["window_dimensions"]
    padding = step.params.get("padding") or [(0, 0)] * len(window)
    strides = step.params.get("window_strides") or [1] * len(window)
    sizes = enumerate(zip(window, padding, strides, strict=True))
    dims = {i for i, (size, pad, stride) in sizes if size != 1 or tuple(pad) != (0, 0) or stride != 1}
    return over_axes(step, dims, "a window over the batch")


def _rules(names: Sequence[str], rule: Callable[[EquationPair], Made]) -> dict[str, Rule]:
    return dict.fromkeys(names, rule)


RULES: dict[str, Rule] = {
    "sort": _sort,
    **_rules(("top_k", "approx_top_k"), _top_k),
    **_rules(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), _cumulative),
    "fft": _fft,
    **_rules(
        (
            *("cholesky", "lu", "qr", "eigh", "svd", "eig", "geqrf", "geqp3", "householder_product", "schur"),
            *("triangular_solve", "hessenberg", "tridiagonal", "cholesky_update"),
        ),
        _of_last_axes(2),
    ),
    **_rules(("tridiagonal_solve", "lu_pivots_to_permutation"), _of_last_axes(2)),
    **_rules(
        (
            *("reduce_window", "reduce_window_max", "reduce_window_min", "reduce_window_sum"),
            *("select_and_gather_add", "select_and_scatter_add"),
        ),
        _window,
    ),
}
