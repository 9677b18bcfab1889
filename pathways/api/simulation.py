"""Predicts a step of a compiled program. Also writes a prediction as a trace like those of `pw.trace`, and reads the
times of computations from a trace. `Compiled`, `pwc simulate` and `pwc calibrate` use it.
"""

import abc
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

from pathways.compiler.driver import Compilation
from pathways.compiler.frontends.jax.pipeline.microbatches import bad_pipeline
from pathways.compiler.frontends.jax.pipeline.planning import Target
from pathways.compiler.frontends.jax.pipeline.table import StageTable
from pathways.compiler.machines import Machines
from pathways.compiler.pass_manager import Options
from pathways.compiler.placement import PlacementPolicy
from pathways.compiler.schedule import PROGRAM
from pathways.compiler.simulate.durations import WhatIf, time_key
from pathways.compiler.simulate.figures import Simulated
from pathways.compiler.simulate.step import simulate_step
from pathways.compiler.simulate.work import BRANCH, CALL, RESHARD
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.topology import Topology, parse_topology
from pathways.runtime.host.observe.perfetto import DeviceSpan, LaunchSpan, Moved, Recording, RunSpan, write
from pathways.viz.actual import read_trace

_NS = 1_000_000_000
_NOT_REPLACED = "the number of microbatches cannot be replaced"


class SimulatedProgram(abc.ABC):
    """The method `simulate` of a lowered program."""

    pipelines: tuple[StageTable, ...]

    @abc.abstractmethod
    def cut_for(self, target: Target) -> "SimulatedProgram":
        """Returns the program with its losses cut into stages for a target."""

    @abc.abstractmethod
    def compiled(self, topology: Topology | None, options: Options) -> Compilation:
        """Compiles up to the plan."""

    def simulate(
        self,
        topology: Topology | str,
        *,
        placement: str | PlacementPolicy = "spread",
        schedule: str = PROGRAM,
        merge: bool = True,
        remat: str = "no",
        microbatches: int | None = None,
        slower: Mapping[tuple[str, int], float] | None = None,
        links: Mapping[tuple[str, str], float] | None = None,
        measured: Mapping[str, float] | None = None,
        one_process: bool = False,
    ) -> Simulated:
        """Compiles for a topology, and predicts one run there. It needs no devices, so the topology may have any size.

        The first options are those of `compile`, the others those of `Compiled.simulate`. Raises the errors of both.
        `microbatches` replaces the number in each `pw.pipeline` of the program. Raises PWC0112 if there is none.
        """
        machines = parse_topology(topology) if isinstance(topology, str) else topology
        options = Options(placement=placement, schedule=schedule, merge=merge, remat=remat)
        if microbatches is not None:
            check_replaceable(microbatches, self.pipelines)
        cut = self.cut_for(Target.of(machines, schedule, microbatches or 0))
        if microbatches and cut is self:
            rule, advice = "the settings under which it was traced", "lower the program again, and simulate that"
            raise bad_pipeline(_NOT_REPLACED, "other JAX settings than at the trace", rule, advice)
        plan = cut.compiled(machines, options).plan()
        return simulate_step(
            plan, Machines(machines), changes=_changes(slower, links), measured=measured, one_process=one_process
        )


def check_replaceable(microbatches: object, pipelines: Sequence[StageTable]) -> None:
    """Raises PWC0112 unless this number can replace the microbatches of a program with these pipelines."""
    if type(microbatches) is not int or microbatches < 1:
        raise bad_pipeline(_NOT_REPLACED, repr(microbatches), "a whole number from 1", "microbatches=8")
    if not pipelines:
        advice = "pw.pipeline(loss, slices, microbatches=4)"
        raise bad_pipeline(_NOT_REPLACED, "a program without pw.pipeline", "a program with a pw.pipeline", advice)


def _changes(slower: Mapping[tuple[str, int], float] | None, links: Mapping[tuple[str, str], float] | None) -> WhatIf:
    return WhatIf(dict(slower or {}), {frozenset(pair): factor for pair, factor in (links or {}).items()})


class SimulatedPlan:
    """The method `simulate` of a compiled program."""

    plan: Plan

    def simulate(
        self,
        topology: Topology | str | None = None,
        *,
        slower: Mapping[tuple[str, int], float] | None = None,
        links: Mapping[tuple[str, str], float] | None = None,
        measured: Mapping[str, float] | None = None,
        one_process: bool = False,
    ) -> Simulated:
        """Predicts one run on a topology; by default on the one that the plan was compiled for.

        `slower` has factors of the time of devices, by island and position: `{("island0", 3): 1.2}`. `links` has
        factors of the rate between two islands: `{("island0", "island1"): 0.5}`. `measured` has seconds of computations
        by name. With `one_process` one thread enqueues for all islands, as without `pw.cluster`. Raises PWC0309 if the
        plan does not fit the topology, PWC0704 for an invalid spec. See docs/simulation.md.
        """
        machines = parse_topology(topology) if isinstance(topology, str) else topology or self.plan.topology
        return simulate_step(
            self.plan, Machines(machines), changes=_changes(slower, links), measured=measured, one_process=one_process
        )


def trace_of(found: Simulated) -> str:
    """Writes a simulated step as the JSON of a trace."""
    plan, played, runs = found.work.plan, found.played, found.work.runs
    launches: list[LaunchSpan] = []
    spans: list[DeviceSpan] = []
    moves: list[Moved] = []
    for task in found.work.tasks:
        island = plan.streams[task.stream].island
        begin, end = (int(time * _NS) + 1 for time in (played.starts[task.number], played.ends[task.number]))
        if task.kind == CALL:
            positions = tuple(device for _, device in task.devices)
            launches.append(
                LaunchSpan(task.number + 1, 1, 0, island, positions, runs[task.stream, task.step], plan, begin, begin)
            )
            spans += [DeviceSpan(task.number + 1, island, position, begin, end) for position in positions]
        elif task.kind != BRANCH:
            moves.append(Moved(1, island, "copy" if task.kind == RESHARD else "receive", task.step, begin, end))
    run = RunSpan(1, plan.name, "simulated", 1, 1, 1, int(found.seconds * _NS) + 1)
    islands: list[Any] = [
        SimpleNamespace(key=stream.island, devices=range(plan.topology.island(stream.island).size))
        for stream in plan.streams
    ]
    return write(Recording([run], launches, moves, spans), islands)


def times_of(path: Path) -> dict[str, float]:
    """Returns the median seconds of each computation in a trace, by `time_key`. Raises PWC0822 for any other file."""
    found: dict[str, list[float]] = {}
    for run in read_trace(path):
        for row in run.rows:
            for cell in row.cells:
                found.setdefault(time_key(cell.name, cell.line), []).append(cell.end - cell.begin)
    return {name: median(times) for name, times in found.items()}
