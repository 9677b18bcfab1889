"""Computes a lower bound of the memory that each slice of virtual devices needs: the values that live there before and
after a run. Placement policies must not exceed the memory of a device.
"""

from pathways.dialect.ir.places import same_place
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.sdy import Placed


def slice_memory(program: ProgramIR) -> dict[str, int]:
    """Returns bytes a device, by slice, from phase `shard` on: a lower bound for every order and merging of calls.

    Before the first call all arguments are on their meshes. After the last call these are the arguments that the caller
    keeps, and the results. Memory in between depends on the schedule, and is checked in the plan.
    """
    flow, arguments = program.flow, program.arguments
    same = _same(program)
    given_back = {same[v] for v in flow.returned}
    before: dict[str, int] = {}
    after: dict[str, int] = {}
    for value, argument in enumerate(arguments):
        if argument.sharding is not None and not argument.is_constant:  # constants are copied where they are used
            kept = not argument.donate or value in given_back
            for bound in (before, after) if kept else (before,):
                _add(bound, program, value, argument.sharding)
    for value in dict.fromkeys(same[v] for v in flow.returned):
        if value >= len(arguments):
            _add(after, program, value, flow.place(value))
    return {slice_: max(before.get(slice_, 0), after.get(slice_, 0)) for slice_ in before | after}


def _same(program: ProgramIR) -> list[int]:
    """Maps each value to itself, or to the operand of the transfers that moved nothing before it."""
    flow = program.flow
    same = list(range(len(flow.types)))
    for node in flow.nodes:
        if node.is_transfer:
            (value,), (result,) = node.operands, node.results
            if same_place(program, flow.types[value], flow.place(value), flow.place(result)):
                same[result] = same[value]
    return same


def _add(bound: dict[str, int], program: ProgramIR, value: int, placed: Placed) -> None:
    slice_, type_ = program.slice_of(placed.mesh), program.flow.types[value]
    size = type_.shard_bytes(program.sharding(placed).shard_shape(type_.shape))
    bound[slice_] = bound.get(slice_, 0) + size
