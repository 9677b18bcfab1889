"""Decides the mesh and the sharding of each value that enters or leaves the body of a loop or branch.
`propagate_shardings.py` calls it for control flow that depends on data.

All bodies of one operation use the same locations.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pathways.dialect.ir.flow import Draft, Node, renumbered
from pathways.dialect.ir.places import same_place
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.records import TransferRecord, WhileRecord
from pathways.dialect.mlir import location, where_of
from pathways.dialect.sdy import Placed, shared_sharding
from pathways.dialect.sharding import Dims, replicated

Decide: TypeAlias = Callable[[ProgramIR, dict[int, Placed]], set[int]]
"""Decides the shardings in a body from the given ones. Returns the arguments that the body determines."""


@dataclass(frozen=True)
class Ends:
    """The locations of the values that control flow takes for its bodies, and of its results."""

    taken: tuple[Placed, ...]
    made: tuple[Placed, ...]


def settle_bodies(program: ProgramIR, node: Node, outside: Sequence[Placed | None], decide: Decide) -> Ends:
    """Decides all bodies of a node, and makes them agree.

    `outside` gives the known locations of the values that the bodies take. A location on the mesh of the body is
    binding. A location on another mesh counts only if nothing inside determines the value. Each body passes the
    shardings that it determines to the next. A body itself moves a value that it needs or makes elsewhere.
    """
    bodies = program.bodies_of(node.op)
    ranks = [len(bodies[0].flow.types[v].shape) for v in bodies[0].inputs]
    meshes = [mesh_taken(bodies, i) for i in range(len(ranks))]
    known: list[Dims | None] = [
        o.dims if o is not None and o.mesh == mesh else None for o, mesh in zip(outside, meshes, strict=True)
    ]
    loops = isinstance(node.op, WhileRecord)
    carried = len(known) - len(node.results)
    made: tuple[Placed, ...] = ()
    for body in reversed(bodies) if loops else bodies:  # the body of a loop determines more than its test
        wanted = [
            o if d is None else shared_sharding(mesh, d) for mesh, d, o in zip(meshes, known, outside, strict=True)
        ]
        given = {v: p for v, p in zip(body.inputs, wanted, strict=True) if p is not None}
        if not loops or body is bodies[1]:  # only the test makes its own result
            left = wanted[carried:] if loops else list(made or [None] * len(node.results))
            given |= {v: p for v, p in zip(body.flow.returned, left, strict=True) if p is not None and v not in given}
        determined = decide(body, given)
        made = made or tuple(body.flow.place(v) for v in body.flow.returned)
        arguments = body.arguments
        for i, value in enumerate(body.inputs):
            sharding = arguments[value].sharding
            if known[i] is None and value in determined and sharding is not None:
                known[i] = sharding.dims
    taken = tuple(
        shared_sharding(mesh, replicated(rank) if dims is None else dims)
        for mesh, dims, rank in zip(meshes, known, ranks, strict=True)
    )
    for body in bodies:
        _take_at(body, taken)
    made = taken[carried:] if loops else tuple(bodies[0].flow.place(v) for v in bodies[0].flow.returned)
    for body in bodies[1:] if loops else bodies:
        _make_at(body, made, location(where_of(node.op), "moved", program.context))
    return Ends(taken, made)


def mesh_taken(bodies: Sequence[ProgramIR], position: int) -> str:
    """Returns the mesh on which a value is taken: the same in all bodies that use it."""
    meshes = (body.arguments[body.inputs[position]].mesh for body in bodies)
    return next((m for m in meshes if m is not None), next(iter(bodies[0].meshes)))


def _take_at(body: ProgramIR, taken: Sequence[Placed]) -> None:
    arguments = body.arguments
    for value, placed in zip(body.inputs, taken, strict=True):
        if arguments[value].mesh is not None:
            arguments[value] = replace(arguments[value], sharding=placed)
    body.arguments = arguments


def _make_at(body: ProgramIR, made: Sequence[Placed], line: Any) -> None:
    """Moves the results of a body to the locations that all bodies share."""
    flow = body.flow
    types, returned = list(flow.types), list(flow.returned)
    moves: list[Draft] = []
    for i, (value, placed) in enumerate(zip(flow.returned, made, strict=True)):
        if not same_place(body, types[value], flow.place(value), placed):
            reason = "all bodies return this result on the same mesh and sharding"
            op = TransferRecord(line, mesh=placed.mesh, sharding=(placed,), reason=reason)
            returned[i] = len(types)
            moves.append(Draft(op, "", placed.mesh, (value,), (len(types),)))
            types.append(types[value])
    if moves:
        body.flow = renumbered(body, types, flow.arguments, (*flow.nodes, *moves), returned)
