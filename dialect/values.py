"""Where each value of a program is from phase `shard` on: on which mesh, in which sharding."""

from dataclasses import dataclass

from pathways.dialect import pw
from pathways.dialect.diagnostics import InternalError
from pathways.dialect.mlir import Value
from pathways.dialect.program import Program, array_type
from pathways.dialect.reshard import plan_reshard
from pathways.dialect.sdy import Placed


def value_places(program: Program) -> dict[Value, Placed]:
    """The mesh and sharding of every argument (in use) and result."""
    places: dict[Value, Placed] = {}
    for value, argument in zip(program.block.arguments, program.arguments, strict=True):
        if argument.sharding is not None:
            places[value] = argument.sharding
    for op in program.nodes():
        shardings = op.out_shardings if isinstance(op, pw.CallOp) else op.sharding
        if shardings is None or len(shardings) != len(op.results):
            raise InternalError(f"{op.operation.name} states no sharding for its results")
        places.update(zip(op.results, shardings, strict=True))
    return places


@dataclass(frozen=True)
class Movement:
    """What a transfer costs: its route, and the bytes that change device."""

    route: str
    bytes: int


def physical_devices(program: Program, mesh: str) -> tuple[str, list[int]]:
    """The island of a mesh, and its devices there in mesh order; from phase `place` on."""
    bound = program.slices[program.slice_of(mesh)]
    if bound.island is None or bound.device_ids is None:
        raise InternalError(f"mesh {mesh} is not placed")
    return bound.island, [bound.device_ids[i] for i in program.mesh(mesh).devices]


def same_place(program: Program, value: Value, source: Placed, target: Placed) -> bool:
    """Whether a value already lies as `target` wants it."""
    if source == target:
        return True
    if program.slice_of(source.mesh) != program.slice_of(target.mesh):
        return False
    return program.sharding(source).same_layout(program.sharding(target), array_type(value).shape)


def movement(program: Program, value: Value, source: Placed, target: Placed) -> Movement:
    """Route and bytes of moving `value`; from phase `place` on."""
    type_ = array_type(value)
    here, source_ids = physical_devices(program, source.mesh)
    there, target_ids = physical_devices(program, target.mesh)
    a, b = program.sharding(source), program.sharding(target)
    if here != there:  # ids of different islands never mean the same device
        target_ids = [-1 - d for d in target_ids]
    elements = plan_reshard(type_.shape, a, b, source_ids, target_ids).moved
    size = elements * type_.shard_bytes(())
    return Movement("dcn" if here != there else ("ici" if size else "local"), size)


def number_slots(program: Program, places: dict[Value, Placed]) -> dict[Value, int]:
    """The slot of every value with a place: arguments first, then results in program order, counted on each island."""
    counts: dict[str, int] = {}
    slots: dict[Value, int] = {}
    arguments = (v for v in program.block.arguments if v in places)
    for value in (*arguments, *(r for op in program.nodes() for r in op.results)):
        island = program.island_of(places[value].mesh)
        slots[value] = counts.get(island, 0)
        counts[island] = slots[value] + 1
    return slots
