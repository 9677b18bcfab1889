"""Writes the records of a function as MLIR ops, and reads ops as records. It is the only bridge between the two forms
of a program; `program.py` calls it for code that asks for the module, and for modules from outside.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from pathways.dialect.dtypes import ArrayType, from_mlir
from pathways.dialect.ir import pw
from pathways.dialect.ir.arguments import FunctionSignature, read_argument
from pathways.dialect.ir.declare import attribute_names
from pathways.dialect.ir.flow import Node, node_of
from pathways.dialect.ir.functions import described
from pathways.dialect.ir.records import KINDS, NodeRecord, fields_of
from pathways.dialect.memo import map_by_identity
from pathways.dialect.mlir import Attribute, Operation, Value, func, ir


class Contents(NamedTuple):
    """The signature of a function, the types of its values, its nodes, and the numbers of the returned values."""

    signature: FunctionSignature
    types: Sequence[ArrayType]
    nodes: Sequence[Node]
    returned: Sequence[int]


def read_function(function: Any) -> tuple[Contents, list[Operation]]:
    """Reads the op of a function as records. Also returns the op of each node."""
    block = function.operation.regions[0].blocks[0]
    values: list[Value] = list(block.arguments)
    numbers: dict[Value, int] = {v: i for i, v in enumerate(values)}
    nodes: list[Node] = []
    operations: list[Operation] = []
    for op in block.operations:
        if op.operation.name not in KINDS:
            continue
        results = list(op.results)
        made = range(len(values), len(values) + len(results))
        numbers.update(zip(results, made, strict=True))
        values += results
        record = KINDS[op.operation.name](op.location, **fields_of(op))
        nodes.append(node_of(len(nodes), record, tuple(map(numbers.__getitem__, op.operands)), made))
        operations.append(op.operation)
    returned = block.operations[len(block.operations) - 1].operation.operands
    types = [from_mlir(v.type) for v in values]
    return Contents(read_ends(function), types, nodes, [numbers[v] for v in returned]), operations


def read_ends(function: Any) -> FunctionSignature:
    """Reads the arguments and results of a function from its op."""
    block, context = function.operation.regions[0].blocks[0], function.operation.context
    end = block.operations[len(block.operations) - 1].operation
    taken = described(function, "arg_attrs", len(block.arguments))
    made = described(function, "res_attrs", len(end.operands))[: len(end.operands)]
    written = ir.ArrayAttr.get(taken, context), ir.ArrayAttr.get(made, context)
    arguments, results = (list(map(read_argument, side)) for side in (taken, made))
    return FunctionSignature(arguments, results, [a.location for a in block.arguments], end.location, written)


def write_function(function: Any, contents: Contents) -> list[Operation]:
    """Replaces the body and signature of a function's op. Returns the op of each node.

    Linked records keep their ops, which are moved, since other code may hold them. Other ops are erased.
    """
    operation = function.operation
    (block,) = operation.regions[0].blocks
    with operation.context, ir.Location.unknown():
        old, arguments = [op.operation for op in block.operations], list(block.arguments)
        if old:
            old.pop().erase()  # the return: nothing can be inserted after it
        writer = _Writer(contents)
        for key in ("arg_attrs", "res_attrs"):
            if key in operation.attributes:
                del operation.attributes[key]
        for key, attribute in writer.signature().items():
            operation.attributes[key] = attribute
        takes_same = [a.type for a in arguments] == writer.taken
        operations = writer.fill(block, writer.renamed(arguments) if takes_same else writer.add_arguments(block))
        kept = set(operations)
        for op in reversed(old):
            if op not in kept:
                op.erase()
        for number in () if takes_same else reversed(range(len(arguments))):
            block.erase_argument(number)
        return operations


def write_anew(function: Any, contents: Contents) -> tuple[Any, list[Operation]]:
    """Writes a function next to its op, which stays as it is. Returns the new op, and the op of each node."""
    old = function.operation
    with old.context, ir.Location.unknown():
        attributes = {name: old.attributes[name] for name in attribute_names(old)}
        made = ir.Operation.create(
            "func.func", attributes=attributes, regions=1, loc=old.location, ip=ir.InsertionPoint(old)
        )
        made.regions[0].blocks.append()
    return made.opview, write_function(made.opview, contents)


class _Writer:
    """Writes one function. Converts shared types and shardings once."""

    def __init__(self, contents: Contents) -> None:
        self._signature, self._types, self._nodes, self._returned = contents
        self._mlir_types: list[Any] = map_by_identity(lambda type_: ir.Type.parse(type_.mlir), self._types)
        self.taken = self._mlir_types[: len(self._signature.arguments)]
        self._shared: dict[int, Attribute] = {}
        """The attributes of lists of shardings, by identity of the list; the records keep the lists alive."""

    def signature(self) -> dict[str, Attribute]:
        type_ = ir.FunctionType.get(self.taken, [self._mlir_types[v] for v in self._returned])
        return {"function_type": ir.TypeAttr.get(type_), **self._signature.attributes()}

    def add_arguments(self, block: Any) -> list[Value]:
        """Adds arguments to a block, after those that it has."""
        return [block.add_argument(t, at) for t, at in zip(self.taken, self._signature.locations, strict=True)]

    def renamed(self, arguments: Sequence[Value]) -> Sequence[Value]:
        """Gives the arguments of a block the locations of the signature; returns them."""
        for argument, at in zip(arguments, self._signature.locations, strict=True):
            argument.set_location(at)
        return arguments

    def fill(self, block: Any, arguments: Sequence[Value]) -> list[Operation]:
        """Adds the ops of all nodes to a block, after those that it has."""
        values = list(arguments)
        operations: list[Operation] = []
        for node in self._nodes:
            operands = [values[v] for v in node.operands]
            op = self._kept(node, operands, block) or self._made(node, operands, block)
            values += op.results
            operations.append(op)
        func.ReturnOp([values[v] for v in self._returned], loc=self._signature.end, ip=ir.InsertionPoint(block))
        return operations

    def _kept(self, node: Node, operands: list[Value], block: Any) -> Operation | None:
        """Moves the op of a linked record to the end of the block. Returns None if it needs another op."""
        if not node.op.is_linked:
            return None
        op: Operation = node.op.operation
        if len(op.operands) != len(operands) or len(op.results) != len(node.results):
            node.op.unlink()
            return None
        op.move_after(block.operations[len(block.operations) - 1].operation)
        for number, value in enumerate(operands):
            op.operands[number] = value
        return op

    def _made(self, node: Node, operands: list[Value], block: Any) -> Operation:
        results = self._mlir_types[node.results.start : node.results.stop]
        made = node.op.op_class.create(
            ip=ir.InsertionPoint(block),
            loc=node.op.location,
            operands=operands,
            results=results,
            **self._fields(node.op),
        )
        return made.operation

    def _fields(self, op: NodeRecord) -> dict[str, Any]:
        found = op.values()
        for name in pw.SHARDING_FIELDS & found.keys():
            shardings = found[name]
            if id(shardings) not in self._shared:
                self._shared[id(shardings)] = pw.SHARDINGS.write(shardings)
            found[name] = self._shared[id(shardings)]
        return found
