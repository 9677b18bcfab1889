"""Makes a pipelined loss over microbatches equal to the loss of the whole batch, if that is possible. Otherwise it
warns or raises an error. `pipeline.py` calls it; the package `mixing` does the analysis.
"""

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from pathways.compiler.frontends.jax.pipeline.errors import (
    AuxDiffers,
    MixesExamples,
    WrongReduce,
)
from pathways.compiler.frontends.jax.pipeline.microbatches import Finish, Microbatches, in_type_of
from pathways.compiler.frontends.jax.pipeline.mixing.analyze import types_of_part
from pathways.compiler.frontends.jax.pipeline.mixing.handling import Handling, handled
from pathways.compiler.frontends.jax.pipeline.mixing.hoist import Extra, made_once, run_with_extras
from pathways.compiler.frontends.jax.pipeline.mixing.judge import Semantics
from pathways.compiler.frontends.jax.pipeline.mixing.relation import Form, Relation, Why, is_close
from pathways.compiler.frontends.jax.pipeline.mixing.semantics import BatchSemantics, mixing_text
from pathways.dialect import jax_api
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.jax_api import numpy, tree_util
from pathways.dialect.user_line import caller

MIXES = ("warn", "refuse", "allow")
"""The reactions to a loss that mixes examples."""


class MicrobatchWarning(UserWarning):
    """Warns that a loss over microbatches is not the loss of the whole batch."""


@dataclass(frozen=True, eq=False)
class WholeBatch:
    """Runs the loss of one call over microbatches. `loss(*leaves)` is the user's loss."""

    loss: Callable[..., Any]
    handling: Handling
    many: Microbatches
    rest: Any
    """The structure of the auxiliary values."""
    names: Sequence[str] = ()
    """The names of the auxiliary leaves."""

    @property
    def is_whole(self) -> bool:
        """Whether the result is the loss of the whole batch."""
        return self.handling.verdict.semantics not in (Semantics.MIXES, Semantics.UNKNOWN)

    @property
    def traced(self) -> tuple[Any, Any] | None:
        """Returns the jaxpr of one microbatch and the structure of its results, if the loss runs unchanged."""
        part = self.handling.part
        if part is None or self.many.reduce == "weighted":
            return None
        rest = tree_util.tree_unflatten(self.rest, [0] * len(self.names))
        return part, tree_util.tree_structure((0, rest))

    @property
    def extras(self) -> list[Extra]:
        return [] if self.handling.hoists is None else self.handling.hoists.extras

    def made_once(self, leaves: Sequence[Any]) -> list[Any]:
        """Computes the extras from the leaves of the whole batch."""
        return [] if self.handling.hoists is None else made_once(self.handling.hoists, leaves)

    def cut(self, extras: Sequence[Any]) -> list[Any]:
        """Returns the extras with a leading axis of microbatches: each microbatch gets its rows, or the whole value."""
        return [self._cut(x, e.axis) for x, e in zip(extras, self.extras, strict=True)]

    def extras_of(self, *leaves: Any) -> list[Any]:
        """Returns the extras of the leaves of a whole batch, with a leading axis of microbatches."""
        return self.cut(self.made_once(leaves))

    def _cut(self, x: Any, axis: int | None) -> Any:
        count = self.many.count
        if axis is None:
            return numpy.broadcast_to(x, (count, *x.shape))
        rows = numpy.moveaxis(x, axis, 0)
        return rows.reshape(count, -1, *rows.shape[1:])

    def of_microbatch(self, *given: Any) -> Any:
        """Computes the sums of one microbatch, and the auxiliary values, from its leaves and its extras."""
        hoists, totals = self.handling.hoists, self.handling.totals
        if hoists is None:
            value, rest = self.many.parted(self.loss(*given))
            return (value[0] / value[1] if self._is_quotient else value), rest
        count = len(given) - len(self.extras)
        axes = [e.axis for e in self.extras]
        extras = [x if a is None else numpy.moveaxis(x, 0, a) for x, a in zip(given[count:], axes, strict=True)]
        results = hoists.part.outvars if totals is None else [*totals.part, *hoists.part.outvars[1:]]
        made = run_with_extras(hoists, 1, given[:count], extras, results)
        sums = 1 if totals is None else len(totals.part)
        rest = None if self.rest is None else tree_util.tree_unflatten(self.rest, made[sums:])
        return (made[0] if totals is None else made[:sums]), rest

    @property
    def _is_quotient(self) -> bool:
        """Whether each microbatch of a (sum, weight) loss already returns the quotient."""
        return self.many.reduce == "weighted" and self.is_whole

    def finish(self, leaves: Sequence[Any], extras: Sequence[Any]) -> Finish | None:
        """Returns the function that computes the loss from the sums over the microbatches; None if `reduce` does."""
        verdict, totals = self.handling.verdict, self.handling.totals
        if totals is not None:
            return lambda sums, _: totals.loss_of(sums, leaves, extras)
        is_scaled = verdict.semantics is Semantics.EXACT or self._is_quotient
        if verdict.scale is None or not is_scaled:
            return None
        return lambda total, loss: in_type_of(loss, total * verdict.scale)


def whole_batch(
    loss: Callable[..., Any],
    leaves: Sequence[jax.ShapeDtypeStruct],
    batch: Sequence[int],
    many: Microbatches,
    mixes: str,
) -> WholeBatch:
    """Decides how a loss runs over microbatches, from the types of its leaves.

    `batch` holds the positions of the batch leaves.
    """
    structure: list[Any] = []

    def flat(*given: Any) -> list[Any]:
        value, rest = many.parted(loss(*given))
        found, tree = tree_util.tree_flatten_with_path(rest)
        structure.append((tree, [tree_util.keystr(path) or "it" for path, _ in found]))
        return [value[0] / value[1] if many.reduce == "weighted" else value, *(leaf for _, leaf in found)]

    handling = handled(flat, leaves, frozenset(batch), many.count)
    if not structure:  # tracing failed for more rows than a microbatch has
        jax_api.eval_shape(flat, *types_of_part(leaves, frozenset(batch), 1, many.count))
    if mixes == "allow" and handling.totals is not None:
        handling = Handling(replace(handling.verdict, semantics=Semantics.MIXES, exactly=None))
    return WholeBatch(loss, handling, many, *structure[-1])


def check_reduce(name: str, whole: WholeBatch) -> None:
    """Raises PWC0124 if `reduce` changes the value of a loss that is a mean or a sum."""
    reduce, semantics, count = whole.many.reduce, whole.handling.verdict.semantics, whole.many.count
    if (semantics, reduce) == (Semantics.SUM, "mean"):
        wrong, right = f"{count} times too small", "sum"
    elif (semantics, reduce) == (Semantics.MEAN, "sum"):
        wrong, right = f"{count} times too large", "mean"
    else:
        return
    have = f"a loss that is a {right} over the examples"
    raise PathwaysError(WrongReduce(loss=name, reduce=reduce, wrong=wrong, have_=have, right=right, where=caller()))


def warn_of_aux(name: str, whole: WholeBatch, mixes: str) -> None:
    """Warns if `aux` makes auxiliary values differ from those of the whole batch, or raises PWC0128."""
    many = whole.many
    rules = {"mean": "means over the examples", "sum": "sums over the examples", "concat": "rows of the examples"}
    if mixes == "allow" or not many.has_aux or many.aux not in rules or not whole.is_whole:
        return
    pairs = zip(whole.names, whole.handling.others, strict=False)
    wrong = [leaf for leaf, relation in pairs if not _is_of_whole_batch(relation, many)]
    if not wrong:
        return
    more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    leaves = f"{', '.join(wrong[:3])}{more}"
    rule, where = rules[many.aux], caller()
    diagnostic = AuxDiffers(loss=name, aux=many.aux, microbatches=many.count, leaves=leaves, rule=rule, where=where)
    if mixes == "refuse":
        raise PathwaysError(diagnostic)
    _warn(diagnostic.render("warning"))


def _is_of_whole_batch(relation: Relation, many: Microbatches) -> bool:
    """Whether `aux` combines the values of microbatches to the value of the whole batch; true if that is unknown."""
    if any(c.why is Why.UNKNOWN for c in relation.causes):
        return True
    is_clean = not relation.causes and not relation.own
    match many.aux:
        case "concat":
            digits = relation.layout
            in_front = len(digits) == 1 and digits[0].dim == 0 and digits[0].grows and not relation.is_partial
            return is_clean and relation.form is Form.ROWS and in_front and is_close(relation.scale, 1)
        case "mean" if relation.form is Form.CONST:
            return is_clean and is_close(relation.factor, 1)
        case _:
            scale = 1 / many.count if many.aux == "mean" else 1.0
            return is_clean and relation.form is Form.TOTAL and is_close(relation.scale, scale)


def warn_of_mixing(semantics: BatchSemantics, mixes: str) -> None:
    """Warns if a loss mixes examples, or raises PWC0119 under mixes="refuse".

    Prints a note if the analysis is undecided.
    """
    if mixes == "allow" or semantics.verdict not in ("mixes", "unknown"):
        return
    if semantics.verdict == "unknown":
        cause = f"{semantics.causes[0]}; " if semantics.causes else ""
        text = f"cannot tell whether {semantics.loss} mixes examples: {cause}{semantics.handling}"
        print(f"note: {text}", file=sys.stderr)
        return
    text, where = mixing_text(semantics.causes)
    diagnostic = MixesExamples(
        loss=semantics.loss, microbatches=semantics.microbatches, have_=text, where=where or caller()
    )
    if mixes == "refuse":
        raise PathwaysError(diagnostic)
    _warn(diagnostic.render("warning"))


def _warn(text: str) -> None:
    where = caller()
    if where is None:
        warnings.warn(text, MicrobatchWarning, stacklevel=2)
    else:
        warnings.warn_explicit(text, MicrobatchWarning, where.file, where.line)
