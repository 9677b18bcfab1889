"""Finds the island and the devices on which values of a placed program lie. It also computes the bytes and the route of
a move, and numbers the buffers of each island. Compiler passes, placement and the verifier call it.
"""

from dataclasses import dataclass

from pathways.dialect.diagnostics import InternalError
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.ir.program import ProgramIR
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
    counts: dict[str, int] = {}
    islands = {symbol: program.island_of(symbol) for symbol in program.meshes}
    slots: list[int] = []
    for placed in flow.places:
        if placed is None:
            slots.append(-1)
            continue
        island = islands[placed.mesh]
        slots.append(slot := counts.get(island, 0))
        counts[island] = slot + 1
    flow.slots = slots
    return slots
