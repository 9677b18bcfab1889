"""Plans that a test states by hand: of two islands, `left` and `right`, with arrays of float32 (`plan`); and of
instructions alone, for what reads nothing else (`plan_of`)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pathways.dialect.diagnostics import Where
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.instructions import Branch, Copy, Instruction, Recv, Run, Send
from pathways.dialect.plan.nouns import (
    Body,
    BufferKind,
    Buffers,
    Computation,
    Layout,
    Plan,
    PlanMesh,
    Port,
    Stream,
)
from pathways.dialect.sharding import Dims
from pathways.dialect.topology import Island, Topology
from pathways.dialect.trees import LEAF, Tree

TOPOLOGY = Topology((Island("left", 4), Island("right", 4)))
MESHES = (
    PlanMesh("m0", "s0", "left", (("x", 2),), (0, 1)),
    PlanMesh("m1", "s1", "left", (("x", 2),), (1, 2)),
    PlanMesh("m2", "s2", "right", (("x", 4),), (0, 1, 2, 3)),
)


def kind(mesh: int, size: int, length: int = 8, dims: Dims = ((),)) -> BufferKind:
    """Describes a buffer of `size` bytes on each device of a mesh, for an array of `length` elements."""
    return BufferKind(ArrayType((length,), "float32"), Layout(mesh, dims), size)


def group(owner: str, *kinds: int, birth: int = -1) -> Buffers:
    return Buffers(owner, "value", owner, kinds, birth, (-1,) * len(kinds))


def stream(
    island: str, kinds: tuple[BufferKind, ...], groups: tuple[Buffers, ...], *instructions: Instruction
) -> Stream:
    return Stream(island, 0, kinds, groups, instructions)


def port(island: str, slot: int, donated: bool = False) -> Port:
    return Port("p", ArrayType((8,), "float32"), "float32", False, island, slot, donated)


def branch(step: int, kind: str, *bodies: int, **fields: Any) -> Branch:
    """Makes a branch that has no operands, unless `fields` states some."""
    made = Branch(step, kind, bodies, (), (), (), (), (), f"b{step}", None)
    return replace(made, **fields)


def body(*streams: Stream) -> Body:
    return Body("body", streams, (), (), ())


def plan(*streams: Stream, **fields: Any) -> Plan:
    made = Plan("p", "cpu", TOPOLOGY, (), MESHES, (), streams, (), (), (), LEAF, LEAF)
    return replace(made, **fields)


# ---- plans of instructions alone, without buffers or modules


def run(
    step: int, inputs: Sequence[int] = (), outputs: Sequence[int] = (), *, name: str = "", computation: int = 0,
    mesh: int = 0, donated: Sequence[int] = (), where: Where | None = None, **more: Any,
) -> Run:  # fmt: skip
    """Makes a call of a computation, named after its step where no name is given."""
    slots = tuple(inputs), tuple(outputs), tuple(donated)
    return Run(step, computation, mesh, *slots, name or f"f{step}", where, **more)


def send(step: int, channel: int, slot: int, to: str = "island1") -> Send:
    return Send(step, channel, slot, to, None)


def receive(step: int, channel: int, slot: int, source: str = "island0") -> Recv:
    return Recv(step, channel, slot, source, None)


def copy(step: int, source: int, target: int) -> Copy:
    return Copy(step, source, target, None)


def cond(step: int, inputs: Sequence[int], outputs: Sequence[int], name: str = "cond") -> Branch:
    """Makes a branch whose operands and results are all on one island."""
    taken, made = tuple(range(len(inputs))), tuple(range(len(outputs)))
    return Branch(step, "cond", (), tuple(inputs), taken, tuple(outputs), made, (0,), name, None)


def streams_of(streams: Mapping[str, Sequence[Instruction]]) -> tuple[Stream, ...]:
    return tuple(Stream(island, 0, (), (), tuple(instructions)) for island, instructions in streams.items())


def computation(name: str = "f", **more: Any) -> Computation:
    """Makes a computation without operands and results, unless the test gives some."""
    given: dict[str, Any] = {"donated": (), "inputs": (), "in_layouts": (), "outputs": (), "out_layouts": ()}
    given |= {"axes": (("x", 2),), "module": b""}
    return Computation(name, **(given | more))


def plan_of(
    streams: Mapping[str, Sequence[Instruction]], bodies: Sequence[Mapping[str, Sequence[Instruction]]] = (),
    computations: Sequence[Computation] = (), results: Sequence[Port] = (), devices: int = 2,
) -> Plan:  # fmt: skip
    """Makes a plan; mesh n is all devices of the nth island."""
    topology = Topology(tuple(Island(name, devices=devices) for name in streams))
    everything = tuple(range(devices))
    meshes = tuple(PlanMesh(f"m{n}", f"s{n}", name, (("x", devices),), everything) for n, name in enumerate(streams))
    return Plan(
        "program", "cpu", topology, (), meshes, tuple(computations) or (computation(),), streams_of(streams), (),
        tuple(results), (), Tree("tuple"), Tree("tuple"),
        bodies=tuple(Body(f"body{n}", streams_of(body), (), (), ()) for n, body in enumerate(bodies)),
    )  # fmt: skip
