"""Describes the pipeline stages of a loss as a table, with one row for each stage and the reason for the cuts.
`Pipelined.stages` returns it to users, and compilation reports include it.
"""

import math
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import pairwise

from jax.sharding import Mesh

from pathways.compiler.frontends.jax.meshes import slice_mesh
from pathways.compiler.frontends.jax.pipeline.by_hand import layer_starts
from pathways.compiler.frontends.jax.pipeline.costs import Costs
from pathways.compiler.frontends.jax.pipeline.mixing.semantics import BatchSemantics
from pathways.compiler.frontends.jax.pipeline.plan_stages import Planned
from pathways.compiler.frontends.jax.pipeline.spine import Spine
from pathways.dialect.ir.losses import LossNote
from pathways.dialect.topology import readable

noted: ContextVar["list[StageTable] | None"] = ContextVar("pathways_noted", default=None)
"""The tables of all losses that were cut while a program is traced."""
_MIN_WORK_RATIO = 0.25
"""A stage with less than this share of the mean work gets a note."""


@dataclass(frozen=True)
class StageRow:
    """One stage. `flops` are those of the forward pass of one microbatch; bytes are those of one microbatch, too.

    `memory` is an estimate in bytes per device: parameters, gradients, optimizer state, and activations in flight.
    `seconds` is in seconds if the topology gives flop/s, and has no unit otherwise.
    """

    number: int
    slice: str
    layers: float
    flops: float
    share: float
    bytes_in: int
    bytes_out: int
    parameters: int
    memory: int
    seconds: float
    begins: str
    """The user's source line of its first operation."""
    module: str


@dataclass(frozen=True)
class StageTable:
    """The stages of a pipelined loss, and the reason for its cuts."""

    loss: str
    microbatches: int
    rows: tuple[StageRow, ...]
    distinct: int
    """The number of different stages. Equal stages are compiled once."""
    how: str
    runner_up: str
    notes: tuple[str, ...]
    semantics: BatchSemantics | None = None
    """The verdict on the loss over its microbatches, if it has several."""
    batch_rows: int = 0
    """The rows of the batch, which every number of microbatches must divide; 0: unknown."""

    @property
    def loss_notes(self) -> tuple[LossNote, ...]:
        """Returns the verdict on the loss over its microbatches, for IR and plans."""
        found = self.semantics
        if found is None:
            return ()
        why = f"; {found.causes[0].text}" if found.causes else ""
        return (LossNote(found.loss, f"{found.verdict} over {found.microbatches} microbatches", found.handling + why),)

    def __str__(self) -> str:
        head = [
            "stage",
            "slice",
            "layers",
            "flops",
            "share",
            "in",
            "out",
            "parameters",
            "memory",
            "begins at",
            "in module",
        ]
        lines = [head]
        for r in self.rows:
            cells = [str(r.number), r.slice, f"{r.layers:g}", f"{r.flops:.3g}", f"{r.share:.0%}"]
            cells += [readable(n) for n in (r.bytes_in, r.bytes_out, r.parameters, r.memory)]
            lines.append([*cells, r.begins, r.module])
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        text = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]
        batches = f"{self.microbatches} microbatch{'es' * (self.microbatches > 1)}"
        first = f"{self.loss}: {len(self.rows)} stages, {self.distinct} distinct, {batches}; cut here: {self.how}"
        more = [self.runner_up] if self.runner_up else []
        more += [] if self.semantics is None else [str(self.semantics)]
        return "\n".join([first, *text, *more, *self.notes])


def table_of(
    loss: str,
    planned: Planned,
    meshes: Sequence[Mesh],
    microbatches: int,
    semantics: BatchSemantics | None = None,
    rows_of_one: Sequence[int] = (),
) -> StageTable:
    """Builds the table of a loss that was cut. `rows_of_one` are those of a microbatch, by array."""
    spine, places = planned.spine, planned.cut.places
    costs = Costs(spine, planned.demands)
    layers = layer_starts(spine)
    total = float(spine.flops[-1]) or 1.0
    rows: list[StageRow] = []
    for k, (a, b) in enumerate(pairwise(places)):
        first = spine.operations[a]
        where = first.where
        inside = sum(1 for s in layers if a <= s < b)
        rows.append(
            StageRow(
                k,
                slice_mesh(meshes[k], "pw.pipeline", None).slice.name,
                inside,
                float(spine.flops[b] - spine.flops[a]),
                float(spine.flops[b] - spine.flops[a]) / total,
                round(float(spine.crossing[a])) if k else 0,
                round(float(spine.crossing[b])) if b < len(spine) else 0,
                round(float(spine.parameters[b] - spine.parameters[a])),
                round(float(costs.bytes(a, b, k))),
                float(costs.seconds(a, b, k)),
                "" if where is None else where.at,
                first.scope,
            )
        )
    distinct = len({tuple(spine.tokens[a:b]) for a, b in pairwise(places)})
    how, runner_up = planned.cut.how, _runner_up(costs, planned)
    return StageTable(
        loss,
        microbatches,
        tuple(rows),
        distinct,
        how,
        runner_up,
        _notes(rows),
        semantics,
        microbatches * math.gcd(*rows_of_one),
    )


def _runner_up(costs: Costs, planned: Planned) -> str:
    other, taken = planned.cut.runner_up, planned.cut.places
    if not other:
        return ""
    slower = costs.slowest(other) / (costs.slowest(taken) or 1.0)
    moved = readable(round(costs.moved(other)))
    distinct = len({tuple(costs.spine.tokens[a:b]) for a, b in pairwise(other)})
    at = ", ".join(_at(costs.spine, p) for p in other[1:-1])
    mine = readable(round(costs.moved(taken)))
    return (
        f"next best: cuts at {at}: slowest stage takes {slower:.2f} times as long, "
        f"{moved} over the cuts instead of {mine}, {distinct} distinct stages"
    )


def _at(spine: Spine, place: int) -> str:
    operation = spine.operations[place]
    where = operation.where
    return operation.scope or (operation.name if where is None else where.at)


def _notes(rows: Sequence[StageRow]) -> tuple[str, ...]:
    mean = sum(r.share for r in rows) / len(rows)
    return tuple(
        f"note: stage {r.number} has {r.share:.1%} of the work: links or memory decided, or few positions to cut at"
        for r in rows
        if r.share < _MIN_WORK_RATIO * mean
    )
