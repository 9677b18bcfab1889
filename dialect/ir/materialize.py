"""Writes the records of a function as MLIR ops, and reads ops as records. It is the only bridge between the two forms
of a program; `program.py` calls it for code that asks for the module, and for modules from outside.
"""

from typing import Any, NamedTuple

from pathways.dialect.dtypes import ArrayType, from_mlir
from pathways.dialect.ir import pw
from pathways.dialect.ir.arguments import FunctionSignature, read_argument
from pathways.dialect.ir.flow import Node, node_of
from pathways.dialect.ir.functions import described
from pathways.dialect.ir.records import KINDS, NodeRecord, fields_of
from pathways.dialect.mlir import Attribute, Operation, Value, func, ir


class Contents(NamedTuple):
    """The signature of a function, the types of its values, its nodes, and the numbers of what it returns."""

    signature: FunctionSignature
    types: list[ArrayType]
    nodes: list[Node]
    returned: list[int]


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
    end = block.operations[len(block.operations) - 1].operation
    taken, made = (
        described(function, key, count)
        for key, count in (("arg_attrs", len(block.arguments)), ("res_attrs", len(end.operands)))
    )
    signature = FunctionSignature(
        list(map(read_argument, taken)),
        list(map(read_argument, made)),
        [a.location for a in block.arguments],
        end.location,
        *(ir.ArrayAttr.get(list(each), function.operation.context) for each in (taken, made)),
    )
    types = [from_mlir(v.type) for v in values]
    return Contents(signature, types, nodes, [numbers[v] for v in end.operands]), operations


def write_function(function: Any, contents: Contents) -> list[Operation]:
    """Replaces what the op of a function holds by these contents. Returns the op of each node."""
    operation = function.operation
    (block,) = operation.regions[0].blocks
    with operation.context, ir.Location.unknown():
        for old in reversed(list(block.operations)):
            old.operation.erase()
        for number in reversed(range(len(block.arguments))):
            block.erase_argument(number)
        writer = _Writer(contents)
        for key in ("arg_attrs", "res_attrs"):
            if key in operation.attributes:
                del operation.attributes[key]
        for key, attribute in writer.signature().items():
            operation.attributes[key] = attribute
        return writer.fill(block)


class _Writer:
    """Writes one function. What many nodes share is converted once."""

    def __init__(self, contents: Contents) -> None:
        self._signature, self._types, self._nodes, self._returned = contents
        mlir_types = {key: ir.Type.parse(t.mlir) for key, t in zip(map(id, self._types), self._types, strict=True)}
        self._mlir_types: list[Any] = [mlir_types[id(t)] for t in self._types]
        self._shared: dict[int, Attribute] = {}
        """The attributes of lists of shardings, by identity of the list; the records keep the lists alive."""

    def signature(self) -> dict[str, Attribute]:
        taken = self._mlir_types[: len(self._signature.arguments)]
        type_ = ir.FunctionType.get(taken, [self._mlir_types[v] for v in self._returned])
        return {"function_type": ir.TypeAttr.get(type_), **self._signature.attributes()}

    def fill(self, block: Any) -> list[Operation]:
        signature, types = self._signature, self._mlir_types
        values: list[Value] = [
            block.add_argument(type_, at) for type_, at in zip(types, signature.locations, strict=False)
        ]
        end = ir.InsertionPoint(block)
        operations: list[Operation] = []
        for node in self._nodes:
            made = node.op.op_class.create(
                ip=end,
                loc=node.op.location,
                operands=[values[v] for v in node.operands],
                results=types[node.results.start : node.results.stop],
                **self._fields(node.op),
            )
            values += made.results
            operations.append(made.operation)
        func.ReturnOp([values[v] for v in self._returned], loc=signature.end, ip=end)
        return operations

    def _fields(self, op: NodeRecord) -> dict[str, Any]:
        found = op.values()
        for name in pw.SHARDING_FIELDS & found.keys():
            shardings = found[name]
            if id(shardings) not in self._shared:
                self._shared[id(shardings)] = pw.SHARDINGS.write(shardings)
            found[name] = self._shared[id(shardings)]
        return found
