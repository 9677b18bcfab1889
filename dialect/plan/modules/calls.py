"""Checks the function calls inside a StableHLO module of a plan: no cycles, no missing functions, and not too many
operations after inlining. `check.py` calls it.

XLA inlines every call. Forty functions that each call the next one twice become 2^40 operations.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from pathways.dialect.bare_mlir import Operation, bare_ir
from pathways.dialect.plan.modules.stated_module import Refused
from pathways.dialect.plan.modules.walk import MAX_DEPTH

MAX_INLINED_OPS = 1_000_000
"""The most operations with all calls inlined. The largest models compiled with this project have about 10,000."""


@dataclass
class CalledFunction:
    """Counts of a function: its operations, their depth, and its calls of each other function, with their depth."""

    operations: int = 0
    depth: int = 1
    calls: Counter[str] = field(default_factory=Counter[str])
    deepest: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, operation: Operation, depth: int) -> None:
        self.operations += 1
        self.depth = max(self.depth, depth)
        for callee in called_by(operation):
            self.calls[callee] += 1
            self.deepest[callee] = max(depth, self.deepest.get(callee, 0))


def called_by(operation: Operation) -> list[str]:
    """Returns the names of the functions that an operation calls."""
    match operation.name:
        case "func.call":
            return [operation.attributes["callee"].value]
        case "stablehlo.composite":
            return [operation.attributes["decomposition"].value]
        case "stablehlo.custom_call" if "called_computations" in operation.attributes:
            return [bare_ir.FlatSymbolRefAttr(a).value for a in operation.attributes["called_computations"]]
        case _:
            return []


def check_calls(functions: Mapping[str, CalledFunction]) -> None:
    """Raises Refused for cycles, missing functions, and modules that are too large or too deep after inlining."""
    for name, function in functions.items():
        for callee in function.calls:
            if callee not in functions:
                raise Refused(f"calls @{callee}, which does not exist, in @{name}")
    try:
        order = list(TopologicalSorter({n: f.calls.keys() for n, f in functions.items()}).static_order())
    except CycleError as error:
        circle: list[str] = error.args[1]
        raise Refused(f"calls itself: {' -> '.join(f'@{n}' for n in circle[:8])}") from None
    sizes: dict[str, int] = {}
    depths: dict[str, int] = {}
    for name in order:
        function = functions[name]
        sizes[name] = function.operations + sum(n * sizes[c] for c, n in function.calls.items())
        depths[name] = max([function.depth, *(at + depths[c] for c, at in function.deepest.items())])
        if sizes[name] > MAX_INLINED_OPS:
            raise Refused(f"has {sizes[name]} operations with all calls inlined, more than {MAX_INLINED_OPS}")
        if depths[name] > MAX_DEPTH:
            raise Refused(f"has calls in calls and regions, more than {MAX_DEPTH} deep")
