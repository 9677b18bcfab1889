"""The spine of a loss: the operations, in order, that a cut falls between; all others follow their users.

What depends on parameters and on data is spine. The rest, casts of parameters, masks, dropout keys, one-hot labels,
is repeated on each stage that uses it: a cast of all parameters at the top of a loss must not be work of stage 0.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pathways.compiler.frontends.jax.pipeline.graph import DATA, PARAMETER, LossGraph, Operation, Value

_LARGE = 0.01
"""The part of all operations from which one is spine, whatever it depends on."""


@dataclass(frozen=True, eq=False)
class Spine:
    """Operations of the spine and, at each position before, between and behind them, sums that a cut needs.

    Of a range of operations from i to j: `sums[j] - sums[i]`. `crossing[i]` are bytes that flow over a cut before
    operation i. `tokens` are equal for operations that are alike.
    """

    operations: list[Operation]
    positions: dict[Operation, int]
    users: dict[Operation, frozenset[int]]
    """For each operation beside the spine, the positions that use it."""
    flops: Any
    parameters: Any
    kept: Any
    crossing: Any
    tokens: list[int]

    def __len__(self) -> int:
        return len(self.operations)


def spine_of(graph: LossGraph) -> Spine:
    """The spine of a loss, with its sums."""
    total = graph.flops
    both = sum(o.flops for o in graph.operations if _depends(o) == PARAMETER | DATA)
    by_dependence = both > total / 2
    members = [o for o in graph.operations if not by_dependence or _is_spine(o, total)]
    positions = {o: i for i, o in enumerate(members)}
    readers = graph.readers()
    users = _users_beside(graph, positions, readers)
    reached = {v: _reached(r, positions, users) for v, r in readers.items()}
    flops = np.array([o.flops for o in members], float)
    for operation, used in users.items():
        at = [u for u in used if members[u].is_turn] or [min(used)] if used else []
        for u in at:  # what is done to a stack is done to the slice that each turn takes
            flops[u] += operation.flops / len(at)
    return Spine(
        members,
        positions,
        users,
        _summed(flops),
        _summed(_parameter_bytes(graph, members, reached)),
        _summed(_kept_bytes(members)),
        _crossing(members, reached),
        _tokens(members),
    )


def _depends(operation: Operation) -> int:
    return operation.outputs[0].depends if operation.outputs else 0


def _is_spine(operation: Operation, total: float) -> bool:
    if operation.effects or operation.loop is not None:  # a loop that was opened has its place turn by turn
        return True
    if _depends(operation) == PARAMETER | DATA:
        return True
    return operation.flops > _LARGE * total and (_depends(operation) != PARAMETER or _is_product(operation))


def _is_product(operation: Operation) -> bool:
    """Whether it does more than look at each element: a cast or a norm of parameters is small beside their use."""
    elements = sum(math.prod(v.aval.shape) for v in (*operation.reads, *operation.outputs))
    return operation.flops > 2 * elements


def _users_beside(
    graph: LossGraph, positions: dict[Operation, int], readers: dict[Value, list[Operation]]
) -> dict[Operation, frozenset[int]]:
    users: dict[Operation, frozenset[int]] = {}
    for operation in reversed(graph.operations):
        if operation not in positions:
            found = (_reached(readers.get(v, []), positions, users) for v in operation.outputs)
            users[operation] = frozenset[int]().union(*found)
    return users


def _reached(
    readers: list[Operation], positions: dict[Operation, int], users: dict[Operation, frozenset[int]]
) -> frozenset[int]:
    """The positions that read a value, themselves or through operations beside the spine."""
    sets = (frozenset({positions[r]}) if r in positions else users[r] for r in readers)
    return frozenset[int]().union(*sets)


def _crossing(members: list[Operation], reached: dict[Value, frozenset[int]]) -> Any:
    """A value crosses every cut between its maker and its last reader."""
    crossing = np.zeros(len(members) + 1)
    for position, operation in enumerate(members):
        for value in operation.outputs:
            last = max(reached.get(value, ()), default=-1)
            if last > position:
                crossing[position + 1 : last + 1] += value.bytes
    return crossing


def _parameter_bytes(graph: LossGraph, members: list[Operation], reached: dict[Value, frozenset[int]]) -> Any:
    """A parameter counts where it is first used, a tied one where it is last used, too; a stack turn by turn."""
    found = np.zeros(len(members))
    for argument in graph.arguments:
        used = reached.get(argument, frozenset())
        if argument.depends != PARAMETER or not used:
            continue
        turns = [u for u in used if (loop := members[u].loop) is not None and _runs_over(loop.xs, argument)]
        if turns:
            for u in turns:
                found[u] += argument.bytes / len(turns)
            continue
        for u in {min(used), max(used)}:
            found[u] += argument.bytes
    return found


def _runs_over(xs: list[Any], argument: Value) -> bool:
    """Whether a loop takes slices of an argument: as it is, or after operations beside the spine."""
    for x in xs:
        while isinstance(x, Value) and x is not argument and x.maker is not None and len(x.maker.reads) == 1:
            x = x.maker.reads[0]
        if x is argument:
            return True
    return False


def _kept_bytes(members: list[Operation]) -> Any:
    kept, seen = np.zeros(len(members)), set[Value]()
    for position, operation in enumerate(members):
        kept[position] += operation.keeps_bytes if not operation.groups else 0.0
        for value in _checkpointed(operation) if operation.groups else operation.keeps:
            if value.depends != PARAMETER and value not in seen:
                seen.add(value)
                kept[position] += value.bytes
    return kept


def _checkpointed(operation: Operation) -> list[Value]:
    """A checkpoint keeps what goes into it, and makes the rest again."""
    return [v for v in operation.reads if v.maker is None or v.maker.groups[:1] != operation.groups[:1]]


def _tokens(members: list[Operation]) -> list[int]:
    by_eqn: dict[int, int] = {}
    numbers: dict[Any, int] = {}
    tokens: list[int] = []
    for operation in members:
        key = id(operation.eqn)
        if key not in by_eqn:
            types = tuple(str(v.aval) for v in (*operation.inputs, *operation.outputs))
            what = (operation.name, types, operation.flops, len(operation.groups))
            by_eqn[key] = numbers.setdefault(what, len(numbers))
        tokens.append(by_eqn[key])
    return tokens


def _summed(values: Any) -> Any:
    return np.concatenate([[0.0], np.cumsum(values)])
