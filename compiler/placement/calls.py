"""All calls and moves of a program, those in bodies of control flow too: each body as if it ran once."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from pathways.dialect.ir import pw
from pathways.dialect.ir.flow import Node
from pathways.dialect.ir.program import ProgramIR


class ValueSource(NamedTuple):
    """Where a value comes from: the number of the call that makes it (-1: an argument), which of its values, its slice.

    The slice of constants, which are wherever they are wanted, is empty.
    """

    maker: int
    position: int
    slice: str
    bytes: int


ValueSources: TypeAlias = tuple[ValueSource, ...]
"""What a value may be: behind a branch it is what one body or another makes."""


@dataclass(frozen=True, eq=False)
class PlacedCall:
    """A call or a move; `number` counts them over all functions, `sources` are its operands'."""

    number: int
    function: ProgramIR
    node: Node
    sources: Sequence[ValueSources]


def placed_calls(program: ProgramIR) -> Iterator[PlacedCall]:
    """In program order, bodies where their control flow stands."""
    arguments: list[ValueSources] = []
    for i, argument in enumerate(program.arguments):
        known = argument.mesh is not None and not argument.is_constant
        home = program.slice_of(argument.mesh or "") if known else ""
        arguments.append((ValueSource(-1, i, home, program.flow.sizes[i]),))
    yield from _calls(program, arguments, itertools.count(), [])


def _calls(
    function: ProgramIR,
    arguments: Sequence[ValueSources],
    numbers: "itertools.count[int]",
    returned: list[ValueSources],
) -> Iterator[PlacedCall]:
    """The calls of one function; fills `returned` with the sources of what it returns."""
    flow = function.flow
    sources = list(arguments)
    for node in flow.nodes:
        taken = [sources[v] for v in node.operands]
        if node.is_call or node.is_transfer:
            number, here = next(numbers), function.slice_of(node.mesh)
            yield PlacedCall(number, function, node, taken)
            sizes = flow.sizes[node.results.start : node.results.stop]
            sources += [(ValueSource(number, i, here, size),) for i, size in enumerate(sizes)]
            continue
        made: list[list[ValueSources]] = []
        for body in function.bodies_of(node.op):
            made.append([])
            yield from _calls(body, _arguments(body, taken), numbers, made[-1])
        makers = made[1:] if isinstance(node.op, pw.WhileOp) else made
        for position in range(len(node.results)):
            sources.append(tuple(dict.fromkeys(source for body in makers for source in body[position])))
    returned += [sources[v] for v in flow.returned]


def _arguments(body: ProgramIR, taken: Sequence[ValueSources]) -> list[ValueSources]:
    """What a body's arguments are outside of it."""
    constant = (ValueSource(-1, -1, "", 0),)
    inputs = body.inputs
    handed = dict(zip(inputs, taken[len(taken) - len(inputs) :], strict=True))
    return [handed.get(i, constant) for i in range(len(body.arguments))]
