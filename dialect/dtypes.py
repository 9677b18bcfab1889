"""Converts element types between JAX's names, MLIR's spelling and numpy, and knows their sizes. It also defines
`ArrayType`, the shape and element type of an array. All layers use it.

A `dtype` string is the result of `str(aval.dtype)`: `float32`, `bfloat16`, `float8_e4m3fn`, `int4`, `bool`, `key<fry>`,
`float0`. A PRNG key is stored as its data: `key<fry>[n]` is `uint32[n, 2]`.
"""

import functools
import math
from dataclasses import dataclass
from typing import Any, cast

import ml_dtypes
import numpy as np

from pathways.dialect.memo import remembered
from pathways.dialect.sharding import Shape

_MLIR = {
    "i1": "bool",
    "i2": "int2",
    "i4": "int4",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "ui2": "uint2",
    "ui4": "uint4",
    "ui8": "uint8",
    "ui16": "uint16",
    "ui32": "uint32",
    "ui64": "uint64",
    "bf16": "bfloat16",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "f4E2M1FN": "float4_e2m1fn",
    "f8E3M4": "float8_e3m4",
    "f8E4M3": "float8_e4m3",
    "f8E4M3FN": "float8_e4m3fn",
    "f8E4M3FNUZ": "float8_e4m3fnuz",
    "f8E4M3B11FNUZ": "float8_e4m3b11fnuz",
    "f8E5M2": "float8_e5m2",
    "f8E5M2FNUZ": "float8_e5m2fnuz",
    "f8E8M0FNU": "float8_e8m0fnu",
    "complex<f32>": "complex64",
    "complex<f64>": "complex128",
}
_TO_MLIR = {name: element for element, name in _MLIR.items()}


@dataclass(frozen=True, slots=True)
class ArrayType:
    """Shape and stored element type of one array."""

    shape: Shape
    dtype: str

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * itemsize(self.dtype)

    def shard_bytes(self, shape: Shape) -> int:
        return math.prod(shape) * itemsize(self.dtype)

    @property
    def mlir(self) -> str:
        dims = "".join(f"{d}x" for d in self.shape)
        return f"tensor<{dims}{_TO_MLIR[self.dtype]}>"

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Returns the numpy type of `name`. Raises TypeError for a name that neither numpy nor ml_dtypes knows."""
    extended = getattr(ml_dtypes, name, None)
    return np.dtype(name if extended is None else extended)


def stored_names() -> tuple[str, ...]:
    """Lists the element types in which arrays are stored."""
    return tuple(_TO_MLIR)


def native(value: Any) -> Any:
    """Converts a numpy array to this machine's byte order; returns any other value unchanged."""
    if not isinstance(value, np.ndarray):
        return value
    array = cast("np.ndarray[Any, Any]", value)
    return array if array.dtype.isnative or array.dtype.hasobject else array.astype(array.dtype.newbyteorder("="))


def is_stored_as_named(name: str) -> bool:
    return name in _TO_MLIR


def is_of_numpy(dtype: "np.dtype[Any]") -> bool:
    """Returns whether .npy files keep this type: types of ml_dtypes become raw bytes, and float8_e5m2 is unreadable."""
    return dtype.type.__module__ == "numpy"


@functools.cache
def itemsize(name: str) -> int:
    return numpy_dtype(name).itemsize


def is_array_type(type_: Any) -> bool:
    """Returns whether `from_mlir` can read a type."""
    ranked = type(type_).__name__ == "RankedTensorType"
    return ranked and type_.has_static_shape and str(type_.element_type) in _MLIR


@remembered
def from_mlir(type_: Any) -> ArrayType:
    """Reads a ranked tensor type with static dimensions."""
    return shared_type(tuple(type_.shape), _MLIR[str(type_.element_type)])


@functools.lru_cache(1 << 14)
def shared_type(shape: Shape, dtype: str) -> ArrayType:
    """Makes a type, and returns the same object for most equal ones: hundreds of thousands of types are compared."""
    return ArrayType(shape, dtype)
