"""Defines the pass `find-pipeline`. It labels each call with its pipeline action, such as `2F3`: stage 2, forward,
microbatch 3. Schedules need these labels.
"""

from dataclasses import dataclass
from typing import ClassVar

from pathways.compiler.passes.base import Pass, Session
from pathways.compiler.schedule.recognize import recognize
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.phases import Phase


@dataclass(frozen=True)
class FindPipeline(Pass):
    """Recognizes stages and microbatches in an unrolled loop, and writes the action of each call: 2F3.

    If any call has an action already, all calls stay as they are: their author knows the loop. A program with a fixed
    order also stays unchanged, since one of its calls may combine several microbatches.

    Requires: phase trace.
    Ensures: phase trace: the calls of a loop over microbatches, if there is one, have actions.
    """

    name: ClassVar[str] = "find-pipeline"
    requires: ClassVar[Phase] = Phase.TRACE
    ensures: ClassVar[Phase] = Phase.TRACE
    keeps_flow: ClassVar[bool] = True
    writes: ClassVar[frozenset[str] | None] = frozenset({"action"})

    def apply(self, program: ProgramIR, session: Session) -> None:
        calls = list(program.flow.calls())
        known = program.ordered or any(node.op.action is not None for node in calls)
        found = None if known else recognize(program)
        if found is not None:
            for node in calls:
                action = found.actions.get(node.number)
                node.op.action = None if action is None else str(action)
