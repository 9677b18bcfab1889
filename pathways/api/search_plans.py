"""Compiles one of the best splits that `pw.search` found, and computes its time, memory and network traffic from the
result. `search.py` calls it for the first few rows, to replace their predictions.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pathways.api.process import COMPILING, process
from pathways.api.program import Program
from pathways.compiler.driver import Compilation
from pathways.compiler.frontends.jax.pipeline.chosen import choosing
from pathways.compiler.frontends.jax.pipeline.planning import Target, compiling
from pathways.compiler.instruments import Instrument
from pathways.compiler.pass_manager import Options
from pathways.compiler.passes.base import Pass, Session
from pathways.compiler.placement.machines import Machines
from pathways.compiler.search.plan_figures import network_bytes, play_program
from pathways.compiler.search.predict import predict
from pathways.compiler.search.rank import PlanFigures, Row
from pathways.dialect.choice import SplitChoice
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import bytecode, parse
from pathways.dialect.phases import Phase

MAX_ACTIONS = 1024
"""Maximum of stages times microbatches for compiling a split. A plan has several calls for each of them."""


@dataclass(frozen=True, eq=False)
class CompiledStep:
    """The program to compile for a choice, its example arguments, and the other memory of training.

    `states` is that memory in bytes for each byte of parameters.
    """

    make: Callable[[SplitChoice], Program]
    arguments: tuple[Any, ...]
    states: float


def figures_of(row: Row, step: CompiledStep, machines: Machines) -> PlanFigures:
    """Returns the figures of a row's plan, or the reason why there is none.

    A plan does not count collectives inside a stage, or the overhead of a call. The time that they add to the
    prediction is added to the plan's time.
    """
    choice = row.choice
    if choice.stages * choice.chunks * choice.microbatches > MAX_ACTIONS:
        return PlanFigures(refused=f"more than {MAX_ACTIONS} stages x microbatches: not compiled")
    try:
        program, played = _compile(choice, step, machines)
    except PathwaysError as error:
        problem = error.diagnostics[0]
        return PlanFigures(refused=f"{error.code}: {problem.text(problem.title)}")
    bare = predict([c.bare for c in row.costs], choice, machines.states)
    more = max(0.0, row.prediction.seconds - bare.seconds)
    kept = [0.0] * choice.stages
    for k, cost in enumerate(row.costs):
        kept[k % choice.stages] += cost.parameters * step.states
    memory = max((op.peak_bytes for op in program.plans.values()), default=0) + max(kept)
    return PlanFigures(played.seconds + more, played.fraction, memory, network_bytes(program))


@dataclass
class _Played(Instrument):
    """Simulates the program after it is scheduled and its calls are merged."""

    seconds: float = 0.0
    fraction: float = 0.0

    def after(self, step: Pass, program: ProgramIR) -> None:
        if program.phase is Phase.SCHEDULE:
            found = play_program(program)
            self.seconds, self.fraction = found.seconds, found.fraction


def _compile(choice: SplitChoice, step: CompiledStep, machines: Machines) -> tuple[ProgramIR, _Played]:
    topology = machines.topology
    slower = tuple(replace(i, flops=machines.rate(i)) for i in topology.islands)
    played = _Played()
    with choosing(choice), compiling(Target.of(topology, choice.schedule)):
        lowered = step.make(choice).lower_for(process().platform, *step.arguments)
    with COMPILING:
        module = parse(bytecode(lowered.module.operation), lowered.module.context)
        session = Session(replace(topology, islands=slower))
        compilation = Compilation(ProgramIR(module), lowered.constants, session)
        options = Options(schedule=choice.schedule, remat=choice.remat, enforce=False)
        compilation.advance(options=options, instruments=[played])
    return compilation.program, played
