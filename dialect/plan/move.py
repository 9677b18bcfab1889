"""Makes a plan that only moves one array to other devices of a cluster, without any computation. A client runs such a
plan if one program passes an array to a program on other devices. Clients also load one to restore a saved array. Pure
functions.
"""

from dataclasses import dataclass

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.instructions import Copy, Instruction, Recv, Send
from pathways.dialect.plan.nouns import BufferKind, Buffers, Layout, Plan, PlanMesh, PlanSlice, Port, Stream
from pathways.dialect.sharding import Dims, Sharding
from pathways.dialect.topology import Topology
from pathways.dialect.trees import Tree


@dataclass(frozen=True)
class ArrayPlace:
    """The place of an array: devices of an island (positions, in mesh order), mesh axes, and axes of each dimension."""

    island: str
    devices: tuple[int, ...]
    axes: tuple[tuple[str, int], ...]
    dims: Dims


def move_plan(platform: str, topology: Topology, type_: ArrayType, here: ArrayPlace, there: ArrayPlace) -> Plan:
    """Makes the plan, with one argument at `here` and one result at `there`, which may be the same place."""
    used = {p.island: {d for q in (here, there) if q.island == p.island for d in q.devices} for p in (here, there)}
    meshes = tuple(
        PlanMesh(f"m{n}", f"of {p.island}", p.island, p.axes, p.devices) for n, p in enumerate((here, there))
    )
    kinds = [BufferKind(type_, Layout(n, p.dims), 0) for n, p in enumerate((here, there))]
    source, target = (
        BufferKind(type_, k.layout, type_.shard_bytes(Sharding(meshes[n].spec, k.layout.dims).shard_shape(type_.shape)))
        for n, k in enumerate(kinds)
    )
    given = Buffers("x", "input", "x", (0,), -1, (-1,))
    if here == there:
        streams = [Stream(here.island, source.bytes, (source,), (given,), ())]
    elif here.island == there.island:
        moved = Buffers("moved", "copy", "results", (1,), 0, (-1,))
        copy = Copy(0, 0, 1, None)
        streams = [Stream(here.island, source.bytes + target.bytes, (source, target), (given, moved), (copy,))]
    else:
        moved = Buffers("moved", "copy", "results", (0,), 0, (-1,))
        send: Instruction = Send(0, 0, 0, there.island, None)
        streams = [
            Stream(here.island, source.bytes, (source,), (given,), (send,)),
            Stream(there.island, target.bytes, (target,), (moved,), (Recv(0, 0, 0, here.island, None),)),
        ]
    slot = 1 if here.island == there.island and here != there else 0
    leaf = Tree("leaf", (), (), "")
    return Plan(
        name="a move",
        platform=platform,
        topology=topology,
        slices=tuple(PlanSlice(f"of {i}", i, tuple(sorted(d)), "where the array is") for i, d in used.items()),
        meshes=meshes,
        computations=(),
        streams=tuple(streams),
        inputs=(Port("x", type_, type_.dtype, False, here.island, 0),),
        results=(Port("moved", type_, type_.dtype, False, there.island, slot),),
        constant_buffers=(),
        in_tree=Tree("tuple", (leaf,), (), ""),
        out_tree=leaf,
    )
