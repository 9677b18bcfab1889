"""Defines the nodes of a program as plain Python objects: calls, transfers and control flow. Each has the fields that
`pw.py` declares for its op. Front ends and passes make, read and change records, because access to MLIR is 10 times
slower.

`materialize.py` writes records as ops for code that asks for them. From then on until the pass ends, a record is
*linked*: it reads and writes the fields of its op. So a change of the record is visible in the op, and the reverse.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import NoneType
from typing import Any, ClassVar, cast

import numpy as np

from pathways.dialect.ir import pw
from pathways.dialect.ir.declare import Field, PwOp
from pathways.dialect.mlir import Operation, name_of


class NodeRecord:
    """One node: the fields of its op as Python values, None if absent, and the location of its op.

    The location has the name and the line that the user knows (`name_of` and `where_of` of mlir.py).
    """

    op_class: ClassVar[type[PwOp]]
    """The declaration of the op."""
    OPERATION_NAME: ClassVar[str]
    _required: ClassVar[tuple[str, ...]]
    _linked: ClassVar[type["NodeRecord"]]

    _names: ClassVar[frozenset[str]]
    """The attributes that may be set: a misspelled field is an error."""

    _owner: Any = None
    """The function that has this node."""
    _operation: Operation | None = None

    def __init__(self, location: Any, **fields: Any) -> None:
        self.location = location
        vars(self).update(fields)

    def __init_subclass__(cls, of: type[PwOp] | None = None) -> None:
        if of is None:  # a base of several kinds, or the linked form of one
            return
        cls.op_class = of
        cls.OPERATION_NAME = of.OPERATION_NAME  # pyright: ignore[reportConstantRedefinition]
        for name in of.fields():
            setattr(cls, name, None)
        cls._required = tuple(name for name, field in of.fields().items() if field.required)
        cls._names = _OWN | of.fields().keys()
        cls._linked = type(f"Linked{cls.__name__}", (cls,), {**of.fields()})

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the op, such as `operands`, for code that takes this record for the op itself."""
        if name in _OF_OPERATIONS:
            return getattr(self.operation, name)
        raise AttributeError(f"{self.OPERATION_NAME} has no field {name}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._names:
            raise AttributeError(f"{self.OPERATION_NAME} has no field {name}")
        object.__setattr__(self, name, value)

    def update(self, **fields: Any) -> None:
        """Writes several fields."""
        if self._operation is None and fields.keys() <= self._names:
            vars(self).update(fields)
            return
        for name, value in fields.items():
            setattr(self, name, value)

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The class of its op, so that `isinstance(node.op, pw.CallOp)` holds. `type` returns that of the record."""
        return self.op_class

    def __repr__(self) -> str:
        return f"<{self.OPERATION_NAME} {self.values()}>"

    def values(self) -> dict[str, Any]:
        """Returns the fields that are present, by name."""
        present = {name: getattr(self, name) for name in self.op_class.fields()}
        return {name: value for name, value in present.items() if value is not None and value is not False}

    @property
    def operation(self) -> Operation:
        """The op of this node. The first use writes the whole program as ops; from then on ops and records agree."""
        if self._operation is None:
            self._owner.link()
        return self._operation

    @property
    def is_linked(self) -> bool:
        return self._operation is not None

    def belong_to(self, owner: Any) -> None:
        """Stores the function that has this node."""
        vars(self)["_owner"] = owner

    def link(self, operation: Operation) -> None:
        """From now on reads and writes the fields of this op."""
        vars(self).update(_operation=operation)
        _set_class(self, self._linked)

    def unlink(self) -> None:
        """Copies the fields of the op into the record, which from then on has no op."""
        if self._operation is not None:
            location, owner, fields = self.location, self._owner, fields_of(self._operation.opview)
            _set_class(self, KINDS[self.OPERATION_NAME])
            vars(self).clear()
            vars(self).update(fields, location=location, _owner=owner)

    def copy(self) -> "NodeRecord":
        """Returns a record of its own with the same fields, and without an op."""
        if self._operation is not None:
            return KINDS[self.OPERATION_NAME](self.location, **fields_of(self._operation.opview))
        made = type(self).__new__(type(self))
        vars(made).update(vars(self))
        return made

    def problems(self, names: frozenset[str] | None) -> Iterator[str]:
        """Yields the ways in which the named fields (None: all) break the declaration of the op.

        Lists become tuples, and integers of NumPy become integers of Python.
        """
        fields, own = self.op_class.fields(), vars(self)
        for name in list(own) if names is None else names & own.keys():
            value = own[name]
            if value is None or name in _OWN:
                continue
            if isinstance(value, list):
                value = own[name] = tuple(cast("list[Any]", value))
            elif isinstance(value, np.integer):
                value = own[name] = int(cast("Any", value))
            if not fields[name].kind.holds(value):
                yield f"has {name} = {value!r}, which is not of kind {fields[name].kind.name}"
        for name in self._required:
            if own.get(name) is None:
                yield f"lacks the attribute {name} ({fields[name].doc})"


_set_class: Any = vars(object)["__class__"].__set__
_OWN = frozenset({"location", "_owner", "_operation"})
"""Attributes of a record that are not fields of its op."""
_OF_OPERATIONS = frozenset({"operands", "results", "result", "attributes", "regions", "parent", "block", "context"})
"""Attributes of an op that a record has, too."""


class CallRecord(NodeRecord, of=pw.CallOp):
    """One run of one computation (`pw.call`)."""


class TransferRecord(NodeRecord, of=pw.TransferOp):
    """A move of a value (`pw.transfer`)."""


class ControlFlowRecord(NodeRecord):
    """Control flow on data. Base of `CondRecord` and `WhileRecord`."""

    bodies: tuple[str, ...]
    meshes: tuple[str, ...]


class CondRecord(ControlFlowRecord, of=pw.CondOp):
    """Runs one of several bodies (`pw.cond`)."""


class WhileRecord(ControlFlowRecord, of=pw.WhileOp):
    """Runs a body repeatedly (`pw.while`)."""


def shown_name(op: NodeRecord) -> str:
    """Names a node in a message: as the user does, or by its computation or kind if the IR has no name."""
    return name_of(op) or unnamed(op)


def unnamed(op: Any) -> str:
    """Returns the name of a node that has none in the IR: its computation or its kind."""
    return op.callee if isinstance(op, CallRecord) else op.OPERATION_NAME


KINDS: Mapping[str, type[NodeRecord]] = {
    cls.OPERATION_NAME: cls for cls in (CallRecord, TransferRecord, CondRecord, WhileRecord)
}
"""The class of the records of each op, by the op's name."""


def are_sound(records: Iterable[NodeRecord], names: frozenset[str] | None) -> bool:
    """Whether no record has `problems`. Checks values that records share once."""
    owns: dict[type[NodeRecord], list[dict[str, Any]]] = {}
    for record in records:
        owns.setdefault(type(record), []).append(vars(record))
    for kind, fields in owns.items():
        present = set[str]().union(*fields)
        if not present <= _OWN | kind.op_class.fields().keys():
            return False
        for name, field in kind.op_class.fields().items():
            if field.required or (name in present and (names is None or name in names)):
                found = [own.get(name) for own in fields]
                classes = set(map(type, found))
                if field.required and NoneType in classes:
                    return False
                if not classes <= {NoneType, field.kind.every}:
                    different = dict(zip(map(id, found), found, strict=True)).values()
                    if not all(value is None or field.kind.holds(value) for value in different):
                        return False
    return True


def fields_of(op: PwOp) -> dict[str, Any]:
    """Reads the fields of an op that are present, as Python values."""
    declared: Mapping[str, Field[Any]] = op.fields()
    attributes = op.operation.attributes
    return {name: field.kind.read(attributes[name]) for name, field in declared.items() if name in attributes}
