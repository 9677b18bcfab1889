"""Finds the island and the devices on which values of a placed program lie. It also computes the bytes and the route of
a move, and numbers the buffers of each island. Compiler passes, placement and the verifier call it.
"""

from dataclasses import dataclass

import numpy as np

from pathways.dialect.diagnostics import InternalError
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.memo import map_by_identity
from pathways.dialect.reshard import plan_reshard
from pathways.dialect.sdy import Placed


@dataclass(frozen=True)
class Movement:
    """The cost of a transfer: its route, and the bytes that move to another device."""

    route: str
    bytes: int


def physical_devices(program: ProgramIR, mesh: str) -> tuple[str, list[int]]:
    """Returns the island of a mesh, and its devices there in mesh order; from phase `place` on."""
    bound = program.slices[program.slice_of(mesh)]
    if bound.island is None or bound.device_ids is None:
        raise InternalError(f"mesh {mesh} is not placed")
    return bound.island, [bound.device_ids[i] for i in program.mesh(mesh).devices]


def same_place(program: ProgramIR, type_: ArrayType, source: Placed, target: Placed) -> bool:
    """Whether `source` and `target` put a value of this type on the same devices in the same way."""
    if source == target:
        return True
    if program.slice_of(source.mesh) != program.slice_of(target.mesh):
        return False
    return program.sharding(source).same_layout(program.sharding(target), type_.shape)


def movement(program: ProgramIR, type_: ArrayType, source: Placed, target: Placed) -> Movement:
    """Computes route and bytes of moving a value; from phase `place` on."""
    here, source_ids = physical_devices(program, source.mesh)
    there, target_ids = physical_devices(program, target.mesh)
    a, b = program.sharding(source), program.sharding(target)
    if here != there:  # ids of different islands never mean the same device
        target_ids = [-1 - d for d in target_ids]
    elements = plan_reshard(type_.shape, a, b, source_ids, target_ids).moved
    size = elements * type_.shard_bytes(())
    return Movement("dcn" if here != there else ("ici" if size else "local"), size)


def number_slots(program: ProgramIR) -> list[int]:
    """Assigns a slot to every value, counted on each island: arguments first, then results in program order.

    A value without a place gets -1. The flow keeps the slots: several readers of a large program need them.
    """
    flow = program.flow
    if flow.slots is not None:
        return flow.slots
    numbers = {island: number for number, island in enumerate(dict.fromkeys(map(program.island_of, program.meshes)))}
    homes = map_by_identity(lambda p: -1 if p is None else numbers[program.island_of(p.mesh)], flow.places)
    home = np.array(homes, np.intp)
    slots = np.full(len(home), -1)
    for number in numbers.values():
        held = np.flatnonzero(home == number)
        slots[held] = np.arange(len(held))
    flow.slots = slots.tolist()
    return flow.slots
