"""A computation without functions: whatever it calls is put in the place of the call."""

from typing import Any

from pathways.dialect.mlir import Module, Operation, bytecode, parse, passmanager


def inlined(computation: Operation) -> Module:
    """A copy of a computation as a module of its own, with nothing but meshes and @main."""
    context: Any = computation.context
    module = parse(bytecode(computation), context)
    with context:
        passmanager.PassManager.parse("builtin.module(inline)").run(module.operation)
    for op in list(module.body.operations):
        if op.operation.name == "func.func" and op.operation.attributes["sym_name"].value != "main":
            op.operation.erase()  # inlined wherever it was called
    return module
