"""Defines the pass `order-calls`. It puts all calls and transfers of a program into one order: that of the program, of
a pipeline schedule, or of a user's table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pathways.compiler.errors import NoPipeline, UnsuitableSchedule
from pathways.compiler.passes.base import Pass, Session
from pathways.compiler.schedule import PROGRAM
from pathways.compiler.schedule.arrange import Arranged, arrange, columns
from pathways.compiler.schedule.attribute import write_schedule
from pathways.compiler.schedule.describe import describe_schedule
from pathways.compiler.schedule.table_csv import write_table
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.phases import Phase


@dataclass(frozen=True)
class OrderCalls(Pass):
    """Puts all calls and transfers in one order and numbers them. Each island follows this order for its own calls.

    A single order over all islands cannot deadlock: nothing waits for a later entry. All calls of a regular program
    have known resources, so all are dispatched in parallel (paper, section 4.5). Data-dependent control flow is
    dispatched when its data is known. A program without a loop over microbatches keeps its order under any schedule,
    and the summary says so. Bodies also keep their order.

    Requires: phase transfer.
    Ensures: phase schedule: calls and transfers stand in the order of their steps, producers before consumers.
    """

    name: ClassVar[str] = "order-calls"
    requires: ClassVar[Phase] = Phase.TRANSFER
    ensures: ClassVar[Phase] = Phase.SCHEDULE
    keeps_flow: ClassVar[bool] = True
    writes: ClassVar[frozenset[str] | None] = frozenset({"step", "dispatch"})
    schedule: str = PROGRAM
    """program, gpipe, 1f1b, interleaved, zero-bubble, or a table as FILE.csv."""
    emit: str = ""
    """A file to write the table to."""

    def apply(self, program: ProgramIR, session: Session) -> None:
        check_orderable(program, self.schedule)
        arranged = arrange(program, self.schedule)
        if self.emit:
            _emit(Path(self.emit), arranged)
        write_schedule(program, describe_schedule(Path(self.schedule).name, arranged))
        number_nodes(program, arranged.order)
        for body in program.bodies.values():
            number_nodes(body)
        program.phase = Phase.SCHEDULE


def check_orderable(program: ProgramIR, schedule: str) -> None:
    """Raises PWC0404 if a schedule is asked for a program whose order is fixed."""
    if program.ordered and schedule != PROGRAM:
        have, rule = "a program whose call order Shardy's PARTITION has fixed", f"the schedule {PROGRAM}"
        advice = "pass the traced program, mpmd.jit(f, config).trace(...), or its text after Shardy's phase IMPORT"
        raise PathwaysError(UnsuitableSchedule(schedule=schedule, have_=have, rule=rule, advice=advice))


def number_nodes(program: ProgramIR, order: Sequence[int] | None = None) -> None:
    """Moves nodes into an order, by default that in which they are, and numbers them.

    Raises ValueError if the order does not have each node once.
    """
    nodes = program.flow.nodes
    current = list(range(len(nodes)))
    wanted = current if order is None else list(order)
    if sorted(wanted) != current:
        have = f"the order has {len(wanted)} entries"
        raise ValueError(f"{have}; it must list each of the {len(nodes)} nodes exactly once")
    for step, number in enumerate(wanted):
        node = nodes[number]
        if node.is_transfer:
            node.op.update(step=step)
        else:
            node.op.update(step=step, dispatch="parallel" if node.callee else "sequential")
    if wanted != current:
        program.flow = program.flow.reordered(wanted)


def _emit(path: Path, arranged: Arranged) -> None:
    if arranged.pipeline is None:
        raise PathwaysError(NoPipeline(path=str(path)))
    write_table(path, arranged.table, columns(arranged.pipeline, arranged.graph, arranged.table))
