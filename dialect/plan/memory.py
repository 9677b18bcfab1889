"""Computes from a plan how many bytes each device holds after each instruction, and what they are for. The compiler
checks limits with it; viz, the API and `pwc inspect` show it. Pure functions.

A run holds its inputs, its outputs and its executable's temporaries at the same time. Donated inputs become part of its
outputs. Arguments that the caller keeps occupy memory from the first step to the last.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from pathways.dialect.plan.instructions import Branch, Copy, Free, Recv, Run
from pathways.dialect.plan.nouns import Plan, PlanMesh, Stream

TEMPORARIES = "temporaries of "


@dataclass(frozen=True)
class Peak:
    """The most bytes alive on one device, and their owners; `step` -1: before the first step."""

    bytes: int = 0
    step: int = -1
    device: int = -1
    owners: tuple[tuple[str, int], ...] = ()
    """Largest first."""


class Change(NamedTuple):
    """Bytes allocated (or freed, if negative) on every device of one mesh."""

    step: int
    mesh: int
    owner: str
    bytes: int


_Held: TypeAlias = tuple[int, str, int]
"""Mesh, owner and size in bytes. Many slots have the same."""


def memory_changes(stream: Stream, borrowed: frozenset[int]) -> Iterator[Change]:
    """Yields the allocations and frees of a stream, in order. `borrowed` are slots that the caller keeps."""
    numbers: dict[_Held, int] = {}
    of_slot: list[int] = []
    kinds = [(k.layout.mesh, k.bytes) for k in stream.kinds]
    for group in stream.groups:
        known: dict[int, int] = {}
        for kind in dict.fromkeys(group.kinds):
            mesh, size = kinds[kind]
            known[kind] = numbers.setdefault((mesh, group.owner, size), len(numbers))
        of_slot += map(known.__getitem__, group.kinds)
        if group.birth < 0:
            yield from (Change(-1, kinds[kind][0], group.owner, kinds[kind][1]) for kind in group.kinds)
    rows = list(numbers)

    def net(step: int, allocated: Iterable[int], freed: Iterable[int]) -> Iterator[Change]:
        return _net(step, rows, map(of_slot.__getitem__, allocated), map(of_slot.__getitem__, freed))

    for instruction in stream.instructions:
        step = instruction.step
        match instruction:
            case Branch():
                yield from net(step, instruction.outputs, [instruction.inputs[i] for i in instruction.donated])
                owner = f"{TEMPORARIES}{instruction.name}"
                for mesh in instruction.meshes if instruction.temporaries else ():
                    yield Change(step, mesh, owner, instruction.temporaries)
                for mesh in instruction.meshes if instruction.temporaries else ():
                    yield Change(step, mesh, owner, -instruction.temporaries)
            case Run():
                yield from net(step, instruction.outputs, [instruction.inputs[i] for i in instruction.donated])
                if instruction.temporaries:
                    owner = f"{TEMPORARIES}{instruction.name}"
                    yield Change(step, instruction.mesh, owner, instruction.temporaries)
                    yield Change(step, instruction.mesh, owner, -instruction.temporaries)
            case Recv():
                yield Change(step, *rows[of_slot[instruction.slot]])
            case Copy():
                yield Change(step, *rows[of_slot[instruction.target]])
            case Free():
                yield from net(step, (), [s for s in instruction.slots if s not in borrowed])
            case _:
                pass


def _net(step: int, rows: list[_Held], allocated: Iterable[int], freed: Iterable[int]) -> Iterator[Change]:
    """Sums simultaneous allocations and frees, as numbers of rows, to one change for each owner on each mesh."""
    totals: dict[tuple[int, str], int] = {}
    for sign, numbers in ((1, allocated), (-1, freed)):
        for number, count in Counter(numbers).items():
            mesh, owner, size = rows[number]
            totals[mesh, owner] = totals.get((mesh, owner), 0) + sign * count * size
    # Frees first, because the changes are simultaneous: otherwise their sum would show a peak that never exists.
    for (mesh, owner), size in sorted(totals.items(), key=lambda row: row[1]):
        yield Change(step, mesh, owner, size)


def classes_of(meshes: Sequence[PlanMesh]) -> list[list[tuple[int, ...]]]:
    """Groups the devices of each mesh by the set of meshes that contain them: devices of a group hold equal bytes."""
    on: dict[tuple[str, int], list[int]] = {}
    for number, mesh in enumerate(meshes):
        for device in mesh.devices:
            on.setdefault((mesh.island, device), []).append(number)
    classes: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for (island, device), numbers in on.items():
        classes.setdefault((island, tuple(numbers)), []).append(device)
    found: list[list[tuple[int, ...]]] = [[] for _ in meshes]
    for (_, numbers), devices in classes.items():
        for number in numbers:
            found[number].append(tuple(sorted(devices)))
    return found


def peak_of(stream: Stream, meshes: Sequence[PlanMesh], borrowed: frozenset[int]) -> Peak:
    """Finds the peak of a stream over all devices of its island; among equal devices, the one that reached it first."""
    found = list(memory_changes(stream, borrowed))
    firsts = [sorted(c[0] for c in classes) for classes in classes_of(meshes)]
    live: dict[int, int] = {}
    highest, at, device = 0, -1, -1
    for number, change in enumerate(found):
        for d in firsts[change.mesh]:
            live[d] = size = live.get(d, 0) + change.bytes
            if size > highest:
                highest, at, device = size, number, d
    if at < 0:
        return Peak()
    owners: dict[str, int] = {}
    holding = _meshes_with(meshes, stream.island, device)
    for change in found[: at + 1]:
        if change.mesh in holding:
            owners[change.owner] = owners.get(change.owner, 0) + change.bytes
    ranked = sorted(((o, n) for o, n in owners.items() if n), key=lambda row: (-row[1], row[0]))
    return Peak(highest, found[at].step, device, tuple(ranked))


def _meshes_with(meshes: Sequence[PlanMesh], island: str, device: int) -> frozenset[int]:
    return frozenset(n for n, mesh in enumerate(meshes) if mesh.island == island and device in mesh.devices)


def peaks(stream: Stream, meshes: Sequence[PlanMesh], borrowed: frozenset[int]) -> dict[int, int]:
    """Returns the most bytes alive on each device of the island."""
    classes = classes_of(meshes)
    live: dict[tuple[int, ...], int] = {}
    highest: dict[tuple[int, ...], int] = {}
    for change in memory_changes(stream, borrowed):
        for devices in classes[change.mesh]:
            live[devices] = size = live.get(devices, 0) + change.bytes
            highest[devices] = max(highest.get(devices, 0), size)
    return {device: most for devices, most in highest.items() for device in devices}


def borrowed_slots(plan: Plan, island: str) -> frozenset[int]:
    """Finds the slots of arguments that the caller keeps."""
    return frozenset(p.slot for p in plan.inputs if p.island == island and p.slot >= 0 and not p.donated)


def peak(plan: Plan, island: str) -> Peak:
    """Finds the peak of one island of a plan."""
    return peak_of(plan.stream(island), plan.meshes, borrowed_slots(plan, island))


def timeline(plan: Plan, island: str, device: int) -> list[tuple[int, dict[str, int]]]:
    """Lists for one device its bytes by owner, after each step that changes them."""
    live: dict[str, int] = {}
    rows: list[tuple[int, dict[str, int]]] = []
    holding = _meshes_with(plan.meshes, island, device)
    for change in memory_changes(plan.stream(island), borrowed_slots(plan, island)):
        if change.mesh not in holding:
            continue
        if rows and rows[-1][0] != change.step:
            rows[-1] = rows[-1][0], {o: n for o, n in live.items() if n}
        if not rows or rows[-1][0] != change.step:
            rows.append((change.step, {}))
        live[change.owner] = live.get(change.owner, 0) + change.bytes
    if rows:
        rows[-1] = rows[-1][0], {o: n for o, n in live.items() if n}
    return rows


_OF_MICROBATCH = re.compile(r"(\w+) of microbatch (\d+)")


def by_kind(owners: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Sums owners of one kind over their microbatches: `activations of 4 microbatches (0, 1, 2, 3)`."""
    rows: list[tuple[str, int]] = []
    kinds: dict[str, list[tuple[int, int]]] = {}
    for owner, size in owners:
        match = _OF_MICROBATCH.fullmatch(owner)
        if match is None:
            rows.append((owner, size))
        else:
            kinds.setdefault(match[1], []).append((int(match[2]), size))
    for kind, members in kinds.items():
        numbers = sorted(n for n, _ in members)
        shown = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
        many = f"{len(numbers)} microbatches" if len(numbers) > 1 else "1 microbatch"
        rows.append((f"{kind} of {many} ({shown})", sum(size for _, size in members)))
    return sorted(rows, key=lambda row: (-row[1], row[0]))
