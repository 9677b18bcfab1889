"""Finds the inbound values of each mesh: values that the mesh uses and another mesh makes. Also lists moves: pairs of a
value and its copy, if the axes of both meshes are equal. `propagate_shardings.py` spreads shardings along moves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from pathways.compiler.passes.shard_bodies import mesh_taken
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.ir.flow import Flow, Node, divided
from pathways.dialect.ir.program import ProgramIR


@dataclass(frozen=True)
class Move:
    """A value and its copy at another place: the user moves it, or a consumer there takes it.

    `is_on_one_mesh`: both are on one mesh. A `Move` exists only if the axes of both meshes are equal, by name and size.
    Then a sharding means the same on both meshes, and divides the value on both.
    """

    source: int
    made: int
    is_on_one_mesh: bool
    called: bool
    """Whether a call takes the copy. Otherwise only control flow takes it, or nothing."""


@dataclass(frozen=True)
class Taken:
    """The values of a flow, followed by its inbound values: a number for each value and each other mesh that takes it.

    All consumers of a value on one mesh share one move of it, so that its sharding there is found once.
    """

    lives: list[str | None]
    types: list[ArrayType]
    operands: list[Sequence[int]]
    """The operands of each node, by node number. Inbound values replace values that live on another mesh."""
    inbound: range
    originals: Sequence[int]
    """For each value, the flow's number of the value that it copies, or its own."""
    moves: list[Move]


def _moved_operands(flow: Flow, lives: Sequence[str | None]) -> list[list[int]]:
    """Finds, for each call, the positions of operands that are on another mesh. Other nodes have none."""
    meshes = {mesh: number for number, mesh in enumerate({*lives, *(node.mesh for node in flow)})}
    home = np.fromiter(map(meshes.__getitem__, lives), np.intp, len(lives))
    here = np.array([meshes[node.mesh] if node.is_call else -1 for node in flow], np.intp)[flow.readers]
    found = np.flatnonzero((here >= 0) & (home[flow.operands] != here))
    readers = flow.readers[found]
    return divided(found - np.array(flow.bounds)[readers], np.bincount(readers, minlength=len(flow)))


def find_taken(program: ProgramIR, lives: list[str | None]) -> Taken:
    """Numbers the inbound values. `lives` gives the mesh on which each value of the flow is made."""
    flow = program.flow
    moved = _moved_operands(flow, lives)
    lives, types, count = list(lives), list(flow.types), len(lives)
    numbers: dict[tuple[int, str], int] = {}

    def arrival(value: int, mesh: str) -> int:
        if lives[value] == mesh:
            return value
        if (value, mesh) not in numbers:
            numbers[value, mesh] = len(lives)
            lives.append(mesh)
            types.append(types[value])
        return numbers[value, mesh]

    def taken(node: Node) -> Sequence[int]:
        if not node.is_branch:
            own = list(node.operands)
            for position in moved[node.number]:
                own[position] = arrival(own[position], node.mesh)
            return own
        bodies = program.bodies_of(node.op)
        deciding = len(node.operands) - len(bodies[0].inputs)
        carried = (arrival(v, mesh_taken(bodies, i)) for i, v in enumerate(node.operands[deciding:]))
        return (*node.operands[:deciding], *carried)

    operands = [taken(node) for node in flow.nodes]
    written = [(node.operands[0], node.results[0]) for node in flow.nodes if node.is_transfer]
    is_called = np.zeros(len(lives), np.bool_)
    is_called[list(chain.from_iterable(operands[node.number] for node in flow.calls()))] = True
    moves: list[Move] = []
    for source, made in (*written, *((value, number) for (value, _), number in numbers.items())):
        here, there = lives[source] or "", lives[made] or ""
        if here == there or program.mesh(here).axes == program.mesh(there).axes:
            moves.append(Move(source, made, here == there, bool(is_called[made])))
    originals = (*range(count), *(value for value, _ in numbers))
    return Taken(lives, types, operands, range(count, len(lives)), originals, moves)
