"""Loads on devices the part of a plan that one host executes, or the whole plan if one process has all devices. It
compiles all code and prepares all steps. `host.py` and `local_engine.py` call it.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType, numpy_dtype
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.part import PlanPart, part_of
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.executable_cache import Executables
from pathways.runtime.host.devices.in_flight_limit import DeviceQueue
from pathways.runtime.host.devices.islands import PhysicalIsland
from pathways.runtime.host.devices.layouts import Shards, Side, Sides, put_on_side
from pathways.runtime.host.devices.local_values import copy_shard
from pathways.runtime.host.load.bodies import load_bodies, put_constants
from pathways.runtime.host.load.edges import Edges
from pathways.runtime.host.load.origins import origins_of
from pathways.runtime.host.load.peer_hosts import PeerHosts
from pathways.runtime.host.load.precompile import load_ahead
from pathways.runtime.host.load.steps import Preparer
from pathways.runtime.host.load.waves import defer
from pathways.runtime.host.run.decisions import RunDecisions
from pathways.runtime.host.run.frame import Frame
from pathways.runtime.host.run.poison import Origin, Poison
from pathways.runtime.host.run.progress import PreparedWave
from pathways.runtime.wire.errors import BadMessage


@dataclass(frozen=True, eq=False)
class PartInput:
    """An input of a partition: the slot of its argument (-1: the argument is not read), its type and its layout."""

    slot: int
    type: ArrayType
    side: Side | None

    def put(self, raw: bytes | memoryview) -> Any:
        """Puts a whole array on the devices, given as bytes. The caller must not use the bytes afterwards.

        Raises PWC0911 if the number of bytes is wrong.
        """
        if self.side is None:
            return None
        if len(raw) != self.type.bytes:
            raise PathwaysError(
                BadMessage(have_=f"an argument of {len(raw):,} bytes", rule=f"{self.type.bytes:,} bytes")
            )
        host = np.frombuffer(raw, numpy_dtype(self.type.dtype)).reshape(self.type.shape)
        return put_on_side(host, self.type, self.side, keeps=True)


@dataclass(frozen=True, eq=False)
class PartResult:
    """A result of a partition: its number in the whole plan, its slot, and the computation that makes it.

    A constant is copied before it is returned, since a later run may overwrite the array that it receives.
    """

    number: int
    slot: int
    origin: Origin
    copy: Callable[[Any], Any] | None

    def value_in(self, frame: Frame) -> Any:
        """Returns the value of this result in a completed frame."""
        value = frame.values[self.slot]
        return value if self.copy is None or isinstance(value, Poison) else self.copy(value)


@dataclass(eq=False)
class LoadedPart:
    """A loaded partition: of one host, or the whole plan if this process has all islands."""

    plan: Plan
    """The whole plan. Only the whole plan shows all dependencies."""
    part: PlanPart
    sides: Sides
    prepared: Preparer
    waves: list[PreparedWave]
    constants: list[tuple[int, Any]]
    queues: Sequence[DeviceQueue]

    def frame(self, transfers: int, sources: Mapping[str, Any], decisions: RunDecisions) -> Frame:
        return Frame(self.prepared.size, self.constants, transfers=transfers, sources=sources, decisions=decisions)

    def put_constants(self) -> None:
        """Puts the constants on the devices again after lost devices have recovered."""
        self.constants = put_constants(self.part.plan, self.sides)


@dataclass(eq=False)
class HostPart(LoadedPart):
    """The loaded partition of a host. `inputs` are keyed by number in the whole plan, in argument order."""

    inputs: Mapping[int, PartInput]
    results: list[PartResult]
    digest: str = ""
    """Digest of the plan and of the work enqueued here. It is equal on all hosts of one island."""
    shows_end: bool = False
    """Whether a run is one launch that makes a result, so that the run is done when its results are ready."""

    def put(self, number: int, raw: bytes | memoryview) -> Any:
        """Puts an argument on the devices, like `PartInput.put`. Raises PWC0911 if this partition does not have it."""
        if (wanted := self.inputs.get(number)) is None:
            raise PathwaysError(BadMessage(have_=f"argument {number}", rule=f"one of {len(self.inputs)} arguments"))
        return wanted.put(raw)


def load_part(
    plan: Plan,
    islands: Mapping[str, PhysicalIsland],
    executables: Executables,
    path: str,
    *,
    sequential: bool,
    peer_hosts: PeerHosts | None = None,
) -> LoadedPart:
    """Loads the partition of a plan for these islands. Without `peer_hosts`, this is the whole plan.

    Raises the errors of compilation and of the order check.
    """
    part = part_of(plan, islands, path) if peer_hosts is None else part_of(plan, islands, path, peer_hosts.ranks)
    sides = Sides(part.plan, islands)
    load_ahead(part.plan, sides, executables)

    def edges_of(number: int) -> Edges | None:
        body = part.bodies[number]
        return peer_hosts and Edges(plan.of_body(number), body.sent, body.received, peer_hosts)

    bodies = load_bodies(part, sides, executables, sequential=sequential, edges_of=edges_of)
    edges = peer_hosts and Edges(plan, part.sent, part.received, peer_hosts)
    prepared = Preparer(part.plan, sides, executables, bodies, edges)
    constants = put_constants(part.plan, sides)
    waves = prepared.prepare(defer(part.plan, part.order, everything=sequential, received=part.received))
    queues = tuple(dict.fromkeys(q for i in islands.values() for q in i.queues))
    return LoadedPart(plan, part, sides, prepared, waves, constants, queues)


def load_host_part(
    plan: Plan,
    islands: Mapping[str, PhysicalIsland],
    executables: Executables,
    peer_hosts: PeerHosts,
    path: str,
    *,
    sequential: bool,
) -> HostPart:
    """Loads the partition of a host. Raises the same errors as `load_part`."""
    loaded = load_part(plan, islands, executables, path, sequential=sequential, peer_hosts=peer_hosts)
    part, prepared = loaded.part, loaded.prepared
    return HostPart(
        plan, part, loaded.sides, prepared, loaded.waves, loaded.constants, loaded.queues,
        _inputs(part, prepared, loaded.sides),
        _results(part, prepared, {slot for slot, _ in loaded.constants}),
        agreement_digest(part) if peer_hosts.in_step else "",
        shows_end(part),
    )  # fmt: skip


def shows_end(part: PlanPart) -> bool:
    """Whether a host's run is one launch that makes at least one result of the plan."""
    runs = list(part.plan.runs())
    if len(runs) != 1 or part.plan.bodies:
        return False
    (run,) = runs
    island = part.plan.meshes[run.mesh].island
    return any((port.island, port.slot) in {(island, slot) for slot in run.outputs} for port in part.plan.results)


def agreement_digest(part: PlanPart) -> str:
    """Hashes the order of steps and the computations, which must be equal on all hosts of an island.

    If two hosts differ, their collectives would wait for each other forever.
    """
    found = hashlib.sha256()
    for one in (part, *part.bodies):
        found.update(repr((one.order, sorted(one.sent.items()), sorted(one.received.items()), one.inputs)).encode())
    for computation in part.plan.computations:
        found.update(repr((computation.module, computation.local)).encode())
    found.update(repr((part.plan.meshes, part.plan.streams, part.plan.bodies)).encode())
    return found.hexdigest()


def _inputs(part: PlanPart, prepared: Preparer, sides: Sides) -> dict[int, PartInput]:
    found: dict[int, PartInput] = {}
    for number, port in zip(part.inputs, part.plan.inputs, strict=True):
        if port.slot < 0:
            found[number] = PartInput(-1, port.type, None)
            continue
        slot = prepared.offsets[port.island] + port.slot
        type_, layout = prepared.types[slot]
        found[number] = PartInput(slot, type_, sides.of(layout))
    return found


def _results(part: PlanPart, prepared: Preparer, constants: set[int]) -> list[PartResult]:
    found: list[PartResult] = []
    for number, port, origin in zip(part.results, part.plan.results, origins_of(part.plan), strict=True):
        slot = prepared.offsets[port.island] + port.slot
        found.append(PartResult(number, slot, origin, copy_if_array if slot in constants else None))
    return found


def copy_if_array(array: Any, shard: int = -1) -> Any:
    """Copies an array or one of its shards, since a later run may overwrite it. Returns any other value unchanged.

    Raises ValueError if it has no such shard. Returns no shards if the shard belongs to another process.
    """
    if not pjrt.is_array(array):
        return array
    if shard < 0:
        return pjrt.copy_again(array)
    copied = copy_shard(array, shard)
    return Shards() if copied is None else copied
