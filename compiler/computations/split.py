"""Splits one StableHLO module in two: the first makes some of the results, the second makes the others. The pass
`split_backward` uses it to separate input gradients from weight gradients.

Values that both halves need are computed in the first half and passed on. Cheap operations are computed again instead.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pathways.compiler.computations.inline import inlined
from pathways.dialect.ir.functions import described, main_of
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import Operation, ir

_CHEAP = frozenset(
    {
        "stablehlo.broadcast_in_dim",
        "stablehlo.constant",
        "stablehlo.convert",
        "stablehlo.iota",
        "stablehlo.reshape",
        "stablehlo.transpose",
    }
)
"""Operations that the second half computes again, if all their inputs are available there."""


@dataclass(frozen=True)
class Halves:
    """Two computations that replace one.

    `first_inputs` and `second_inputs` are positions of arguments of the whole. The second half takes `handed` more
    values after them: the last results of the first half. The first half returns them after its results of the whole.
    """

    first: str
    second: str
    first_inputs: tuple[int, ...]
    second_inputs: tuple[int, ...]
    handed: int


def split(program: ProgramIR, symbol: str, first_results: Sequence[int], suffixes: tuple[str, str]) -> Halves:
    """Adds two computations to the program: one makes `first_results` of `symbol`, the other the remaining results."""
    whole = inlined(program.computations[symbol])
    body = _Body(main_of(whole.operation))
    wanted = [v for i, v in enumerate(body.returned) if i in set(first_results)]
    others = [v for i, v in enumerate(body.returned) if i not in set(first_results)]
    first_ops = body.closure(wanted)
    again = body.cheap(first_ops)
    handed = body.boundary(others, first_ops - again)
    second_ops = body.closure(others, stop=handed)
    numbers = [body.number[v] for v in handed]
    made: list[tuple[str, tuple[int, ...]]] = []
    for suffix, keep, extra in ((suffixes[0], first_ops, ()), (suffixes[1], second_ops, numbers)):
        part = whole.operation.clone(ir.InsertionPoint(program.computations[symbol]))
        name = program.unique_symbol(f"{symbol}{suffix}")
        part.attributes["sym_name"] = ir.StringAttr.get(name)
        program.computations[name] = part
        results = [body.number[v] for v in ((*wanted, *handed) if not extra and suffix == suffixes[0] else others)]
        chosen = [i for i in range(len(body.returned)) if (i in set(first_results)) == (suffix == suffixes[0])]
        made.append((name, _reduce(main_of(part), keep, results, chosen, extra)))
    return Halves(made[0][0], made[1][0], made[0][1], made[1][1], len(handed))


class _Body:
    """The operations of @main by position, and the maker of each value. Numbers of values: arguments, then results."""

    def __init__(self, main: Any) -> None:
        block = main.operation.regions[0].blocks[0]
        self.operations: list[Operation] = [op.operation for op in block.operations]
        self.returned = list(self.operations.pop().operands)
        self.number: dict[Any, int] = {v: i for i, v in enumerate(block.arguments)}
        self.maker: dict[Any, int] = {}
        for at, op in enumerate(self.operations):
            for value in op.results:
                self.number[value] = len(self.number)
                self.maker[value] = at
        self.reads: list[list[Any]] = [list(_captured(op)) for op in self.operations]

    def closure(self, values: Iterable[Any], stop: Iterable[Any] = ()) -> set[int]:
        """Returns the operations that make values, and all operations that these need, up to `stop`."""
        ends = set(stop)
        found: set[int] = set()
        waiting = [v for v in values if v in self.maker and v not in ends]
        while waiting:
            at = self.maker[waiting.pop()]
            if at not in found:
                found.add(at)
                waiting += [v for v in self.reads[at] if v in self.maker and v not in ends]
        return found

    def cheap(self, operations: set[int]) -> set[int]:
        """Selects the operations that are computed again rather than passed on."""
        found: set[int] = set()
        for at in sorted(operations):
            op = self.operations[at]
            if op.name in _CHEAP and all(v not in self.maker or self.maker[v] in found for v in self.reads[at]):
                found.add(at)
        return found

    def boundary(self, results: Iterable[Any], made: set[int]) -> list[Any]:
        """Returns the values of `made` that are needed to make `results`, in order."""
        results = list(results)
        handed = {v for v in results if v in self.maker and self.maker[v] in made}
        for at in self.closure(results) - made:
            handed.update(v for v in self.reads[at] if v in self.maker and self.maker[v] in made)
        needed = set[Any]()
        for at in self.closure(results, stop=handed):
            needed.update(self.reads[at])
        needed.update(results)
        return sorted(handed & needed, key=self.number.__getitem__)


def _captured(op: Operation) -> Iterable[Any]:
    """Yields the values that an operation reads: its operands, and the values that its regions capture."""
    yield from op.operands
    inside: set[Any] = set()
    for region in op.regions:
        for block in region.blocks:
            inside.update(block.arguments)
            for inner in block.operations:
                yield from (v for v in _captured(inner.operation) if v not in inside)
                inside.update(inner.operation.results)


def _reduce(main: Any, keep: set[int], results: list[int], chosen: list[int], extra: Sequence[int]) -> tuple[int, ...]:
    """Reduces @main to the operations `keep`, with `results` (numbers of values) and new arguments for `extra`.

    `chosen` are the positions of the kept results of the whole. Returns the positions of the remaining arguments.
    """
    block = main.operation.regions[0].blocks[0]
    operations = [op.operation for op in block.operations]
    values = [*block.arguments, *(v for op in operations[:-1] for v in op.results)]
    arguments = len(block.arguments)
    taken: dict[int, Any] = {}
    for number in extra:
        argument = block.add_argument(values[number].type, ir.Location.unknown())
        values[number].replace_all_uses_with(argument)
        taken[number] = argument
    returned = [taken.get(n, values[n]) for n in results]
    end = operations[-1]
    old = {
        key: described(main, key, count) for key, count in (("arg_attrs", arguments), ("res_attrs", len(end.operands)))
    }
    ir.Operation.create("func.return", operands=returned, ip=ir.InsertionPoint(end), loc=end.location)
    end.erase()
    for at in range(len(operations) - 2, -1, -1):
        if at not in keep:
            operations[at].erase()
    kept = [i for i in range(arguments) if len(list(block.arguments[i].uses))]
    for i in range(arguments - 1, -1, -1):
        if i not in kept:
            block.erase_argument(i)
    empty = ir.DictAttr.get({})
    ins, outs = [a.type for a in block.arguments], [v.type for v in returned]
    main.operation.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(ins, outs))
    main.arg_attrs = ir.ArrayAttr.get([*(old["arg_attrs"][i] for i in kept), *[empty] * len(extra)])
    shown = [old["res_attrs"][i] for i in chosen]
    main.operation.attributes["res_attrs"] = ir.ArrayAttr.get([*shown, *[empty] * (len(outs) - len(shown))])
    return tuple(kept)
