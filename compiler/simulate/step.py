"""Simulates one run of a plan on machines, and sums up the result. `Compiled.simulate` and `pwc simulate` call it. Pure
functions.
"""

import math
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

from pathways.compiler.collector import collector_paused
from pathways.compiler.errors import OtherMachines
from pathways.compiler.machines import Machines
from pathways.compiler.simulate.durations import (
    Duration,
    WhatIf,
    durations,
    measured_seconds,
    ports_of,
    run_begins,
)
from pathways.compiler.simulate.engine import Job, Played, run_jobs
from pathways.compiler.simulate.figures import IslandUse, LinkUse, PathPart, Simulated
from pathways.compiler.simulate.work import CALL, RESHARD, TRANSFER, Work, work_of
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.plan.inbound_values import PREFETCH
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.topology import CLUSTER_FIGURES, RATES, Topology, is_figure


def simulate_step(
    plan: Plan,
    machines: Machines,
    *,
    changes: WhatIf | None = None,
    measured: Mapping[str, float] | None = None,
    one_process: bool = False,
) -> Simulated:
    """Simulates one run. `measured` has the seconds of computations by `time_key`, or by name.

    With `one_process` all islands belong to one process, as without `pw.cluster`. Raises PWC0309 if the plan does not
    fit the machines, or if a number is out of its range.
    """
    changes, measured = changes or WhatIf(), measured or {}
    _check_machines(plan, machines.topology)
    _check_changes(changes, plan)
    _check_numbers(plan, machines.topology, changes, measured)
    with collector_paused():
        work = work_of(plan)
        known = [measured_seconds(task, measured) for task in work.tasks]
        takes = durations(work, machines, changes, known)
        begun = run_begins(plan, machines, one_process=one_process)
        jobs, sharing = _jobs(work, takes, machines, one_process=one_process)
        played = run_jobs(jobs, begun, sharing, machines.topology.host_cores)
        calls = [known[task.number] for task in work.tasks if task.kind == CALL]
        assumed = machines.assumptions({s.island for s in plan.streams}) + work.assumptions() if None in calls else []
        if measured and (unknown := calls.count(None)):
            assumed.append(f"the time of {unknown:,} calls without a measured one")
        return _summed(work, machines, takes, played, max(begun, default=0.0), assumed)


def call_seconds(plan: Plan, machines: Machines, measured: Mapping[str, float]) -> dict[tuple[int, str], float]:
    """Returns the seconds of a call of each computation (by number) on each island, also of those of branches.

    `measured` is as in `simulate_step`. Raises PWC0309 if the plan does not fit the machines, or for invalid numbers.
    """
    _check_machines(plan, machines.topology)
    _check_numbers(plan, machines.topology, WhatIf(), measured)
    found: dict[tuple[int, str], float] = {}
    for part in (plan, *(plan.of_body(number) for number in range(len(plan.bodies)))):
        work = work_of(part)
        takes = durations(work, machines, WhatIf(), [measured_seconds(task, measured) for task in work.tasks])
        for task, took in zip(work.tasks, takes, strict=True):
            if task.kind == CALL:
                run = work.runs[task.stream, task.step]
                found[run.computation, part.streams[task.stream].island] = took.seconds
    return found


def _check_machines(plan: Plan, topology: Topology) -> None:
    """Raises PWC0309 if the topology lacks an island of the plan, or has another kind or fewer devices there."""
    there = {island.name: island for island in topology.islands}
    for stream in plan.streams:
        wanted, island = plan.topology.island(stream.island), there.get(stream.island)
        if island is None:
            have = f"islands {', '.join(there)}"
            raise _refuse(plan, have, f"an island named {wanted.name}, with {wanted.size} devices")
        used = 1 + max((d for m in plan.meshes if m.island == wanted.name for d in m.devices), default=-1)
        if island.size < used:
            raise _refuse(plan, f"{island.size} devices on {island.name}", f"at least {used} devices there")
        if island.kind != wanted.kind and "any" not in (island.kind, wanted.kind):
            raise _refuse(
                plan, f"devices of kind {island.kind} on {island.name}", f"devices of kind {wanted.kind} there"
            )


def _check_changes(changes: WhatIf, plan: Plan) -> None:
    """Raises PWC0309 for devices and links that the plan does not have."""
    sizes = {island.name: island.size for island in plan.topology.islands}
    known = ", ".join(f"{name} (devices 0 to {size - 1})" for name, size in sizes.items())
    for key in changes.slower:
        match key:
            case (str() as island, int() as device) if 0 <= device < sizes.get(island, 0):
                continue
            case (island, device):
                raise _refuse(plan, f"a slower device {device} of {island}", f"a device of {known}")
            case _:
                raise _refuse(plan, f"a slower device {key!r}", 'an island and a position, such as ("island0", 3)')
    for link in changes.links:
        if len(link) != 2 or not link <= set(sizes):
            raise _refuse(plan, _link_text(link), f"two islands of {', '.join(sizes)}")


def _check_numbers(plan: Plan, topology: Topology, changes: WhatIf, measured: Mapping[str, float]) -> None:
    """Raises PWC0309 for factors, times and figures that are not numbers in their range."""
    factors: dict[object, float] = {**changes.slower, **{_link_text(link): f for link, f in changes.links.items()}}
    for what, factor in factors.items():
        if not _is_number(factor, 1e-6, 1e6):
            raise _refuse(plan, f"the factor {factor!r} for {what}", "a number from 1e-6 to 1e6")
    for name, seconds in measured.items():
        if not _is_number(seconds, 0.0, math.inf):
            raise _refuse(plan, f"a measured time of {seconds!r} for {name}", "seconds from 0")
    stated = [("", name, getattr(topology, name)) for name in CLUSTER_FIGURES]
    stated += [(f" of {i.name}", name, getattr(i, name)) for i in topology.islands for name in RATES]
    for where, name, figure in stated:
        if figure is not None and not is_figure(name, figure, least=1e-9):
            raise _refuse(plan, f"{name}{where} = {figure!r}", "a positive number")


def _link_text(link: frozenset[str]) -> str:
    names = sorted(link)
    return (
        f"a link from {names[0]} to itself"
        if len(names) == 1
        else f"a link between {' and '.join(names) or 'no islands'}"
    )


def _is_number(value: object, least: float, most: float) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and least <= value <= most


def _refuse(plan: Plan, have: str, rule: str) -> PathwaysError:
    return PathwaysError(OtherMachines(program=plan.name, have_=have, rule=rule))


def _jobs(
    work: Work, takes: Sequence[Duration], machines: Machines, *, one_process: bool
) -> tuple[list[Job], list[list[int]]]:
    """Makes the jobs of the tasks, and lists for each gang those that have a device of it.

    The host of an island enqueues its tasks, and sends its values. It requests PREFETCH values of others at a time. One
    process is a single host.
    """
    overheads = [(machines.topology.island(s.island).host_us or 0.0) * 1e-6 for s in work.plan.streams]
    gangs: dict[tuple[tuple[int, int], ...], int] = {}
    jobs: list[Job] = []
    received: list[deque[int]] = [deque([-1] * PREFETCH, PREFETCH) for _ in work.plan.streams]
    behind = _behind(work)
    for task, took in zip(work.tasks, takes, strict=True):
        host = task.source if task.kind == TRANSFER else task.stream
        gang = gangs.setdefault(task.devices, len(gangs)) if task.devices else -1
        cores = len(task.devices) if task.kind == CALL else 0
        after = -1
        if task.kind == TRANSFER:
            after = received[task.stream][0]
            received[task.stream].append(task.number)
        ports = ports_of(task)
        place = 0 if one_process else host
        jobs.append(Job(*took, place, overheads[host], task.waits, gang, ports, cores, after, behind[task.number]))
    return jobs, _sharing(list(gangs))


def _behind(work: Work) -> list[Sequence[int]]:
    """Lists, for each call that reads a value of other devices of its island, the earlier calls of its devices.

    The host enqueues it after those (runtime/host/load/waves.py; there, those that wait for callbacks or branches do
    not delay it). Calls that an earlier one of these follows are left out.
    """
    earlier: dict[tuple[int, int], list[int]] = defaultdict(list)
    found: list[Sequence[int]] = [()] * len(work.tasks)
    for task in work.tasks:
        if task.kind != CALL:
            continue
        follows = any(work.tasks[before].kind == RESHARD for before in task.waits)
        if follows:
            found[task.number] = sorted({number for device in task.devices for number in earlier[device]})
        for device in task.devices:
            if follows:
                earlier[device].clear()
            earlier[device].append(task.number)
    return found


def _sharing(gangs: Sequence[tuple[tuple[int, int], ...]]) -> list[list[int]]:
    """Lists for each gang those that share a device with it. A gang may have thousands, so each is read once."""
    users: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, gang in enumerate(gangs):
        for device in gang:
            users[device].append(number)
    return [sorted({other for device in gang for other in users[device]}) for gang in gangs]


def _summed(
    work: Work,
    machines: Machines,
    takes: Sequence[Duration],
    played: Played,
    controller: float,
    assumed: Sequence[str],
) -> Simulated:
    seconds = played.seconds
    busy: dict[tuple[int, int], float] = defaultdict(float)
    moved: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for task in work.tasks:
        took = played.ends[task.number] - played.starts[task.number]
        for device in task.devices:
            busy[device] += took
        if task.kind == TRANSFER:
            sums = moved[task.source, task.stream]
            sums[0], sums[1] = sums[0] + task.bytes, sums[1] + takes[task.number].seconds
    streams = work.plan.streams
    islands: list[IslandUse] = []
    for number, stream in enumerate(streams):
        mine = [time for (at, _), time in busy.items() if at == number]
        share = min(1.0, sum(mine) / (len(mine) * seconds)) if mine and seconds else 0.0
        limit = machines.topology.island(stream.island).memory
        islands.append(IslandUse(stream.island, len(mine), share, stream.peak_bytes, limit))
    links = tuple(
        LinkUse(streams[a].island, streams[b].island, int(size), time / seconds if seconds else 0.0)
        for (a, b), (size, time) in sorted(moved.items())
    )
    used = len(busy) * seconds
    return Simulated(
        work.plan.name,
        machines.topology,
        seconds,
        max(0.0, 1 - sum(busy.values()) / used) if used else 0.0,  # despite rounding
        controller,
        tuple(islands),
        links,
        tuple(_path(work, played)),
        tuple(assumed),
        work,
        played,
    )


def _path(work: Work, played: Played) -> list[PathPart]:
    """Returns the chain of tasks that ends last; each waits for the one before it, or for the host."""
    at = max(range(len(played.ends)), key=lambda i: played.ends[i], default=-1)
    found: list[PathPart] = []
    following = played.seconds
    while at >= 0:
        end = min(played.ends[at], following)  # a transfer frees its link before its value arrives
        found.append(PathPart(work.tasks[at], played.starts[at], end, played.waits[at]))
        at, following = played.causes[at], played.starts[at]
    return found[::-1]
