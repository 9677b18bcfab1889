"""Converts the verdict on a loss over microbatches to the object that `batch_semantics` returns to users, with source
lines and module names. `pipeline.py` and `whole_batch.py` call it.
"""

from collections import Counter
from dataclasses import dataclass

from pathways.compiler.frontends.jax.pipeline.mixing.judge import BatchVerdict, Exactly, Semantics
from pathways.compiler.frontends.jax.pipeline.mixing.places import line_of, module_of
from pathways.compiler.frontends.jax.pipeline.mixing.relation import MixingCause, Why
from pathways.dialect.diagnostics import Where

MAX_CAUSES_SHOWN = 5
"""Largest number of causes in the text of a verdict."""


@dataclass(frozen=True)
class BatchCause:
    """One reason why a loss over microbatches needs care.

    `kind` is the reason: "back", "pairs", "order", "position", "size", "control", "partial", "data", "noise" or
    "unknown". `operation` is the primitive of JAX at `where`, and `module` is the path of modules around it. `taken_at`
    is the line where the statistic was taken, if there is one.
    """

    kind: str
    text: str
    where: Where | None
    module: str
    operation: str
    taken_at: Where | None = None

    def __str__(self) -> str:
        line = "an unknown line" if self.where is None else self.where.at
        module = f" in {self.module}" if self.module else ""
        taken = f", taken at {self.taken_at.at}" if self.taken_at not in (None, self.where) and self.taken_at else ""
        return f"{line}{module}: {self.text} ({self.operation}{taken})"


@dataclass(frozen=True)
class BatchSemantics:
    """The verdict on a loss over microbatches, compared with the loss of the whole batch (`Pipelined.batch_semantics`).

    `verdict` is "mean" or "sum" of the losses of the microbatches, or "exact" if another exact computation is used. It
    is "mixes" if each microbatch has its own statistics, or "unknown". `handling` says how the loss is computed.
    """

    loss: str
    microbatches: int
    verdict: str
    causes: tuple[BatchCause, ...]
    handling: str

    def __str__(self) -> str:
        first = f"{self.loss} over {self.microbatches} microbatches: {self.verdict}; {self.handling}"
        lines = [f"  {cause}" for cause in self.causes[:MAX_CAUSES_SHOWN]]
        hidden = len(self.causes) - len(lines)
        return "\n".join([first, *lines, *([f"  and {hidden} more causes"] if hidden else [])])


def semantics_of(loss: str, count: int, verdict: BatchVerdict, mixes: str) -> BatchSemantics:
    """Returns the verdict with source lines and modules."""
    causes = tuple(dict.fromkeys(_cause_of(c) for c in verdict.causes))
    ordered = sorted(causes, key=lambda c: (_line_number(c), c.module, c.kind, c.operation, c.text))
    return BatchSemantics(loss, count, verdict.semantics.value, tuple(ordered), _handling(verdict, mixes))


def mixing_text(causes: tuple[BatchCause, ...]) -> tuple[str, Where | None]:
    """Returns the most frequent cause in one line, with the number of other causes, and its source line."""
    counts = Counter((c.kind, c.where, c.taken_at) for c in causes)
    kind, where, taken_at = max(counts, key=lambda c: (c[0] != Why.SIZE.name.lower(), counts[c]))
    first = next(c for c in causes if (c.kind, c.where, c.taken_at) == (kind, where, taken_at))
    modules, places = {c.module for c in causes if c.module}, len(counts)
    more = ""
    if len(modules) > 1:
        more = f", and in {len(modules) - 1} more modules"
    elif places > 1:
        more = f", and at {places - 1} more places"
    taken = f" of the statistic taken at {taken_at.at}" if taken_at is not None and taken_at != where else ""
    module = f", in {first.module}" if first.module else ""
    return f"{first.text}: {first.operation}{taken}{module}{more}", where


def _cause_of(cause: MixingCause) -> BatchCause:
    source = None if cause.source is None else line_of(cause.source)
    name = cause.site.eqn.primitive.name
    return BatchCause(cause.why.name.lower(), cause.text, line_of(cause.site), module_of(cause.site), name, source)


def _line_number(cause: BatchCause) -> tuple[str, int]:
    return ("", 0) if cause.where is None else (cause.where.file, cause.where.line)


def _handling(verdict: BatchVerdict, mixes: str) -> str:
    match verdict.semantics:
        case Semantics.MEAN:
            return "the mean of the microbatches is the loss of the whole batch"
        case Semantics.SUM:
            return "the sum of the microbatches is the loss of the whole batch"
        case Semantics.EXACT:
            return (verdict.exactly or Exactly.SCALED).value
        case Semantics.MIXES:
            each = "each microbatch has its own statistics"
            return f"{each} (mixes={mixes!r})"
        case Semantics.UNKNOWN:
            return f"{verdict.note or 'the analysis is undecided'}: pw.check_microbatches compares numbers"
