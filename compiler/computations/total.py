"""Adds up a cost over all operations that one run of a StableHLO module executes."""

import math
from collections.abc import Callable
from typing import Any

from pathways.dialect.ir.functions import functions_of
from pathways.dialect.mlir import Operation


def total_of(
    computation: Operation, cost: Callable[[Any], float], inside_manual: Callable[[Any], float] = lambda _: 1.0
) -> float:
    """Sums the costs of operations. Those of a loop count once per turn, if the IR has the number of turns.

    Of the branches of a `case`, the most expensive one counts. `inside_manual` is the factor of the operations inside
    an `sdy.manual_computation`, whose types are those of one device.
    """
    functions = functions_of(computation)
    known: dict[str, float] = {}

    def of_function(name: str) -> float:
        if name not in known:
            known[name] = 0.0  # stops at a recursive function
            known[name] = of_region(functions[name].regions[0]) if name in functions else 0.0
        return known[name]

    def of_region(region: Any) -> float:
        return sum(of_op(op.operation) for block in region.blocks for op in block.operations)

    def of_op(op: Any) -> float:
        name: str = op.name
        if name == "func.call":
            return of_function(op.attributes["callee"].value)
        if name == "stablehlo.while":
            return (1 if (turns := _turns(op)) is None else turns) * of_region(op.regions[1])
        if name in ("stablehlo.case", "stablehlo.if"):
            return max((of_region(region) for region in op.regions), default=0.0)
        if name.startswith("sdy.") and len(op.regions):
            factor = inside_manual(op) if name == "sdy.manual_computation" else 1.0
            return factor * sum(of_region(region) for region in op.regions)
        return cost(op)

    return of_function("main")


def elements(value: Any) -> int:
    """Returns the number of elements of a value; 0 for a token."""
    shape = getattr(value.type, "shape", None)
    return math.prod(shape) if shape is not None else 0


def has_unknown_loops(within: Operation) -> bool:
    """Returns whether the IR has loops without a known number of turns, which `total_of` counts once."""
    operations = (op.operation for region in within.regions for block in region.blocks for op in block.operations)
    return any((op.name == "stablehlo.while" and _turns(op) is None) or has_unknown_loops(op) for op in operations)


def _turns(op: Any) -> int | None:
    """Returns the turns of a loop between two constants, as `lax.scan` and `fori_loop` make them; None if unknown."""
    body = list(op.regions[0].blocks[0].operations)
    compare = next((o.operation for o in body if o.operation.name == "stablehlo.compare"), None)
    if compare is None:
        return None
    counter, limit = compare.operands[0], _constant(compare.operands[1])
    arguments = list(op.regions[0].blocks[0].arguments)
    start = next((_constant(o) for a, o in zip(arguments, op.operands, strict=True) if a == counter), None)
    return None if limit is None or start is None else max(limit - start, 0)


def _constant(value: Any) -> int | None:
    owner = getattr(value.owner, "operation", None)
    if owner is None or owner.name not in ("stablehlo.constant", "sdy.constant") or elements(value) != 1:
        return None
    text = str(owner.attributes["value"])
    number = text.partition("dense<")[2].partition(">")[0]
    return int(number) if number.lstrip("-").isdigit() else None
