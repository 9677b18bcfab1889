"""Compiles one of the best splits that `pw.search` found, and computes its time, memory and network traffic from the
result. `search.py` calls it for the first few rows, to replace their predictions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pathways.api.process import COMPILING, process
from pathways.api.program import Program
from pathways.compiler.driver import Compilation
from pathways.compiler.frontends.jax.pipeline.chosen import choosing
from pathways.compiler.frontends.jax.pipeline.planning import Target, compiling
from pathways.compiler.machines import Machines
from pathways.compiler.pass_manager import Options
from pathways.compiler.passes.base import Session
from pathways.compiler.search.rank import PlanFigures, Row
from pathways.compiler.simulate.step import simulate_step
from pathways.dialect.choice import SplitChoice
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.plan.nouns import Plan

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
    """Returns the figures of a row's plan, or the reason why there is none."""
    choice = row.choice
    if choice.stages * choice.chunks * choice.microbatches > MAX_ACTIONS:
        return PlanFigures(refused=f"more than {MAX_ACTIONS} stages x microbatches: not compiled")
    try:
        plan = _compile(choice, step, machines)
    except PathwaysError as error:
        problem = error.diagnostics[0]
        return PlanFigures(refused=f"{error.code}: {problem.text(problem.title)}")
    kept = [0.0] * choice.stages
    for k, cost in enumerate(row.costs):
        kept[k % choice.stages] += cost.parameters * step.states
    found = simulate_step(plan, machines, one_process=True)  # in the order of the schedule, as predictions
    memory = max((island.peak_bytes for island in found.islands), default=0) + max(kept)
    crossing = sum(link.bytes for link in found.links)
    return PlanFigures(found.seconds, found.bubble, memory, crossing)


def _compile(choice: SplitChoice, step: CompiledStep, machines: Machines) -> Plan:
    topology = machines.topology
    with choosing(choice), compiling(Target.of(topology, choice.schedule)):
        lowered = step.make(choice).lower_for(process().platform, *step.arguments)
    with COMPILING:
        compilation = Compilation(lowered.copied_program(), lowered.constants, Session(topology))
        options = Options(schedule=choice.schedule, remat=choice.remat, enforce=False)
        compilation.advance(options=options)
        return compilation.plan()
