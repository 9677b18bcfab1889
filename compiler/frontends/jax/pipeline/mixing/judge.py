"""Makes the final verdict on a loss over microbatches: a mean or sum over examples, exact in another way, mixing
examples, or unknown. `handling.py` calls it after all equations of the loss are analyzed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from pathways.compiler.frontends.jax.pipeline.mixing.relation import (
    Form,
    MixingCause,
    Relation,
    Site,
    Tail,
    Why,
    is_close,
)


class Semantics(Enum):
    """The meaning of a loss over microbatches."""

    MEAN = "mean"
    SUM = "sum"
    EXACT = "exact"
    MIXES = "mixes"
    UNKNOWN = "unknown"


class Exactly(Enum):
    """Exact ways to compute a loss that is neither a mean nor a sum over its examples."""

    NOISE = "random numbers are drawn once for the whole batch, and split"
    QUOTIENT = "both sums of a quotient are added up over the microbatches, and divided once"
    TOTALS = "sums are added up over the microbatches first"
    HOISTED = "values that depend on no parameter are computed once for the whole batch"
    SCALED = "the sum over the microbatches is scaled"


@dataclass(frozen=True)
class BatchVerdict:
    """The meaning of a loss over microbatches, and the causes.

    If `scale` is known, the loss is `scale` times the sum over the microbatches.
    """

    semantics: Semantics
    causes: Sequence[MixingCause] = ()
    exactly: Exactly | None = None
    scale: float | None = None
    origin: Site | None = None
    """The site at which the sums of an exact loss are taken."""
    note: str = ""
    """The reason for an unknown verdict, if no equation is the cause."""


def judged(loss: Relation, count: int) -> BatchVerdict:
    """Returns the verdict on a loss over `count` microbatches."""
    mixing = _of(loss, lambda why: why.mixes)
    if mixing:
        return BatchVerdict(Semantics.MIXES, mixing)
    unknown = _of(loss, lambda why: why is Why.UNKNOWN)
    if unknown or loss.form in (Form.LOST, Form.ROWS):
        return BatchVerdict(Semantics.UNKNOWN, unknown)
    if loss.form is Form.TAIL:
        exactly = Exactly.QUOTIENT if loss.tail is Tail.RATIO else Exactly.TOTALS
        return BatchVerdict(Semantics.EXACT, (), exactly, origin=loss.origin)
    noise = _of(loss, lambda why: why is Why.NOISE)
    factor = loss.factor
    if factor is None:
        return BatchVerdict(Semantics.UNKNOWN)
    scale = factor if loss.form is Form.TOTAL else factor / count
    if noise:
        return BatchVerdict(Semantics.EXACT, noise, Exactly.NOISE, scale, loss.origin)
    if is_close(scale, 1 / count):
        return BatchVerdict(Semantics.MEAN, (), None, scale, loss.origin)
    if is_close(scale, 1.0):
        return BatchVerdict(Semantics.SUM, (), None, scale, loss.origin)
    return BatchVerdict(Semantics.EXACT, (), Exactly.SCALED, scale, loss.origin)


def _of(loss: Relation, is_meant: Callable[[Why], bool]) -> list[MixingCause]:
    return [c for c in loss.causes if is_meant(c.why)]
