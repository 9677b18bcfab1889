"""Plans that a test states by hand: two islands, `left` and `right`, with arrays of float32."""

from dataclasses import replace
from typing import Any

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.instructions import Branch, Instruction
from pathways.dialect.plan.nouns import Body, BufferKind, Buffers, Layout, Plan, PlanMesh, Port, Stream
from pathways.dialect.sharding import Dims
from pathways.dialect.topology import Island, Topology
from pathways.dialect.trees import LEAF

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
