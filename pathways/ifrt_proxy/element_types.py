"""Converts element types between the IFRT proxy protocol and this project's names."""

from typing import Any

from pathways.dialect.diagnostics import PathwaysError
from pathways.ifrt_proxy.errors import RequestRefused
from pathways.ifrt_proxy.protocol import MESSAGES

_KINDS = {
    1: "bool",
    26: "int2",
    21: "int4",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    27: "uint2",
    22: "uint4",
    6: "uint8",
    7: "uint16",
    8: "uint32",
    9: "uint64",
    10: "float16",
    11: "float32",
    12: "float64",
    16: "bfloat16",
    15: "complex64",
    18: "complex128",
    29: "float8_e3m4",
    28: "float8_e4m3",
    20: "float8_e4m3fn",
    23: "float8_e4m3b11fnuz",
    25: "float8_e4m3fnuz",
    19: "float8_e5m2",
    24: "float8_e5m2fnuz",
    31: "float8_e8m0fnu",
    30: "float4_e2m1fn",
}
_NUMBERS = {name: number for number, name in _KINDS.items()}
_DType: Any = MESSAGES["DTypeProto"]


def read_dtype(message: Any) -> str:
    """Returns the name of an element type. Raises PWC0940 for types without arrays here, such as strings."""
    if message.kind not in _KINDS:
        have = f"an array of element type {_DType.Kind.Name(message.kind)}"
        raise PathwaysError(RequestRefused(what="an array", have_=have, rule=f"one of {', '.join(_NUMBERS)}"))
    return _KINDS[message.kind]


def write_dtype(name: str, into: Any) -> None:
    """Writes an element type into a DTypeProto."""
    into.kind = _NUMBERS[name]
