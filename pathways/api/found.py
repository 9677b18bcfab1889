"""Defines the result of `pw.search`: the table of the best splits, and the reasons why others were dropped. It can
write the best split to a file.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pathways.api.summary import size, table
from pathways.compiler.search.rank import Dropped, Row
from pathways.dialect.choice import SplitChoice, write_choice
from pathways.dialect.files import write_whole
from pathways.dialect.topology import Topology

_HEAD = (
    "stages x data x model",
    "microbatches",
    "schedule",
    "remat",
    "islands",
    "step",
    "a second",
    "bubble",
    "memory",
    "of",
    "between islands",
    "layers",
    "figures",
)


@dataclass(frozen=True)
class Found:
    """The result of a search: `rows`, the best split first, and the `dropped` candidates by reason.

    `best` is the choice of the first row, for `pw.pipeline(loss, choice=found.best)`.
    """

    name: str
    topology: Topology
    batch: int
    tokens: int
    rows: tuple[Row, ...]
    tried: int
    dropped: tuple[Dropped, ...]
    notes: tuple[str, ...]

    @property
    def best(self) -> SplitChoice:
        return self.rows[0].choice

    def save(self, path: str | Path) -> int:
        """Writes the best choice as a TOML file, with its figures as comments. Returns the file size in bytes."""
        return write_whole(path, write_choice(self.best, self._remarks()))

    def _remarks(self) -> list[str]:
        best = self.rows[0]
        what = "of its plan" if best.plan is not None and not best.plan.refused else "predicted"
        figures = f"{seconds_as_text(best.seconds)} a step, bubble {best.bubble:.1%}, {size(best.memory)} a device"
        return [
            f"{self.name} with a batch of {self.batch} on {self.topology}",
            f"{what}: {figures}, {size(best.dcn_bytes)} between islands",
            *self.notes,
        ]

    def __str__(self) -> str:
        head = f"{self.name} with a batch of {self.batch} on {self.topology}: {self.tried:,} ways to split it"
        lines = [head, rows_as_text(self.rows, self.batch, self.tokens)]
        lines += ["not shown:", *dropped_as_text(self.dropped)] if self.dropped else []
        return "\n".join([*lines, *(f"note: {n}" for n in self.notes)])


def rows_as_text(rows: Sequence[Row], batch: int, tokens: int) -> str:
    """Formats the table of rows."""
    unit = "tokens" if tokens else "examples"
    lines = [[f"{unit} {c}" if c == "a second" else c for c in _HEAD]]
    for row in rows:
        choice = row.choice
        lines.append(
            [
                choice.split,
                str(choice.microbatches),
                choice.schedule,
                choice.remat,
                str(len(set(choice.islands))),
                seconds_as_text(row.seconds),
                f"{(tokens or batch) / row.seconds:,.0f}",
                f"{row.bubble:.1%}",
                size(row.memory),
                "?" if row.limit is None else f"{size(row.limit)}{'' if row.fits else ': full'}",
                size(row.dcn_bytes),
                layers_as_text(choice.cuts),
                _figures(row),
            ]
        )
    return table(lines)


def _figures(row: Row) -> str:
    if row.plan is None:
        return "predicted"
    return f"predicted ({row.plan.refused})" if row.plan.refused else "of its plan"


def layers_as_text(cuts: Sequence[int]) -> str:
    """Formats the layer counts of stages, with equal neighbors combined: `6 7*3 5`."""
    groups: list[list[int]] = []
    for count in cuts:
        if groups and groups[-1][0] == count:
            groups[-1][1] += 1
        else:
            groups.append([count, 1])
    return " ".join(f"{count}*{times}" if times > 1 else f"{count}" for count, times in groups) or "-"


def dropped_as_text(dropped: Sequence[Dropped]) -> list[str]:
    """Formats one line for each reason why candidates were dropped."""
    return [f"{d.count:6,} {d.reason}; closest: {d.closest}" for d in dropped]


def seconds_as_text(seconds: float) -> str:
    """Formats a time in a suitable unit."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"
