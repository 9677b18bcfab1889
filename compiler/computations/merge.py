"""Merges several StableHLO modules into one, whose @main calls the others. The pass `merge_calls` uses it to turn
consecutive calls on the same devices into one executable.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pathways.compiler.computations.shardy import SignatureShardings, mesh_symbol, write_signature
from pathways.dialect.host_callbacks import read_callbacks
from pathways.dialect.ir.functions import functions_of, main_of
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import Operation, func, ir, sdy
from pathways.dialect.sdy import Placed, mesh_ops_of, write_sharding
from pathways.dialect.sharding import Axes, Dims

PartOperand: TypeAlias = tuple[int, int]
"""The source of an operand: (-1, argument number of the whole), or (part number, result number of that part)."""


@dataclass(frozen=True)
class PartCall:
    """One call in the merged computation: its computation, and the sources of its operands."""

    callee: str
    operands: tuple[PartOperand, ...]
    ins: tuple[Dims, ...]
    """The shardings of the call's operands."""
    outs: tuple[Dims, ...]


@dataclass(frozen=True)
class Whole:
    """Describes a merged computation; equal ones are built once."""

    axes: Axes
    parts: tuple[PartCall, ...]
    arguments: tuple[Dims, ...]
    results: tuple[PartOperand, ...]


def mergeable(computations: Sequence[Operation]) -> bool:
    """Whether computations can share a module: their meshes do not conflict, and none calls back to the host.

    Meshes conflict if they have one name and are different. A callback is identified by its index in its own module.
    """
    if any(map(read_callbacks, computations)):
        return False
    seen: dict[str, str] = {}
    for computation in computations:
        for name, op in mesh_ops_of(computation).items():
            mesh = str(op.attributes["mesh"])
            if seen.setdefault(name, mesh) != mesh:
                return False
    return True


def merge(program: ProgramIR, symbol: str, whole: Whole) -> None:
    """Adds the computation `symbol` to the program. Needs the program's context, and a location."""
    callees = list(dict.fromkeys(p.callee for p in whole.parts))
    before = program.before()
    module = ir.Operation.create(
        "builtin.module", attributes={"sym_name": ir.StringAttr.get(symbol)}, regions=1, ip=before
    )
    body = module.regions[0].blocks.append()
    program.computations[symbol] = module
    functions = {c: _copy(program.computations[c], body, f"part{i}") for i, c in enumerate(callees)}
    arguments = {s: t for p in whole.parts for s, t in zip(p.operands, main_type(program, p).inputs, strict=True)}
    types = [main_type(program, whole.parts[at]).results[i] for at, i in whole.results]
    main = func.FuncOp(
        "main",
        ir.FunctionType.get([arguments[-1, i] for i in range(len(whole.arguments))], types),
        visibility="public",
        ip=ir.InsertionPoint(body),
    )
    write_signature(
        module,
        whole.axes,
        SignatureShardings(whole.arguments, tuple(whole.parts[at].outs[i] for at, i in whole.results)),
    )
    block = main.add_entry_block()
    mesh = mesh_symbol(module, whole.axes)
    values: dict[PartOperand, Any] = {(-1, i): a for i, a in enumerate(block.arguments)}
    with ir.InsertionPoint(block):
        for at, part in enumerate(whole.parts):
            operands = [
                _as(values[source], dims, mesh, source, whole)
                for source, dims in zip(part.operands, part.ins, strict=True)
            ]
            call = func.CallOp(list(main_type(program, part).results), functions[part.callee], operands)
            for i, value in enumerate(call.operation.results):
                values[at, i] = _constrained(value, part.outs[i], mesh, whole.axes)
        func.ReturnOp([values[source] for source in whole.results])


def main_type(program: ProgramIR, part: PartCall) -> Any:
    return main_of(program.computations[part.callee]).type


def _as(value: Any, dims: Dims, mesh: str, source: PartOperand, whole: Whole) -> Any:
    """Returns a value in the sharding in which a part takes it. Adds a constraint if it has another one."""
    at, i = source
    have = whole.arguments[i] if at < 0 else whole.parts[at].outs[i]
    return value if have == dims else _constrained(value, dims, mesh, whole.axes)


def _constrained(value: Any, dims: Dims, mesh: str, axes: Axes) -> Any:
    """Constrains a value that was in memory between two parts to the sharding that it had there."""
    if all(size == 1 for _, size in axes):
        return value
    return sdy.ShardingConstraintOp(value, write_sharding(Placed(mesh, dims))).result


def _copy(computation: Operation, body: Any, prefix: str) -> str:
    """Copies the functions and meshes of a computation into a module, and returns the new name of its @main."""
    present = {op.operation.attributes["sym_name"].value for op in body.operations if op.operation.name == "sdy.mesh"}
    names: dict[str, str] = {}
    copies: list[Operation] = []
    for op in computation.regions[0].blocks[0].operations:
        name: str = op.operation.attributes["sym_name"].value
        if op.operation.name == "func.func":
            names[name] = f"{prefix}_{name}"
        elif name in present:
            continue
        copies.append(op.operation.clone(ir.InsertionPoint(body)).operation)
    for copy in copies:
        if copy.name != "func.func":
            continue
        copy.attributes["sym_name"] = ir.StringAttr.get(names[copy.attributes["sym_name"].value])
        copy.attributes["sym_visibility"] = ir.StringAttr.get("private")
        if copy.attributes["sym_name"].value == names["main"]:
            for key in ("arg_attrs", "res_attrs"):
                if key in copy.attributes:
                    del copy.attributes[key]
        _rename(copy, names)
    return names["main"]


def _rename(op: Operation, names: dict[str, str]) -> None:
    """Updates all references to renamed functions: calls, composites, custom calls."""
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                found = inner.operation
                if found.name == "stablehlo.constant":  # MLIR's bindings cannot read those of complex numbers
                    continue
                for key in [a if isinstance(a, str) else a.name for a in found.attributes]:
                    new = _renamed(found.attributes[key], names)
                    if new is not None:
                        found.attributes[key] = new
                _rename(found, names)


def _renamed(attribute: Any, names: dict[str, str]) -> Any:
    if isinstance(attribute, ir.FlatSymbolRefAttr):
        return ir.FlatSymbolRefAttr.get(names[attribute.value]) if attribute.value in names else None
    if isinstance(attribute, ir.ArrayAttr) and any(isinstance(a, ir.FlatSymbolRefAttr) for a in attribute):
        return ir.ArrayAttr.get([_renamed(a, names) or a for a in attribute])
    return None


def count_operations(computation: Operation) -> int:
    """Counts the operations of a computation. A called function counts once per call."""
    functions = functions_of(computation)
    known: dict[str, int] = {}

    def of_function(name: str) -> int:
        if name not in known:
            known[name] = 0
            known[name] = of_op(functions[name]) if name in functions else 0
        return known[name]

    def of_op(op: Operation) -> int:
        total = of_function(op.attributes["callee"].value) if op.name == "func.call" else 0
        for region in op.regions:
            for block in region.blocks:
                total += sum(1 + of_op(inner.operation) for inner in block.operations)
        return total

    return of_function("main")
