"""Finds results of a computation that are an updated argument, such as a new parameter or a running sum. Such a result
can overwrite its argument in place. Buffer planning uses this to choose donations.

XLA writes such a result over its argument in place. If XLA only knows that the argument's memory is free, it takes any
result of the same size for it. For example, a new parameter takes an old moment. XLA then first copies the data that
would be overwritten before it is read.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

from pathways.compiler.computations.elementwise import ELEMENTWISE
from pathways.dialect.ir.functions import functions_of
from pathways.dialect.mlir import Operation

Distances: TypeAlias = dict[int, int]
"""For each argument that a value updates in place, the number of operations between them."""

_FIRST = frozenset({"stablehlo.dynamic_update_slice", "stablehlo.reshape", "sdy.sharding_constraint"})
"""Operations that XLA performs in the memory of their first operand."""
_EACH = frozenset({"stablehlo.optimization_barrier", "stablehlo.scatter", "stablehlo.while"})
"""Operations that XLA performs in the memory of their operands: result i takes the memory of operand i."""


def updates_of(computation: Operation, arguments: Collection[int]) -> list[Distances]:
    """Finds, for each result, the arguments that it updates in place, and their distances in operations."""
    functions = functions_of(computation)
    return _Walk(functions).of_function(functions["main"], arguments)


class _Walk:
    """A walk over a function and the functions that it calls, each visited once."""

    def __init__(self, functions: Mapping[str, Operation]) -> None:
        self._functions = functions
        self._known: dict[str, list[Distances]] = {}

    def of_function(self, function: Operation, arguments: Collection[int]) -> list[Distances]:
        block = function.regions[0].blocks[0]
        inputs = list(block.arguments)
        found: dict[Any, Distances] = {inputs[i]: {i: 0} for i in arguments}
        returned: list[Any] = []
        for op in block.operations:
            operands = list(op.operation.operands)
            if op.operation.name == "func.return":
                returned = operands
            elif any(v in found for v in operands):
                self._follow(op.operation, [found.get(v, {}) for v in operands], found)
        return [found.get(v, {}) for v in returned]

    def _follow(self, op: Operation, given: list[Distances], found: dict[Any, Distances]) -> None:
        """Records the distances of an operation's results from those of its operands."""
        if op.name in ELEMENTWISE:
            found[op.results[0]] = _nearest(given)
        elif op.name in _FIRST:
            found[op.results[0]] = _nearest(given[:1])
        elif op.name in _EACH:
            for result, one in zip(op.results, given, strict=False):
                found[result] = _nearest([one])
        elif op.name == "func.call":
            for result, inside in zip(op.results, self._called(op.attributes["callee"].value), strict=True):
                found[result] = _nearest([{a: n + more for a, n in given[i].items()} for i, more in inside.items()])

    def _called(self, name: str) -> list[Distances]:
        if name not in self._known:
            function = self._functions[name]
            block = function.regions[0].blocks[0]
            self._known[name] = [{} for _ in block.operations[len(block.operations) - 1].operation.operands]
            self._known[name] = self.of_function(function, range(len(block.arguments)))
        return self._known[name]


def _nearest(given: Sequence[Distances]) -> Distances:
    """Returns the smallest distances of some values, plus one operation."""
    found: Distances = {}
    for one in given:
        for argument, distance in one.items():
            found[argument] = min(distance + 1, found.get(argument, distance + 1))
    return found


def pair_updates(
    arguments: Mapping[int, Any], results: Sequence[Any], updates: Sequence[Distances]
) -> dict[int, int | None]:
    """Pairs arguments that may be overwritten with results; None if any result may take the argument's memory.

    `arguments` and `results` describe values by type and layout. Only equal descriptions can share memory, so no
    description gets more arguments than it has results. The nearest pair has priority. Among equally near pairs, the
    pair whose argument has fewer derived results has priority.
    """
    made_of = Counter(argument for found in updates for argument in found)
    near = sorted(
        (distance, made_of[argument], argument, result)
        for result, found in enumerate(updates)
        for argument, distance in found.items()
        if argument in arguments and arguments[argument] == results[result]
    )
    pairs: dict[int, int | None] = {}
    taken: set[int] = set()
    for *_, argument, result in near:
        if argument not in pairs and result not in taken:
            pairs[argument] = result
            taken.add(result)
    left = [like for result, like in enumerate(results) if result not in taken]
    for argument in sorted(arguments.keys() - pairs.keys()):
        if arguments[argument] in left:
            left.remove(arguments[argument])
            pairs[argument] = None
    return dict(sorted(pairs.items()))
