"""Converts the instructions of a plan to ops of the compiler's IR and back, by the names of their fields.
`stream_ops.py` writes the ops, and `export.py` reads them.

A new instruction needs no code here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, cast, get_type_hints

from pathways.dialect.ir import pw
from pathways.dialect.ir.declare import SYMBOL, Kind, PwOp
from pathways.dialect.mlir import Attribute, ir, location, name_of, where_of
from pathways.dialect.plan.instructions import INSTRUCTIONS, Instruction, Refers

_LOCATION = ("name", "where")
"""Fields of an instruction that become the location of its op."""
_MOVED = "moved"
"""The name in the location of an instruction that has none."""
_OPS: dict[str, type[PwOp]] = {op.OPERATION_NAME: op for op in pw.OPS}
_CLASSES: dict[str, type[Instruction]] = {f"pw.{cls.KIND}": cls for cls in INSTRUCTIONS}


@dataclass(frozen=True)
class _Row:
    """A field of an instruction, and the matching attribute of its op."""

    name: str
    attribute: str
    table: str
    """The table into which the field is an index, or several indices. Empty: the field is a plain value."""
    default: Any
    required: bool
    kind: Kind[Any]

    @property
    def is_symbol(self) -> bool:
        return self.kind is SYMBOL


@cache
def _rows(cls: type[Instruction]) -> tuple[_Row, ...]:
    hints = get_type_hints(cls, include_extras=True)
    declared = _OPS[f"pw.{cls.KIND}"].fields()
    rows: list[_Row] = []
    for one in fields(cls):
        if one.name in _LOCATION:
            continue
        marks = getattr(hints[one.name], "__metadata__", ())
        refers = next((m for m in marks if isinstance(m, Refers)), Refers(""))
        attribute = refers.attribute or one.name
        default = None if one.default is MISSING else one.default
        field = declared[attribute]
        rows.append(_Row(one.name, attribute, refers.table, default, field.required, field.kind))
    return tuple(rows)


class InstructionWriter:
    """Writes instructions as ops. `symbols` maps table indices to symbols. Shared attributes are built once."""

    def __init__(self, context: Any, symbols: Mapping[str, Sequence[str]]) -> None:
        self._context = context
        self._symbols = symbols
        self._written: dict[str, Attribute] = {}
        self._unknown: Any = ir.Location.unknown()

    def write(self, instruction: Instruction, ip: Any) -> None:
        attributes: dict[str, Any] = {}
        for row in _rows(type(instruction)):
            value: Any = getattr(instruction, row.name)
            if row.table:
                value = _each(self._symbols[row.table].__getitem__, value)
            if not row.required and value == row.default:
                continue
            attributes[row.attribute] = self._symbol(value) if row.is_symbol else value
        _OPS[f"pw.{instruction.KIND}"].create(ip=ip, loc=self._location(instruction), **attributes)

    def _symbol(self, name: str) -> Attribute:
        if name not in self._written:
            self._written[name] = SYMBOL.write(name)
        return self._written[name]

    def _location(self, instruction: Instruction) -> Any:
        if not hasattr(instruction, "where"):
            return self._unknown
        return location(getattr(instruction, "where", None), getattr(instruction, "name", _MOVED), self._context)


def read_instruction(op: Any, numbers: Mapping[str, Mapping[str, int]]) -> Instruction:
    """Converts an op to its instruction. `numbers` holds the index of each symbol in its table."""
    cls: Any = _CLASSES[op.OPERATION_NAME]
    values: dict[str, Any] = {}
    attributes = op.operation.attributes
    for row in _rows(cls):
        value: Any = row.default
        if row.required or row.attribute in attributes:
            value = row.kind.read(attributes[row.attribute])
        if row.table:
            value = _each(numbers[row.table].__getitem__, value)
        values[row.name] = value
    if "where" in cls.__dataclass_fields__:
        values["where"] = where_of(op.operation)
    if "name" in cls.__dataclass_fields__:
        values["name"] = name_of(op.operation)
    return cls(**values)


def _each(look_up: Callable[[Any], Any], keys: Any) -> Any:
    """Looks up one key, or each key of a tuple."""
    if not isinstance(keys, tuple):
        return look_up(keys)
    return tuple(map(look_up, cast("tuple[Any, ...]", keys)))
