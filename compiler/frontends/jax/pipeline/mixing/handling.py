"""Decides how a loss is computed over microbatches so that it equals the loss of the whole batch. Some losses run
unchanged. For others, some values are first computed once for the whole batch, or sums are first added up.
`whole_batch.py` calls it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.pipeline.mixing.analyze import (
    NoWholeTrace,
    Traces,
    has_single_rows,
    related,
    traced_twice,
)
from pathways.compiler.frontends.jax.pipeline.mixing.hoist import Hoists, hoisted, made_once, run_with_extras
from pathways.compiler.frontends.jax.pipeline.mixing.judge import BatchVerdict, Exactly, Semantics, judged
from pathways.compiler.frontends.jax.pipeline.mixing.layout import BOTH
from pathways.compiler.frontends.jax.pipeline.mixing.relation import (
    Form,
    MixingCause,
    Relation,
    Site,
    Why,
    is_close,
    per_microbatch,
)
from pathways.compiler.frontends.jax.pipeline.mixing.same_program import compared, grow_alike
from pathways.compiler.frontends.jax.pipeline.mixing.totals import NotASum, Totals, totals_of
from pathways.compiler.frontends.jax.pipeline.mixing.walk import ProgramsDiffer
from pathways.dialect.jax_api import dtypes, eval_shape, make_jaxpr, numpy, value_and_grad


@dataclass(frozen=True, eq=False)
class Handling:
    """The verdict on a loss, and how its microbatches compute it. Without hoists, the loss runs unchanged."""

    verdict: BatchVerdict
    hoists: Hoists | None = None
    totals: Totals | None = None
    part: Any = None
    """The jaxpr of one microbatch, if the loss runs unchanged; None if it is not traced for these shapes."""
    others: Sequence[Relation] = ()
    """The relations of the auxiliary values."""


_OF_ONE = "one example traces to another program than several examples; use fewer microbatches"
_SIZES_OF_ONE = "a number depends on the batch otherwise for one example than for several; use fewer microbatches"


def handled(flat: Callable[..., Sequence[Any]], avals: Sequence[Any], batch: frozenset[int], count: int) -> Handling:
    """Decides how `flat(*leaves)`, whose first result is the loss, runs over `count` microbatches.

    `avals` are the types of the leaves for the whole batch. `batch` holds the positions of leaves with a row per
    example.
    """
    is_single = has_single_rows(avals, batch, count)
    try:
        traces = traced_twice(flat, avals, batch, count, 1 + is_single)
        found = _handled(flat, avals, traces, is_single=is_single)
    except NoWholeTrace as error:
        note = f"the loss cannot be traced for the whole batch ({error})"
        return Handling(BatchVerdict(Semantics.UNKNOWN, note=note))
    return found if is_single or found.hoists is not None else replace(found, part=traces.part)


def _handled(flat: Callable[..., Sequence[Any]], avals: Sequence[Any], traces: Traces, *, is_single: bool) -> Handling:
    count = traces.count
    try:
        relations, walk = related(traces)
    except ProgramsDiffer as error:
        return Handling(_differs(error))
    real = traced_twice(flat, avals, traces.batch, count) if is_single else traces
    numbers = compared(traces, real) if is_single else []
    if numbers is None:
        return Handling(BatchVerdict(Semantics.UNKNOWN, note=_OF_ONE))
    verdict = judged(relations[0], count)
    plain = verdict.semantics in (Semantics.MEAN, Semantics.SUM) or verdict.exactly is Exactly.SCALED
    if plain and not all(grow_alike(*of) for of in numbers):
        return Handling(BatchVerdict(Semantics.UNKNOWN, note=_SIZES_OF_ONE))
    found = Handling(verdict, others=relations[1:])
    if not plain:
        traces = real
        found = _exactly(traces, verdict, relations[0])
        if is_single and verdict.semantics is Semantics.EXACT and found.verdict.semantics is Semantics.UNKNOWN:
            found = Handling(BatchVerdict(Semantics.UNKNOWN, note=_OF_ONE))
    return _with_backward(found, traces, walk.backward[0]) if walk.backward else found


def _exactly(traces: Traces, verdict: BatchVerdict, loss: Relation) -> Handling:
    """Hoists values that can be computed once, and finds the remaining sums. If that fails, the loss runs unchanged."""
    try:
        found = _hoisted(traces, verdict, takes=True)
        if found is None and verdict.semantics is Semantics.EXACT:
            found = _hoisted(traces, verdict, takes=False)
    except ProgramsDiffer as error:
        return Handling(_differs(error))
    except NotASum as error:
        text = "a function of all examples that is not a sum over them"
        return Handling(BatchVerdict(Semantics.UNKNOWN, [MixingCause(Why.UNKNOWN, Site(error.eqn, ()), text)]))
    if found is not None or verdict.semantics is not Semantics.EXACT:
        return found or Handling(verdict)
    noise = [c for c in loss.causes if c.why is Why.NOISE]
    if noise:  # drawn where it cannot be hoisted, as in a while loop
        return Handling(BatchVerdict(Semantics.MIXES, noise))
    return Handling(BatchVerdict(Semantics.UNKNOWN))


def _hoisted(traces: Traces, verdict: BatchVerdict, *, takes: bool) -> Handling | None:
    """Finds how to compute a loss exactly; None if there is no way. Raises NotASum and ProgramsDiffer."""
    (loss, *others), walk = hoisted(traces, takes=takes)
    again = judged(loss, traces.count)
    if any(c.why is Why.NOISE for c in loss.causes):
        return None
    if again.semantics in (Semantics.MEAN, Semantics.SUM) or again.exactly is Exactly.SCALED:
        exactly = verdict.exactly or Exactly.HOISTED
        exact = replace(verdict, semantics=Semantics.EXACT, exactly=exactly, scale=again.scale)
        return Handling(exact, walk.hoists, others=others)
    if again.semantics is not Semantics.EXACT:
        return None
    exact = replace(verdict, semantics=Semantics.EXACT, exactly=again.exactly)
    return Handling(exact, walk.hoists, totals_of(walk), others=others)


def _differs(error: ProgramsDiffer) -> BatchVerdict:
    text = "the loss traces to another program for another number of examples"
    if error.site is None:
        return BatchVerdict(Semantics.UNKNOWN, note=text)
    return BatchVerdict(Semantics.UNKNOWN, [MixingCause(Why.UNKNOWN, error.site, text)])


def _with_backward(found: Handling, traces: Traces, origin: Site) -> Handling:
    """Returns the verdict including custom derivatives, which may mix examples in the backward pass alone."""
    if found.verdict.semantics in (Semantics.MIXES, Semantics.UNKNOWN):
        return found
    try:
        (loss, *gradients), _ = related(_graded(found, traces))
    except ProgramsDiffer as error:
        return Handling(_differs(error))
    causes = [c for r in gradients for c in r.causes]
    mixing = [c for c in causes if c.why.mixes]
    text = "the backward pass of a custom derivative is not a sum over the examples"
    scale = loss.scale if loss.form is Form.TOTAL else per_microbatch(loss.factor, traces.count)
    if any(not _fits(r, scale, traces.count) for r in gradients if r.form is not Form.LOST):
        mixing.append(MixingCause(Why.BACK, origin, text))
    if mixing:
        return Handling(BatchVerdict(Semantics.MIXES, mixing))
    if any(c.why is Why.UNKNOWN for c in causes) or any(r.form is Form.LOST for r in gradients):
        return Handling(BatchVerdict(Semantics.UNKNOWN, causes))
    return found


def _fits(gradient: Relation, scale: float | None, count: int) -> bool:
    """Whether a gradient of the whole batch is `scale` times the sum of the gradients of the microbatches."""
    if gradient.form is Form.CONST:
        return gradient.is_zero or is_close(per_microbatch(gradient.factor, count), scale)
    return gradient.form is Form.TOTAL and is_close(gradient.scale, scale)


def _graded(found: Handling, traces: Traces) -> Traces:
    """Returns the traces of the loss with its gradients by all floating-point leaves outside the batch.

    Extras with rows are leaves of the batch.
    """
    hoists, axes = found.hoists, [e.axis for e in found.hoists.extras] if found.hoists else []
    bodies = [compat.body_of(j) for j in (traces.whole, traces.part)]
    count = len(bodies[0].invars)
    floating = [
        i
        for i, v in enumerate(bodies[0].invars)
        if i not in traces.batch and dtypes.issubdtype(v.aval.dtype, numpy.floating)
    ]
    functions = [compat.as_function(j) for j in (traces.whole, traces.part)]

    def graded(t: int) -> Callable[..., list[Any]]:
        def value(numbers: Sequence[Any], given: Sequence[Any]) -> Any:
            arguments = list(given[:count])
            for i, number in zip(floating, numbers, strict=True):
                arguments[i] = number
            if hoists is None:
                return functions[t](*arguments)[0]
            extras = [_moved(x, 0, axis) for x, axis in zip(given[count:], axes, strict=True)]
            results = None if found.totals is None else found.totals.both[t]
            made = run_with_extras(hoists, t, arguments, extras, results)
            if found.totals is None:
                return made[0]
            scales = found.totals.scales if t else [1.0] * len(made)
            return sum(m.sum() * s for m, s in zip(made, scales, strict=True))

        def both(*given: Any) -> list[Any]:
            loss, gradients = value_and_grad(value)([given[i] for i in floating], given)
            return [loss, *gradients]

        return both

    shapes = [[compat.struct(v.aval) for v in body.invars] for body in bodies]
    if hoists is not None:
        made = eval_shape(partial(_made_once, hoists), *shapes[0])
        for t in BOTH:
            for extra, axis in zip(made, axes, strict=True):
                shapes[t].append(_struct_of_extra(extra, axis, traces.count if t else 1))
    batch = traces.batch | {count + i for i, axis in enumerate(axes) if axis is not None}
    whole, part = (make_jaxpr(graded(t))(*shapes[t]) for t in BOTH)
    return Traces(whole, part, batch, traces.count)


def _made_once(hoists: Hoists, *arguments: Any) -> list[Any]:
    return made_once(hoists, arguments)


def _moved(x: Any, source: int, axis: int | None) -> Any:
    return x if axis is None else numpy.moveaxis(x, source, axis)


def _struct_of_extra(extra: Any, axis: int | None, parts: int) -> Any:
    if axis is None:
        return extra
    shape = list(extra.shape)
    rows = shape.pop(axis)
    return jax.ShapeDtypeStruct((rows // parts, *shape), extra.dtype)
