"""Returns a copy of a StableHLO module in which all function calls are inlined. `localize.py`, `split.py` and
`temporaries.py` call it first.

MLIR's own `inline` pass inlines no call, because jaxlib does not register the extension that it needs.
"""

from collections.abc import Iterator
from typing import Any

from pathways.dialect.mlir import Module, Operation, bytecode, ir, parse, passmanager


def inlined(computation: Operation) -> Module:
    """Returns an inlined copy of a computation as a module. Functions that a composite names stay."""
    context: Any = computation.context
    module = parse(bytecode(computation), context)
    functions = {op.attributes["sym_name"].value: op.operation for op in module.body.operations if _is_function(op)}
    opened: set[str] = set()

    def open_up(name: str) -> None:
        if name in opened:
            return
        opened.add(name)
        for call in list(_calls(functions[name])):
            callee = call.attributes["callee"].value
            open_up(callee)
            _replace(call, functions[callee])

    with context:
        open_up("main")
        passmanager.PassManager.parse("builtin.module(symbol-dce)").run(module.operation)
    return module


def _is_function(op: Any) -> bool:
    return op.operation.name == "func.func"


def _calls(op: Operation) -> Iterator[Operation]:
    """Yields the calls in an operation's regions, in order."""
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                if inner.operation.name == "func.call":
                    yield inner.operation
                else:
                    yield from _calls(inner.operation)


def _replace(call: Operation, function: Operation) -> None:
    """Replaces a call by copies of the function's operations."""
    block = function.regions[0].blocks[0]
    known: dict[Any, Any] = dict(zip(block.arguments, call.operands, strict=True))
    *operations, end = (op.operation for op in block.operations)
    place = ir.InsertionPoint(call)
    for op in operations:
        copy_into(op, place, known)
    for result, value in zip(call.results, end.operands, strict=True):
        result.replace_all_uses_with(known[value])
    call.erase()


def copy_into(op: Operation, place: Any, known: dict[Any, Any]) -> None:
    """Copies an operation, replaces its operands by `known`, and adds its results to `known`."""
    copy = op.clone(place).operation
    _rename(copy, known)
    known.update(zip(op.results, copy.results, strict=True))


def _rename(op: Operation, known: dict[Any, Any]) -> None:
    """Replaces the operands of a copied operation, its regions included."""
    for i, operand in enumerate(op.operands):
        if operand in known:
            op.operands[i] = known[operand]
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                _rename(inner.operation, known)
