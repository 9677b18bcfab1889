"""Computes, for a picture, the live bytes of each device over the instructions of a plan, and what the bytes are for.
Pure functions.
"""

import re
from collections import defaultdict
from dataclasses import dataclass

from pathways.dialect.plan.memory import TEMPORARIES, Change, borrowed_slots, classes_of, memory_changes
from pathways.dialect.plan.nouns import Plan, Stream

MAX_OWNERS = 11
"""Number of owners with their own color. The remaining owners are drawn as one."""
OTHERS = "all others"
_OF_MICROBATCH = re.compile(r"(\w+) of microbatch \d+")


@dataclass(frozen=True)
class DeviceMemory:
    """Devices of an island with equal memory. `changes` are (step, owner, bytes allocated or freed), in order."""

    island: str
    devices: tuple[int, ...]
    limit: int | None
    owners: tuple[str, ...]
    changes: tuple[tuple[int, int, int], ...]
    peak: int
    peak_step: int


def device_memory(plan: Plan) -> list[DeviceMemory]:
    """Computes the memory of all devices of the program's own streams."""
    return [found for stream in plan.streams for found in _of_stream(plan, stream)]


def _of_stream(plan: Plan, stream: Stream) -> list[DeviceMemory]:
    found = list(memory_changes(stream, borrowed_slots(plan, stream.island)))
    kinds = {owner: _kind(owner) for owner in {c.owner for c in found}}
    changes = [Change(step, mesh, kinds[owner], moved) for step, mesh, owner, moved in found]
    on: dict[tuple[int, ...], set[int]] = defaultdict(set)
    for mesh, classes in enumerate(classes_of(plan.meshes)):
        for devices in classes:
            if plan.meshes[mesh].island == stream.island:
                on[devices].add(mesh)
    limit = plan.topology.island(stream.island).memory
    rows = [_row(stream.island, d, limit, [c for c in changes if c.mesh in meshes]) for d, meshes in sorted(on.items())]
    return [row for row in rows if row.changes]


def _kind(owner: str) -> str:
    """Merges the owners of activations and gradients over all microbatches, and those of all temporaries."""
    if owner.startswith(TEMPORARIES):
        return "temporaries"
    match = _OF_MICROBATCH.fullmatch(owner)
    return owner if match is None else match[1]


def _row(island: str, devices: tuple[int, ...], limit: int | None, changes: list[Change]) -> DeviceMemory:
    live: dict[str, int] = defaultdict(int)
    peak_of: dict[str, int] = defaultdict(int)
    total, peak, at = 0, 0, -1
    for change in changes:
        live[change.owner] += change.bytes
        peak_of[change.owner] = max(peak_of[change.owner], live[change.owner])
        total += change.bytes
        if total > peak:
            peak, at = total, change.step
    ranked = sorted(peak_of, key=lambda owner: (-peak_of[owner], owner))
    owners = ranked if len(ranked) <= MAX_OWNERS + 1 else [*ranked[:MAX_OWNERS], OTHERS]
    number = {owner: min(i, len(owners) - 1) for i, owner in enumerate(ranked)}
    rows = _summed([(change.step, number[change.owner], change.bytes) for change in changes])
    return DeviceMemory(island, devices, limit, tuple(owners), tuple(rows), peak, at)


def _summed(changes: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Sums the allocations and the frees of each owner at a step, and keeps their order.

    The maximum of live bytes stays the same: it is always at a point where a free follows an allocation.
    """
    summed: dict[tuple[int, int, int], int] = {}
    phases, before = 0, (-1, False)
    for step, owner, moved in changes:
        phases, before = phases + (before != (step, moved > 0)), (step, moved > 0)
        summed[phases, step, owner] = summed.get((phases, step, owner), 0) + moved
    return [(step, owner, moved) for (_, step, owner), moved in summed.items() if moved]
