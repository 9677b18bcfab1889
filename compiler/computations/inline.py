"""A computation without functions: whatever it calls is put in the place of the call.

MLIR's own `inline` pass leaves every call as it is: jaxlib does not register the extension that tells it how.
"""

from collections.abc import Iterator
from typing import Any

from pathways.dialect.mlir import Module, Operation, bytecode, ir, parse, passmanager


def inlined(computation: Operation) -> Module:
    """A copy of a computation as a module of its own. Functions that something names, as a composite does, stay."""
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
    """The calls in an operation's regions, in order."""
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                if inner.operation.name == "func.call":
                    yield inner.operation
                else:
                    yield from _calls(inner.operation)


def _replace(call: Operation, function: Operation) -> None:
    """Puts copies of a function's operations in the place of a call."""
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
    """Copies an operation, with what it reads replaced as `known` says, and adds its results there."""
    copy = op.clone(place).operation
    _rename(copy, known)
    known.update(zip(op.results, copy.results, strict=True))


def _rename(op: Operation, known: dict[Any, Any]) -> None:
    """Replaces what a copied operation reads, its regions included."""
    for i, operand in enumerate(op.operands):
        if operand in known:
            op.operands[i] = known[operand]
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                _rename(inner.operation, known)
