"""Estimates the seconds of each task of a plan on given machines, by the cost model of `compiler/machines.py`. The
simulator and timed devices use it. Pure functions.

A slower device delays its whole gang. A branch takes no time, since data decides what it runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from pathways.compiler.machines import Machines
from pathways.compiler.simulate.work import CALL, RESHARD, TRANSFER, PlannedTask, Work
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.topology import Island


class Duration(NamedTuple):
    """The seconds in which a task occupies its devices or links, and its latency after that."""

    seconds: float
    latency: float = 0.0


@dataclass(frozen=True)
class WhatIf:
    """Differences from the machines of a topology, for questions of the kind "what if a device is slower?".

    `slower`: factors of the time of devices, by island and position. `links`: factors of the rate between two islands,
    in both directions.
    """

    slower: Mapping[tuple[str, int], float] = field(default_factory=dict[tuple[str, int], float])
    links: Mapping[frozenset[str], float] = field(default_factory=dict[frozenset[str], float])


def durations(work: Work, machines: Machines, changes: WhatIf, known: Sequence[float | None]) -> list[Duration]:
    """Estimates every task. `known` has the measured seconds of calls, with their overhead; None for other tasks."""
    estimate = _Estimate(work.plan, machines, changes)
    return [estimate.of(task, seconds) for task, seconds in zip(work.tasks, known, strict=True)]


def time_key(name: str, line: str) -> str:
    """Returns the key of a computation's measured time. Many computations have one name, such as `<lambda>`."""
    return f"{name} {line}"


def measured_seconds(task: PlannedTask, measured: Mapping[str, float]) -> float | None:
    """Returns the measured seconds of a call by its name and line, or by its name alone; None if there are none."""
    return measured.get(time_key(task.name, str(task.where or "")), measured.get(task.name))


class _Estimate:
    def __init__(self, plan: Plan, machines: Machines, changes: WhatIf) -> None:
        self.plan, self.machines, self.changes = plan, machines, changes
        self.islands = {island.name: island for island in machines.topology.islands}
        self._slowest: dict[int, float] = {}

    def of(self, task: PlannedTask, known: float | None) -> Duration:
        if task.kind == CALL:
            island = self._island(task.stream)
            seconds = self._call(task, island) if known is None else known
            return Duration(seconds * self._slowdown(task.mesh, island.name))
        if task.kind == TRANSFER:
            here, there = self._island(task.source).name, self._island(task.stream).name
            topology = self.machines.topology
            share = self.changes.links.get(frozenset((here, there)), 1.0)
            return Duration(self.machines.between(task.bytes) / share, (topology.dcn_us or 0.0) * 1e-6)
        if task.kind == RESHARD:
            island = self._island(task.stream)
            links = len(self.plan.meshes[task.mesh].devices) if task.mesh >= 0 else 1
            return Duration(self.machines.inside(island, task.bytes, links), (island.ici_us or 0.0) * 1e-6)
        return Duration(0.0)

    def _island(self, stream: int) -> Island:
        return self.islands[self.plan.streams[stream].island]

    def _call(self, task: PlannedTask, island: Island) -> float:
        flops, exchanged = task.flops / len(task.devices), task.collectives
        computing = self.machines.computing(island, flops, task.touched) + self.machines.call(island)
        return computing + self.machines.exchanging(island, exchanged.bytes, exchanged.hops)

    def _slowdown(self, mesh: int, island: str) -> float:
        """Returns the factor of the slowest device of a mesh."""
        if not self.changes.slower:
            return 1.0
        if mesh not in self._slowest:
            devices = self.plan.meshes[mesh].devices
            self._slowest[mesh] = max(self.changes.slower.get((island, device), 1.0) for device in devices)
        return self._slowest[mesh]


def run_begins(plan: Plan, machines: Machines, *, one_process: bool) -> list[float]:
    """Returns when the controller has started a run on all hosts of each stream's island, in seconds from the call.

    It starts the run on one host after another. With `one_process` it starts it once, and there is one time for all.
    """
    controller = (machines.topology.controller_us or 0.0) * 1e-6
    if one_process:
        return [controller]
    return list(accumulate(controller * machines.topology.island(stream.island).hosts for stream in plan.streams))


def ports_of(task: PlannedTask) -> Sequence[tuple[str, int]]:
    """Lists the network ports that a task occupies: one transfer at a time leaves an island, and one enters it."""
    return (("out", task.source), ("in", task.stream)) if task.kind == TRANSFER else ()
