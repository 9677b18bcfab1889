"""Lists the calls and moves of a program with the sources of their operands, as input for placement policies. The body
of a loop or branch counts as if it ran once. `problem.py` calls it.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pathways.dialect.ir.flow import Node
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.records import WhileRecord

ValueSource: TypeAlias = tuple[int, int, str, int]
"""The origin of a value: the number of the call that makes it (-1: an argument), the result's position, its slice, and
its bytes. The slice of constants is empty: each slice that needs them has a copy.
"""
ValueSources: TypeAlias = tuple[ValueSource, ...]
"""The possible origins of a value: after a branch, one for each body."""


@dataclass(frozen=True, eq=False)
class PlacedCall:
    """A call or a move. `number` counts over all functions; `sources` are the origins of its operands."""

    number: int
    function: ProgramIR
    node: Node
    sources: Sequence[ValueSources]


def placed_calls(program: ProgramIR) -> Iterator[PlacedCall]:
    """Yields calls and moves in program order. Bodies stand at the position of their control flow."""
    arguments: list[ValueSources] = []
    for i, argument in enumerate(program.arguments):
        known = argument.mesh is not None and not argument.is_constant
        home = program.slice_of(argument.mesh or "") if known else ""
        arguments.append(((-1, i, home, program.flow.sizes[i]),))
    yield from _calls(program, arguments, itertools.count(), [])


def _calls(
    function: ProgramIR,
    arguments: Sequence[ValueSources],
    numbers: "itertools.count[int]",
    returned: list[ValueSources],
) -> Iterator[PlacedCall]:
    """Yields the calls of one function. Fills `returned` with the origins of its results."""
    flow = function.flow
    sources = list(arguments)
    for node in flow.nodes:
        taken = list(map(sources.__getitem__, node.operands))
        if node.is_call or node.is_transfer:
            number, here = next(numbers), function.slice_of(node.mesh)
            yield PlacedCall(number, function, node, taken)
            sizes = flow.sizes[node.results.start : node.results.stop]
            sources += zip(zip(itertools.repeat(number), itertools.count(), itertools.repeat(here), sizes))
            continue
        made: list[list[ValueSources]] = []
        for body in function.bodies_of(node.op):
            made.append([])
            yield from _calls(body, _arguments(body, taken), numbers, made[-1])
        makers = made[1:] if isinstance(node.op, WhileRecord) else made
        for position in range(len(node.results)):
            sources.append(tuple(dict.fromkeys(source for body in makers for source in body[position])))
    returned += [sources[v] for v in flow.returned]


def _arguments(body: ProgramIR, taken: Sequence[ValueSources]) -> list[ValueSources]:
    """Returns the origins of a body's arguments outside the body."""
    constant = ((-1, -1, "", 0),)
    inputs = body.inputs
    handed = dict(zip(inputs, taken[len(taken) - len(inputs) :], strict=True))
    return [handed.get(i, constant) for i in range(len(body.arguments))]
