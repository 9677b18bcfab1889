"""Builds the spine of a loss: the ordered operations that depend on both parameters and data. Pipeline stages are
ranges of these operations. `plan_stages.py` and `compiler/search` call it.

The other operations are casts of parameters, masks, dropout keys and one-hot labels. Each stage that uses one repeats
it. Otherwise a cast of all parameters at the top of a loss would be work of stage 0.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pathways.compiler.frontends.jax.pipeline.graph import DATA, PARAMETER, LossGraph, Operation, Value

_MIN_SPINE_SHARE = 0.01
"""An operation above this share of the total work is in the spine, even if it depends on data or parameters alone."""


@dataclass(frozen=True, eq=False)
class Spine:
    """Operations of the spine, and cumulative sums at each position before, between and after them.

    For operations i to j, the sum is `sums[j] - sums[i]`. `crossing[i]` is the bytes that cross a cut before operation
    i. `tokens` are equal for identical operations.
    """

    operations: list[Operation]
    positions: dict[Operation, int]
    users: dict[Operation, frozenset[int]]
    """For each operation outside the spine, the positions that use it."""
    flops: Any
    parameters: Any
    kept: Any
    crossing: Any
    tokens: list[int]

    def __len__(self) -> int:
        return len(self.operations)


def spine_of(graph: LossGraph) -> Spine:
    """Builds the spine of a loss, with its sums."""
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
        at = [u for u in used if members[u].is_iteration] or [min(used)] if used else []
        for u in at:  # work on a stack is split over the iterations that take its slices
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
    if operation.effects or operation.loop is not None:  # each iteration of an expanded loop is in the spine
        return True
    if _depends(operation) == PARAMETER | DATA:
        return True
    return operation.flops > _MIN_SPINE_SHARE * total and (_depends(operation) != PARAMETER or _is_product(operation))


def _is_product(operation: Operation) -> bool:
    """Whether an operation does more than read each element. A cast or norm of parameters is small beside their use."""
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
    """Returns the positions that read a value, directly or through operations outside the spine."""
    sets = (frozenset({positions[r]}) if r in positions else users[r] for r in readers)
    return frozenset[int]().union(*sets)


def _crossing(members: list[Operation], reached: dict[Value, frozenset[int]]) -> Any:
    """Returns the bytes that cross each position. A value crosses every cut between its maker and its last reader."""
    crossing = np.zeros(len(members) + 1)
    for position, operation in enumerate(members):
        for value in operation.outputs:
            last = max(reached.get(value, ()), default=position)
            crossing[position + 1 : last + 1] += value.bytes
    return crossing


def _parameter_bytes(graph: LossGraph, members: list[Operation], reached: dict[Value, frozenset[int]]) -> Any:
    """Returns the bytes of the parameters at each position.

    A parameter counts at its first use. A tied parameter also counts at its last use. A stack is split over the
    iterations.
    """
    found = np.zeros(len(members))
    for argument in graph.arguments:
        used = reached.get(argument, frozenset())
        if argument.depends != PARAMETER or not used:
            continue
        iterations = [u for u in used if (loop := members[u].loop) is not None and _runs_over(loop.xs, argument)]
        if iterations:
            for u in iterations:
                found[u] += argument.bytes / len(iterations)
            continue
        for u in {min(used), max(used)}:
            found[u] += argument.bytes
    return found


def _runs_over(xs: list[Any], argument: Value) -> bool:
    """Whether a loop takes slices of an argument, directly or after operations outside the spine."""
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
    """Returns the operands that enter an operation's checkpoint.

    A checkpoint keeps its inputs and recomputes the rest.
    """
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
