"""Tests that the messages of ifrt.proto are those of the installed jaxlib. A new jaxlib that differs fails here."""

import mmap
from pathlib import Path
from typing import Any

import jaxlib
import pytest
from google.protobuf import descriptor_pb2

from pathways.ifrt_proxy.protocol import MESSAGES

FILES = (
    "xla/python/ifrt_proxy/common/grpc_ifrt_service.proto",
    "xla/python/ifrt_proxy/common/ifrt_service.proto",
    "xla/python/ifrt/array_spec.proto",
    "xla/python/ifrt/device.proto",
    "xla/python/ifrt/dtype.proto",
    "xla/python/ifrt/execute_options.proto",
    "xla/python/ifrt/layout.proto",
    "xla/python/ifrt/serdes.proto",
    "xla/python/ifrt/shape.proto",
    "xla/python/ifrt/sharding.proto",
    "xla/python/ifrt/sharding_serdes.proto",
    "xla/python/pjrt_ifrt/xla_compiler.proto",
    "xla/python/pjrt_ifrt/xla_sharding.proto",
    "xla/pjrt/proto/compile_options.proto",
    "xla/xla_data.proto",
)
_OPAQUE = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
_ENUM, _NUMBER = descriptor_pb2.FieldDescriptorProto.TYPE_ENUM, descriptor_pb2.FieldDescriptorProto.TYPE_INT32
_MESSAGE = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE


def _varint(data: Any, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if not byte & 128:
            return value, at


def _embedded(data: Any, name: str) -> descriptor_pb2.FileDescriptorProto:
    """Reads the descriptor of one .proto file that a shared library embeds: it begins with the name of the file."""
    begin = b"\x0a" + bytes([len(name)]) + name.encode()
    best = descriptor_pb2.FileDescriptorProto()
    start = data.find(begin)
    while start >= 0:
        at = start
        try:
            while True:  # the top-level fields of a FileDescriptorProto
                tag, after = _varint(data, at)
                if tag >> 3 not in range(1, 16) or tag & 7 not in (0, 2):
                    break
                size, after = _varint(data, after)
                at = after + (size if tag & 7 == 2 else 0)
                if tag >> 3 == 12:  # the syntax is the last field
                    break
            found = descriptor_pb2.FileDescriptorProto.FromString(bytes(data[start:at]))
        except Exception:
            found = best
        best = max(best, found, key=lambda one: one.ByteSize())
        start = data.find(begin, start + 1)
    return best


@pytest.fixture(scope="module")
def of_jaxlib() -> dict[str, Any]:
    """The messages of jaxlib by their name without the package."""
    library = Path(jaxlib.__file__).parent / "libjax_common.so"
    found: dict[str, Any] = {}
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for name in FILES:
            described = _embedded(data, name)
            assert described.message_type, f"{name} is not in jaxlib"
            _collect("", described.message_type, found)
    return found


def _collect(prefix: str, messages: Any, into: dict[str, Any]) -> None:
    for message in messages:
        into.setdefault(f"{prefix}{message.name}", message)
        _collect(f"{prefix}{message.name}.", message.nested_type, into)


def _ours() -> dict[str, Any]:
    found: dict[str, Any] = {}
    described = descriptor_pb2.FileDescriptorProto()
    MESSAGES["IfrtRequest"].DESCRIPTOR.file.CopyToProto(described)
    _collect("", described.message_type, found)
    return found


def test_every_field_has_the_number_and_type_of_the_installed_jaxlib(of_jaxlib: dict[str, Any]) -> None:
    compared = 0
    for name, ours in _ours().items():
        theirs = of_jaxlib.get(name)
        if theirs is None:
            continue
        fields = {field.name: field for field in theirs.field}
        for field in ours.field:
            other = fields.get(field.name)
            if other is None:  # of another version of jaxlib
                assert field.number not in {f.number for f in theirs.field}, f"{name}.{field.name}"
                continue
            compared += 1
            assert (field.number, field.label) == (other.number, other.label), f"{name}.{field.name}"
            same = field.type == other.type or (field.type, other.type) in ((_OPAQUE, _MESSAGE), (_NUMBER, _ENUM))
            assert same, f"{name}.{field.name}"
    assert compared > 200


def test_every_request_of_the_installed_jaxlib_is_known(of_jaxlib: dict[str, Any]) -> None:
    known = {field.name for field in _ours()["IfrtRequest"].field}
    assert {field.name for field in of_jaxlib["IfrtRequest"].field} <= known
