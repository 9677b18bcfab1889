"""Compiles a program and keeps its dataflow graph after each compilation phase. `pwc viz` and the `visualize` methods
call it for programs that they can compile.
"""

from dataclasses import dataclass, field

from pathways.compiler.driver import Compilation
from pathways.compiler.instruments import Instrument
from pathways.compiler.pass_manager import Options
from pathways.compiler.passes.base import Pass, Session
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.phases import Phase
from pathways.viz.graphs import Graph, graph_of_program


@dataclass
class PhaseGraphs(Instrument):
    """Records the dataflow at the end of every phase that a compilation completes, except the last one."""

    found: list[Graph] = field(default_factory=list[Graph])

    def before(self, step: Pass, program: ProgramIR, session: Session) -> None:
        _, ensures = step.phases()
        if ensures is not program.phase:
            self.found.append(graph_of_program(program))


def watched(compilation: Compilation, upto: Phase, options: Options) -> list[Graph]:
    """Compiles a program up to a phase. Returns the dataflow of each phase but `plan`, which is drawn from the plan."""
    graphs = PhaseGraphs()
    compilation.advance(upto, options=options, instruments=[graphs])
    last = [] if compilation.program.phase is Phase.PLAN else [graph_of_program(compilation.program)]
    return [*graphs.found, *last]
