"""Checks the devices that a plan names: meshes lie inside slices, slices inside islands, and no two slices share a
device. `check.py` calls it. Pure functions.
"""

import math
from collections.abc import Iterator

from pathways.dialect.plan.check_types import MAX_DIMENSIONS, axes_problem
from pathways.dialect.plan.nouns import Plan, PlanMesh
from pathways.dialect.sharding import size_of_axes
from pathways.dialect.topology import CLUSTER_FIGURES, RATES, is_figure

MAX_DEVICES = 1 << 20
"""The most devices of an island."""

_Problems = Iterator[tuple[str, str]]


def place_problems(plan: Plan) -> _Problems:
    """Finds problems in the islands, slices and meshes of a plan."""
    yield from _topology(plan)
    yield from _streams(plan)
    yield from _slices(plan)
    slices = {s.name: (s.island, frozenset(s.devices)) for s in plan.slices}
    for mesh in plan.meshes:
        yield from _mesh(mesh, slices)


def _topology(plan: Plan) -> _Problems:
    topology = plan.topology
    if len(set(topology.names)) != len(topology.islands):
        yield f"islands {sorted(topology.names)}", "a different name for each"
    for island in topology.islands:
        if island.devices < 1 or island.hosts < 1 or island.size > MAX_DEVICES:
            yield f"{island.name} of {island.hosts} hosts with {island.devices} devices", "a positive number of devices"
        if island.memory is not None and island.memory < 0:
            yield f"{island.name} with {island.memory} bytes a device", "bytes from 0"
        stated = {"ici_gbps": island.ici_gbps} | {name: getattr(topology, name) for name in CLUSTER_FIGURES}
        stated |= {name: getattr(island, name) for name in RATES}
        rates = {name: figure for name, figure in stated.items() if figure is not None}
        if not all(is_figure(name, figure) for name, figure in rates.items()):
            yield f"{island.name} with rates {tuple(rates.values())}", "positive numbers"
    figures = [getattr(plan.schedule, f) for f in ("bubble", "bound")]
    if not all(map(math.isfinite, figures)):
        yield f"a schedule with a bubble of {figures}", "numbers"


def _streams(plan: Plan) -> _Problems:
    """Checks that bodies run only on islands where the program has a stream: other islands get no devices."""
    mains = {s.island for s in plan.streams}
    for streams in plan.all_streams:
        islands = [s.island for s in streams]
        if len(set(islands)) != len(islands) or not mains.issuperset(islands):
            yield f"streams for {islands}", "one stream per island of the program"
    if not mains <= set(plan.topology.names):
        yield f"streams for {sorted(mains)}", f"islands of the topology: {sorted(plan.topology.names)}"


def _slices(plan: Plan) -> _Problems:
    if len({s.name for s in plan.slices}) != len(plan.slices):
        yield "two slices of one name", "a different name for each"
    sizes = {i.name: i.size for i in plan.topology.islands}
    taken: dict[str, set[int]] = {name: set() for name in sizes}
    for slice_ in plan.slices:
        if slice_.island not in sizes:
            yield f"slice {slice_.name} on {slice_.island}", "slices on islands of the topology"
            return
        devices = set(slice_.devices)
        if len(devices) != len(slice_.devices) or any(not 0 <= d < sizes[slice_.island] for d in devices):
            yield f"slice {slice_.name} on {_shown(slice_.devices)}", f"devices 0 to {sizes[slice_.island] - 1}, once"
        if shared := sorted(devices & taken[slice_.island]):
            yield (
                f"slice {slice_.name} shares devices {_shown(shared)} of {slice_.island}",
                "slices that share no devices",
            )
        taken[slice_.island] |= devices


def _mesh(mesh: PlanMesh, slices: dict[str, tuple[str, frozenset[int]]]) -> _Problems:
    name = f"mesh {mesh.name}"
    if mesh.slice not in slices:
        yield f"{name} of slice {mesh.slice}", "a slice of the plan"
        return
    if (problem := axes_problem(mesh.axes)) is not None:
        yield f"{name} {problem}", f"at most {MAX_DIMENSIONS} different axes of sizes from 1"
        return
    island, devices = slices[mesh.slice]
    used = set(mesh.devices)
    if size_of_axes(mesh.axes) != len(mesh.devices) or len(used) != len(mesh.devices):
        yield f"{name} of {mesh.axes} over {_shown(mesh.devices)}", "one different device for each position of its axes"
    elif mesh.island != island or not used <= devices:
        yield f"{name} on {_shown(mesh.devices)} of {mesh.island}", f"devices of slice {mesh.slice}, on {island}"


def _shown(devices: "tuple[int, ...] | list[int]") -> str:
    return f"devices {list(devices[:16])}" + (f" and {len(devices) - 16} more" if len(devices) > 16 else "")
