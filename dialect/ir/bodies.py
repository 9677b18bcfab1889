"""What must hold of the functions of a computation: each has a body of one block, and none ends up calling itself.

Passes of Shardy and of XLA end the process where that is not so.
"""

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pathways.dialect.ir.program import functions_of
from pathways.dialect.mlir import Operation, ir


def broken_bodies(computation: Operation) -> Iterator[tuple[Operation, str, str]]:
    """Finds functions that nothing can run: the op, what is wrong with it, and the rule."""
    functions = functions_of(computation)
    found = False
    for name, function in functions.items():
        if (count := len(function.regions[0].blocks)) != 1:
            found = True
            yield function, f"@{name} has {count} blocks", "a body of one block: control flow is that of StableHLO"
    if found:
        return
    try:
        TopologicalSorter({name: functions_called_by(f) for name, f in functions.items()}).prepare()
    except CycleError as error:
        circle = error.args[1]
        yield functions[circle[0]], f"@{circle[0]} calls itself", "functions that end, loops are stablehlo.while"


def functions_called_by(function: Operation) -> list[str]:
    """Finds the functions that a function calls, in their order."""
    found: dict[str, None] = {}

    def look(op: Any) -> Any:
        if op.name == "func.call":
            found[op.attributes["callee"].value] = None
        return ir.WalkResult.ADVANCE

    function.walk(look)
    return list(found)
