"""Frozen dataclasses to protobuf messages and back, by the names of their fields.

The schema is plan.proto, compiled to plan.binpb (`make proto`). Messages are made from the compiled schema at run
time, so that no generated code ties users to one version of protobuf.
"""

from importlib import resources
from typing import Any, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from pathways.dialect import plan as nouns
from pathways.dialect.diagnostics import Where
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.ranges import read_ranges, write_ranges
from pathways.dialect.signature import Parameter
from pathways.dialect.topology import Island, Topology
from pathways.dialect.trees import read_tree, write_tree

__all__ = ["CLASSES", "OUTSIDE", "DecodeError", "decode_plan", "encode_plan", "schema"]


_TREES = frozenset({"in_tree", "out_tree"})
_RANGES = frozenset({("PlanSlice", "devices"), ("PlanMesh", "devices")})


def _load_schema() -> Any:
    raw = resources.files("pathways.dialect").joinpath("plan.binpb").read_bytes()
    files = descriptor_pb2.FileDescriptorSet.FromString(raw)
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("pathways.plan.v1.Plan"))


_PLAN: Any = _load_schema()

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
            nouns.Schedule,
        ),
        *(nouns.Run, nouns.Send, nouns.Recv, nouns.Copy, nouns.Free, nouns.Branch),
        *(nouns.ConstantData, nouns.Body, nouns.Plan),
        *(Where, ArrayType, Island, Topology, Parameter),
    )
}
OUTSIDE = frozenset({"module", "constants", "phases", "executables", "local"})
"""Fields whose bytes are members of the file of their own."""


def schema() -> dict[str, Any]:
    """The descriptors of all messages, by name."""
    return dict(_PLAN.DESCRIPTOR.file.message_types_by_name)


def encode_plan(plan: nouns.Plan) -> bytes:
    message = _PLAN()
    _encode(plan, message)
    return message.SerializeToString(deterministic=True)


def decode_plan(
    raw: bytes,
    modules: dict[str, bytes],
    locals: dict[str, bytes],
    constants: dict[str, bytes],
    phases: dict[str, bytes],
    executables: dict[str, bytes],
) -> nouns.Plan:
    """Raises `DecodeError` for what is not a plan message; missing modules raise KeyError."""
    message = _PLAN.FromString(raw)
    return _decode(
        message,
        {"modules": modules, "locals": locals, "constants": constants, "phases": phases, "executables": executables},
    )


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
            target = getattr(message, type(value).__name__.lower())
            target.SetInParent()
            _encode(value, target)
        case _:
            _encode(value, message)


def _decode(message: Any, members: dict[str, Any]) -> Any:
    kind: str = message.DESCRIPTOR.name
    match kind:
        case "Dims":
            return tuple(tuple(dim.axes) for dim in message.dims)
        case "Axis":
            return (message.name, message.size)
        case "Instruction":
            chosen = message.WhichOneof("kind")
            if chosen is None:
                raise DecodeError("an instruction of no known kind")
            return _decode(getattr(message, chosen), members)
        case _:
            pass
    fields: dict[str, Any] = {f.name: _decode_field(message, f, members) for f in message.DESCRIPTOR.fields}
    if kind == "Computation":
        fields["module"] = members["modules"][fields["name"]]
        fields["local"] = members["locals"].get(fields["name"], b"")
    if kind == "Plan":
        fields |= {name: members[name] for name in ("constants", "phases", "executables")}
    return CLASSES[kind](**fields)


def _decode_field(message: Any, field: Any, members: dict[str, Any]) -> Any:
    content = getattr(message, field.name)
    if (message.DESCRIPTOR.name, field.name) in _RANGES:
        return read_ranges(content)
    if field.is_repeated:
        items = cast("list[Any]", content)
        return tuple(items) if field.message_type is None else tuple(_decode(i, members) for i in items)
    if field.message_type is not None:
        if not message.HasField(field.name):
            if field.name == "where":
                return None
            raise DecodeError(f"{message.DESCRIPTOR.name} lacks {field.name}")
        return _decode(content, members)
    if field.name in _TREES:
        return read_tree(content)
    if field.has_presence and not message.HasField(field.name):
        return None
    return content
