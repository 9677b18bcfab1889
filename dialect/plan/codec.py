"""Converts the dataclasses of a plan to protobuf messages and back, by the names of their fields. `plan_file.py` calls
it when it writes or reads a plan file.

The schema is plan.proto, compiled to plan.binpb (`make proto`).
"""

from collections.abc import Callable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError

from pathways.dialect.diagnostics import Where
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.pieces import LeafPiece
from pathways.dialect.plan import nouns as nouns
from pathways.dialect.plan.instructions import INSTRUCTIONS
from pathways.dialect.plan.signature import Parameter
from pathways.dialect.printable import printable
from pathways.dialect.protos import load_messages
from pathways.dialect.ranges import RangeReader, write_ranges
from pathways.dialect.schedule_figures import Schedule
from pathways.dialect.topology import Island, Topology
from pathways.dialect.trees import read_tree, write_tree

__all__ = [
    "CLASSES",
    "NOT_STORED",
    "OUTSIDE",
    "DecodeError",
    "decode_plan",
    "encode_plan",
    "plan_message",
    "schema",
]


_TREES = frozenset({"in_tree", "out_tree"})
_RANGES = frozenset({("PlanSlice", "devices"), ("PlanMesh", "devices")})


_MESSAGES = load_messages("pathways.dialect.plan", "plan.binpb")
_PLAN: Any = _MESSAGES["Plan"]

CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        *(
            nouns.PlanSlice,
            nouns.Decision,
            nouns.PlanMesh,
            nouns.Layout,
            nouns.BufferKind,
            nouns.Buffers,
            nouns.Stream,
            nouns.Computation,
            nouns.Port,
            Schedule,
        ),
        *INSTRUCTIONS,
        *(nouns.ConstantData, nouns.Body, nouns.Plan),
        *(Where, ArrayType, Island, Topology, Parameter, LeafPiece),
    )
}
OUTSIDE = frozenset({"module", "constants", "phases", "executables", "local"})
"""Fields whose bytes are separate members of the plan file."""
NOT_STORED = frozenset({"here", "marked"})
"""Fields that are not stored, because they have a meaning in this process only."""


def schema() -> dict[str, Any]:
    """Returns the descriptors of all messages, by name."""
    return {name: message.DESCRIPTOR for name, message in _MESSAGES.items()}


def plan_message(raw: bytes = b"") -> Any:
    """Parses a plan as a protobuf message. Raises `DecodeError` for other bytes."""
    return _PLAN.FromString(raw)


def encode_plan(plan: nouns.Plan) -> bytes:
    message = plan_message()
    _encode(plan, message)
    return message.SerializeToString(deterministic=True)


def decode_plan(
    raw: bytes,
    modules: dict[str, bytes],
    locals: dict[str, bytes],
    constants: dict[str, bytes],
    phases: dict[str, bytes],
    executables: dict[str, bytes],
    files: Mapping[str, str] = MappingProxyType({}),
) -> nouns.Plan:
    """Decodes a plan. Raises `DecodeError` for bytes that are no plan message, and KeyError for missing modules.

    `files` has the path on this machine of each file that source lines name, if it is known.
    All texts are made printable (printable.py), except trees, whose keys are data, and the names of members.
    """
    message = plan_message(raw)
    members = {
        "modules": modules, "locals": locals, "constants": constants, "phases": phases, "executables": executables,
    }  # fmt: skip
    return _Decoder(members, files).decode(message)


def _encode(value: Any, message: Any) -> None:
    for field in message.DESCRIPTOR.fields:
        content: Any = getattr(value, field.name)
        if content is None:
            continue
        if field.name in _TREES:
            content = write_tree(content)
        if (message.DESCRIPTOR.name, field.name) in _RANGES:
            content = write_ranges(content)
        if field.is_repeated:
            target = getattr(message, field.name)
            if field.message_type is None:
                target.extend(content)
                continue
            for item in content:
                _encode_message(item, field.message_type.name, target.add())
        elif field.message_type is not None:
            target = getattr(message, field.name)
            target.SetInParent()
            _encode_message(content, field.message_type.name, target)
        else:
            setattr(message, field.name, content)


def _encode_message(value: Any, kind: str, message: Any) -> None:
    match kind:
        case "Dims":
            for axes in value:
                message.dims.add().axes.extend(axes)
        case "Axis":
            message.name, message.size = value
        case "Instruction":
            target = getattr(message, value.KIND)
            target.SetInParent()
            _encode(value, target)
        case _:
            _encode(value, message)


class _Decoder:
    """Decodes the messages of one plan. The reader of a message type is built once and reused."""

    def __init__(self, members: dict[str, dict[str, bytes]], files: Mapping[str, str]) -> None:
        self._members = members
        self._files = files
        self._ranges = RangeReader()
        self._readers: dict[str, _Read] = {"Dims": _read_dims, "Axis": _read_axis}

    def decode(self, message: Any) -> Any:
        return self._reader(message.DESCRIPTOR)(message)

    def _reader(self, kind: Any) -> "_Read":
        """Returns the function that converts messages of a type, given by descriptor, to dataclass objects."""
        name: str = kind.name
        if name not in self._readers:
            self._readers[name] = self._one_of(kind) if name == "Instruction" else self._noun(kind)
        return self._readers[name]

    def _one_of(self, kind: Any) -> "_Read":
        readers = {field.name: self._reader(field.message_type) for field in kind.fields}

        def read(message: Any) -> Any:
            chosen = message.WhichOneof("kind")
            if chosen is None:
                raise DecodeError("an instruction of an unknown kind")
            return readers[chosen](getattr(message, chosen))

        return read

    def _noun(self, kind: Any) -> "_Read":
        made = CLASSES[kind.name]
        fields = [(field.name, self._field(kind.name, field)) for field in kind.fields]
        fields += self._outside(kind.name)

        def read(message: Any) -> Any:
            return made(**{name: take(message) for name, take in fields})

        return _once_of_equal(read) if kind.name == "Where" else read

    def _outside(self, kind: str) -> "list[tuple[str, _Read]]":
        """Lists the fields that are not in the message but in members of the plan file, with their readers."""
        members = self._members
        if kind == "Computation":
            modules, local = members["modules"], members["locals"]
            return [("module", lambda m: modules[m.name]), ("local", lambda m: local.get(m.name, b""))]
        if kind == "Plan":
            return [(name, lambda _, name=name: members[name]) for name in ("constants", "phases", "executables")]
        if kind == "Where" and self._files:
            return [("here", lambda m: self._files.get(m.file, ""))]
        return []

    def _field(self, kind: str, field: Any) -> "_Read":
        get = attrgetter(field.name)
        is_text = field.type == field.TYPE_STRING
        if (kind, field.name) in _RANGES:
            return lambda m: self._ranges.read(get(m))
        if field.is_repeated:
            if field.message_type is not None:
                read = self._reader(field.message_type)
                return lambda m: tuple([read(one) for one in get(m)])
            return (lambda m: tuple(map(printable, get(m)))) if is_text else (lambda m: tuple(get(m)))
        if field.message_type is not None:
            return self._nested(kind, field)
        if field.name in _TREES:
            return lambda m: read_tree(get(m))
        stated: _Read = (lambda m: printable(get(m))) if is_text else get
        if field.has_presence:
            return lambda m: stated(m) if m.HasField(field.name) else None
        return stated

    def _nested(self, kind: str, field: Any) -> "_Read":
        name, read = field.name, self._reader(field.message_type)

        def nested(message: Any) -> Any:
            if message.HasField(name):
                return read(getattr(message, name))
            if name in ("where", "piece"):
                return None
            raise DecodeError(f"{kind} lacks {name}")

        return nested


_Read: TypeAlias = Callable[[Any], Any]


def _once_of_equal(read: _Read) -> _Read:
    """Caches a reader by message bytes: many instructions have the same source line."""
    known: dict[bytes, Any] = {}

    def recall(message: Any) -> Any:
        raw = message.SerializeToString()
        found = known.get(raw)
        if found is None:
            found = known[raw] = read(message)
        return found

    return recall


def _read_dims(message: Any) -> Any:
    return tuple([tuple(map(printable, dim.axes)) for dim in message.dims])


def _read_axis(message: Any) -> Any:
    return printable(message.name), message.size
