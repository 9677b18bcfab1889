"""The order of the work: the order of the program, one total order an island."""

from dataclasses import dataclass
from typing import ClassVar

from pathways.compiler.passes.base import Pass, Session
from pathways.dialect import pw
from pathways.dialect.phases import Phase
from pathways.dialect.program import Program


@dataclass(frozen=True)
class OrderProgram(Pass):
    """Number all calls and transfers in program order; every island's order is the part of it that it takes part in.

    A single order over all islands cannot deadlock: nothing waits for what comes later in it. All calls of a regular
    program have known resources, so all are dispatched in parallel (paper, section 4.5).

    Requires: phase transfer.
    Ensures: phase schedule: every call and transfer has a step, increasing along every path.
    """

    name: ClassVar[str] = "order-program"
    requires: ClassVar[Phase] = Phase.TRANSFER
    ensures: ClassVar[Phase] = Phase.SCHEDULE

    def apply(self, program: Program, session: Session) -> None:
        for step, op in enumerate(program.nodes()):
            op.step = step
            if isinstance(op, pw.CallOp):
                op.dispatch = "parallel"
        program.phase = Phase.SCHEDULE
