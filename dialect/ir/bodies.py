"""Checks the functions inside a StableHLO module: each has a body of one block, and none calls itself. MLIR or XLA
would abort the process otherwise. `wellformed.py` calls the check. The MPMD front end takes from here only the list of
functions that a function calls.
"""

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pathways.dialect.ir.functions import functions_of
from pathways.dialect.mlir import Operation, ir


def broken_bodies(computation: Operation) -> Iterator[tuple[Operation, str, str]]:
    """Yields functions that cannot run: the op, what is wrong with it, and the rule."""
    functions = functions_of(computation)
    found = False
    for name, function in functions.items():
        if (count := len(function.regions[0].blocks)) != 1:
            found = True
            yield function, f"@{name} has {count} blocks", "a body of one block: use the control flow of StableHLO"
    if found:
        return
    try:
        TopologicalSorter({name: functions_called_by(f) for name, f in functions.items()}).prepare()
    except CycleError as error:
        circle = error.args[1]
        yield functions[circle[0]], f"@{circle[0]} calls itself", "no recursion; loops are stablehlo.while"


def functions_called_by(function: Operation) -> list[str]:
    """Lists the functions that a function calls, in order of their first call."""
    found: dict[str, None] = {}

    def visit(op: Any) -> Any:
        if op.name == "func.call":
            found[op.attributes["callee"].value] = None
        return ir.WalkResult.ADVANCE

    function.walk(visit)
    return list(found)
