"""Finds the functions of a nested module, and reads the attributes of their arguments and results."""

from collections.abc import Sequence
from typing import Any

from pathways.dialect.diagnostics import InternalError
from pathways.dialect.mlir import Operation, ir


def functions_of(computation: Operation) -> dict[str, Operation]:
    """Finds the functions of a nested module, by symbol."""
    operations = (op.operation for op in computation.regions[0].blocks[0].operations)
    return {op.attributes["sym_name"].value: op for op in operations if op.name == "func.func"}


def main_of(computation: Operation) -> Any:
    """Returns the public @main of a nested module."""
    for op in computation.regions[0].blocks[0].operations:
        if op.operation.name == "func.func" and op.operation.attributes["sym_name"].value == "main":
            return op
    raise InternalError("a computation has no @main")


def described(function: Any, key: str, count: int) -> Sequence[Any]:
    """Returns the `arg_attrs` or `res_attrs` of a function, one dictionary each. MLIR omits a list of empty ones."""
    attributes = function.operation.attributes
    if key in attributes:
        return list(attributes[key])
    with function.operation.context:
        return [ir.DictAttr.get({})] * count
