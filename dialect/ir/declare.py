"""Provides a way to declare MLIR ops as Python classes, with one field for each attribute. A declaration gives the op's
attribute access, construction, verification and documentation. `pw.py` declares the `pw` dialect with it.

jaxlib has no IRDL, so these ops are unregistered in C++: MLIR stores, prints and parses them, and everything else about
them is in Python. MLIR's own Python-defined dialects use the same style: a class with one field for each operand,
attribute or result. Never attach a trait or an interface to such an op: that crashes the process.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar, cast, overload

from pathways.dialect.memo import remembered
from pathways.dialect.mlir import Attribute, Operation, Value, ir

_T = TypeVar("_T")


@dataclass(frozen=True)
class Kind(Generic[_T]):
    """Converts a Python value to an MLIR attribute and back."""

    name: str
    write: Callable[[_T], Attribute]
    read: Callable[[Attribute], _T]
    accepts: Callable[[Attribute], bool]
    holds: Callable[[Any], bool]
    """Whether a Python value is of this kind."""
    every: type | None = None
    """A class of which each value is of this kind; subclasses do not count."""


def _is(cls: str) -> Callable[[Attribute], bool]:
    kind = getattr(ir, cls)
    return lambda a: isinstance(a, kind)


def is_tuple_of(cls: type) -> Callable[[Any], bool]:
    """Returns a check of Python values: whether a value is a tuple of instances of a class."""
    return lambda v: isinstance(v, tuple) and all(isinstance(e, cls) for e in cast("tuple[Any, ...]", v))


def _is_a(*classes: type) -> Callable[[Any], bool]:
    return lambda v: isinstance(v, classes) and not isinstance(v, bool)


def _is_int64(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63


def _are_int64(values: Any) -> bool:
    if not isinstance(values, tuple):
        return False
    numbers = cast("tuple[Any, ...]", values)
    if {int}.issuperset(map(type, numbers)):  # ten times quicker than to ask each
        return not numbers or (_is_int64(min(numbers)) and _is_int64(max(numbers)))
    return all(map(_is_int64, numbers))


def _write_int(value: int) -> Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


STRING = Kind[str]("string", lambda v: ir.StringAttr.get(v), lambda a: a.value, _is("StringAttr"), _is_a(str), str)
SYMBOL = Kind[str](
    "@symbol", lambda v: ir.FlatSymbolRefAttr.get(v), lambda a: a.value, _is("FlatSymbolRefAttr"), _is_a(str), str
)
INTEGER = Kind[int]("integer", _write_int, lambda a: a.value, _is("IntegerAttr"), _is_int64)
NUMBER = Kind[float](
    "number", lambda v: ir.FloatAttr.get_f64(v), lambda a: a.value, _is("FloatAttr"), _is_a(int, float)
)
FLAG = Kind[bool](
    "unit", lambda _: ir.UnitAttr.get(), lambda _: True, _is("UnitAttr"), lambda v: isinstance(v, bool), bool
)
INTEGERS = Kind[tuple[int, ...]](
    "integers",
    lambda v: ir.DenseI64ArrayAttr.get(list(v)),
    remembered(lambda a: tuple(a)),
    _is("DenseI64ArrayAttr"),
    _are_int64,
)


class Field(Generic[_T]):
    """A required attribute of an op. Reading it returns the Python value."""

    required = True

    def __init__(self, kind: Kind[_T], doc: str) -> None:
        self.kind = kind
        self.doc = doc
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, op: None, owner: type) -> Self: ...
    @overload
    def __get__(self, op: "PwOp", owner: type) -> _T: ...
    def __get__(self, op: "PwOp | None", owner: type) -> Self | _T:
        if op is None:
            return self
        return self.kind.read(op.operation.attributes[self.name])

    def __set__(self, op: "PwOp", value: _T) -> None:
        with op.operation.context:
            op.operation.attributes[self.name] = self.kind.write(value)


class OptionalField(Field[Any], Generic[_T]):
    """An attribute that may be absent. Reading it then returns None, and writing None removes it."""

    required = False

    def __init__(self, kind: Kind[_T], doc: str) -> None:
        super().__init__(kind, doc)

    @overload
    def __get__(self, op: None, owner: type) -> Self: ...
    @overload
    def __get__(self, op: "PwOp", owner: type) -> _T | None: ...
    def __get__(self, op: "PwOp | None", owner: type) -> Self | _T | None:
        if op is None:
            return self
        attributes = op.operation.attributes
        return self.kind.read(attributes[self.name]) if self.name in attributes else None

    def __set__(self, op: "PwOp", value: _T | None) -> None:
        if value is not None and value is not False:
            super().__set__(op, value)
        elif self.name in op.operation.attributes:
            del op.operation.attributes[self.name]


@dataclass(frozen=True)
class Arity:
    """The number of operands, results or regions of an op; None: any number."""

    count: int | None
    doc: str = ""

    def __str__(self) -> str:
        return "any number" if self.count is None else str(self.count)


_FIELDS: dict[type, dict[str, Field[Any]]] = {}
"""Cache of the fields of each op class."""


class PwOp(ir.OpView):
    """Base class of all ops. Subclasses state OPERATION_NAME, their arities and their fields."""

    OPERATION_NAME: ClassVar[str]
    _ODS_REGIONS: ClassVar[tuple[int, bool]] = (0, True)
    operands_: ClassVar[Arity] = Arity(0)
    results_: ClassVar[Arity] = Arity(0)
    regions_: ClassVar[Arity] = Arity(0)

    operation: Operation
    operands: Sequence[Value]
    results: Sequence[Value]

    @classmethod
    def fields(cls) -> dict[str, Field[Any]]:
        if cls not in _FIELDS:
            found: dict[str, Any] = {}
            for base in reversed(cls.__mro__):
                found.update(cast("dict[str, Any]", vars(base)))
            _FIELDS[cls] = {n: f for n, f in found.items() if isinstance(f, Field)}
        return _FIELDS[cls]

    @classmethod
    def create(
        cls,
        *,
        ip: Any,
        loc: Any,
        operands: Iterable[Value] = (),
        results: Iterable[Any] = (),
        **attributes: Any,
    ) -> Self:
        """Builds the op; `attributes` are Python values of its fields, or MLIR attributes."""
        declared = cls.fields()
        written = {
            n: v if isinstance(v, ir.Attribute) else declared[n].kind.write(v)
            for n, v in attributes.items()
            if v is not None and v is not False
        }
        op = ir.Operation.create(
            cls.OPERATION_NAME,
            results=list(results),
            operands=list(operands),
            attributes=written,
            regions=cls.regions_.count or 0,
            loc=loc,
            ip=ip,
        )
        return op.opview

    def problems(self) -> list[str]:
        """Lists the ways in which this op breaks its own declaration. Rules between ops are in verify.py."""
        found: list[str] = []
        op, declared = self.operation, self.fields()
        for what, arity, have in (
            ("operands", self.operands_, len(op.operands)),
            ("results", self.results_, len(op.results)),
            ("regions", self.regions_, len(op.regions)),
        ):
            if arity.count is not None and have != arity.count:
                found.append(f"has {have} {what} in place of {arity.count}")
        attributes, known = op.attributes, 0
        for name, field in declared.items():
            if name not in attributes:
                if field.required:
                    found.append(f"lacks the attribute {name} ({field.doc})")
                continue
            known += 1
            if not field.kind.accepts(attributes[name]):
                found.append(_of_other_kind(name, attributes[name], field))
        if known < len(attributes):  # listing the names of all attributes takes as long as reading them
            found += [f"has an unknown attribute {n}" for n in attribute_names(op) if n not in declared]
        return found


def _of_other_kind(name: str, attribute: Attribute, field: Field[Any]) -> str:
    return f"has {name} = {attribute}, which is not of kind {field.kind.name}"


def attribute_names(op: Operation) -> list[str]:
    """Lists the names of an op's attributes. Iteration yields names in newer jaxlibs, and pairs in older ones."""
    return [a if isinstance(a, str) else a.name for a in op.attributes]
