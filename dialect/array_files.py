"""Reads and writes the large arrays of a `pw.save` snapshot, in Zarr format: one folder for each array, one file for
each chunk. Clients and hosts call it, each for the shards that it holds.

Several processes may write regions of one array at the same time. The format is Zarr 3, as TensorStore writes it:
uncompressed, with a checksum for each chunk. A chunk that is missing, truncated or changed is an error and never reads
as zeros. Element types that numpy does not know are stored as integers of their size.
"""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType, is_of_numpy, is_stored_as_named, numpy_dtype
from pathways.dialect.errors import CannotWrite, DamagedArray
from pathways.dialect.late_imports import import_late
from pathways.dialect.sharding import Box, Shape

MAX_CHUNK_BYTES = 1 << 26
"""The largest chunk in bytes, if the written regions can be cut that small. Small chunks: a reader reads whole ones."""
_MIN_CHUNK_BYTES = MAX_CHUNK_BYTES // 16
_MAX_CONCURRENT_WRITES = 4
"""The most chunks that one call writes at the same time, because each write waits for the disk."""
_NAME = re.compile(r"a\d{1,9}")
_FAILURES = (ValueError, OSError, RuntimeError)
"""Exceptions that TensorStore raises."""


@dataclass(frozen=True)
class ArrayFile:
    """One array in a folder of arrays: its name, its type, and the shape of its chunks.

    `within` is set if it describes only a region of the stored array: the stored shape, and the region's start.
    """

    name: str
    type: ArrayType
    chunk: Shape
    within: tuple[Shape, Shape] | None = None

    def as_json(self) -> dict[str, Any]:
        found = {"name": self.name, "dtype": self.type.dtype, "shape": self.type.shape, "chunk": self.chunk}
        return found | ({"within": self.within} if self.within is not None else {})

    def part(self, axis: int, start: int, size: int) -> "ArrayFile":
        """Returns `size` elements from `start` along an axis as an array of its own, for partial reads and writes."""
        shape, begin = list(self.type.shape), [0] * len(self.type.shape)
        shape[axis], begin[axis] = size, start
        return replace(self, type=ArrayType(tuple(shape), self.type.dtype), within=(self.type.shape, tuple(begin)))

    def create(self, folder: Path) -> None:
        """Creates the array on disk, without values. Raises PWC0606, also if it already exists."""
        self._open(folder, writing=True, create=True)

    def write(self, folder: Path, box: Box, values: "np.ndarray[Any, Any]") -> None:
        """Writes one region, which must begin and end at chunk boundaries. Raises PWC0606."""
        store = self._open(folder, writing=True)
        raw = np.asarray(values, order="C").view(_raw(self.type.dtype))
        under_way: deque[Any] = deque()
        try:
            for piece in pieces(box, self.chunk):
                if len(under_way) == _MAX_CONCURRENT_WRITES:
                    under_way.popleft().result()
                part = raw[tuple(slice(p - start, q - start) for (p, q), (start, _) in zip(piece, box, strict=True))]
                under_way.append(store[self._slices(piece)].write(part, can_reference_source_data_indefinitely=True))
            while under_way:
                under_way.popleft().result()
        except _FAILURES as error:
            raise self._cannot_write(folder, error) from None
        finally:
            for write in under_way:  # the caller may change the values after this function returns
                write.exception()

    def read(self, folder: Path, box: Box) -> "np.ndarray[Any, Any]":
        """Reads any region of the array. Raises PWC0615 if the data are damaged or missing."""
        store = self._open(folder, writing=False)
        try:
            found: np.ndarray[Any, Any] = store[self._slices(box)].read().result()
        except _FAILURES as error:
            raise self._damaged(folder, error) from None
        return found.view(numpy_dtype(self.type.dtype))

    @property
    def whole(self) -> Box:
        return tuple((0, n) for n in self.type.shape)

    def _open(self, folder: Path, *, writing: bool, create: bool = False) -> Any:
        """Opens the stored array. TensorStore compares the metadata given here with the stored metadata."""
        tensorstore: Any = import_late("tensorstore")  # slow to import, and most processes do not need it
        spec = {
            "driver": "zarr3",
            "kvstore": {"driver": "file", "path": f"{folder}/{self.name}/"},
            "metadata": self._metadata(),
            "store_data_equal_to_fill_value": True,
            "fill_missing_data_reads": False,
        }
        try:
            return tensorstore.open(spec, open=not create, create=create, read=not writing, write=writing).result()
        except _FAILURES as error:
            raise (self._cannot_write if writing else self._damaged)(folder, error) from None

    def _metadata(self) -> dict[str, Any]:
        element = _raw(self.type.dtype)
        return {
            "shape": list(self.type.shape if self.within is None else self.within[0]),
            "data_type": element.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(self.chunk)}},
            "chunk_key_encoding": {"name": "default"},
            "fill_value": {"b": False, "c": [0, 0]}.get(element.kind, 0),
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
        }

    def _slices(self, box: Box) -> tuple[slice, ...]:
        """Converts a box of this array to slices of the stored array."""
        begin = (0,) * len(box) if self.within is None else self.within[1]
        return tuple(slice(at + start, at + stop) for at, (start, stop) in zip(begin, box, strict=True))

    def _cannot_write(self, folder: Path, error: Exception) -> PathwaysError:
        rule = "free disk space, and a folder that no other process changes"
        return PathwaysError(CannotWrite(path=str(folder / self.name), problem=_text(error), rule=rule))

    def _damaged(self, folder: Path, error: Exception) -> PathwaysError:
        return PathwaysError(DamagedArray(name=self.name, folder=str(folder), problem=_text(error)))


def read_array_file(found: Any) -> ArrayFile:
    """Parses the output of `as_json`. Raises ValueError, KeyError or TypeError for anything else."""
    name, dtype = found["name"], found["dtype"]
    shape, chunk = (tuple(cast("list[int]", found[key])) for key in ("shape", "chunk"))
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"an array named {name!r}")
    if not isinstance(dtype, str) or not is_stored_as_named(dtype):
        raise ValueError(f"an array of {dtype!r}")
    if len(shape) != len(chunk) or not all(type(n) is int and n >= 0 for n in shape + chunk) or 0 in chunk:
        raise ValueError(f"an array of shape {shape} in chunks of {chunk}")
    return ArrayFile(name, ArrayType(shape, dtype), chunk, _within(found.get("within"), shape))


def _within(found: Any, shape: Shape) -> tuple[Shape, Shape] | None:
    """Parses `within`, for a region of this shape; checks that the region lies inside the stored array."""
    if found is None:
        return None
    whole, begin = (tuple(cast("list[int]", part)) for part in found)
    fits = len(whole) == len(begin) == len(shape) and all(type(n) is int for n in whole + begin)
    if not fits or not all(0 <= b <= b + n <= w for b, n, w in zip(begin, shape, whole, strict=True)):
        raise ValueError(f"an array of shape {shape} at {begin} in an array of shape {whole}")
    return whole, begin


def chunk_of(type_: ArrayType, part: Shape) -> Shape:
    """Returns the chunk shape for an array that is written in regions of shape `part`, at most `MAX_CHUNK_BYTES` bytes.

    A dimension that one region spans whole may be cut anywhere. Other dimensions are cut so that no chunk spans two
    regions.
    """
    chunk = [max(1, n) for n in part]
    for i, (length, whole) in enumerate(zip(part, type_.shape, strict=True)):
        size = type_.shard_bytes(tuple(chunk))
        if size <= MAX_CHUNK_BYTES:
            break
        max_length = max(1, chunk[i] * MAX_CHUNK_BYTES // size)
        if length == whole:
            chunk[i] = max_length
            continue
        divisor = next(n for n in range(max_length, 0, -1) if length % n == 0)
        if (
            size // chunk[i] * divisor >= _MIN_CHUNK_BYTES
        ):  # else, with a prime number of rows, each row would be a chunk
            chunk[i] = divisor
    return tuple(chunk)


def pieces(box: Box, chunk: Shape) -> Iterator[Box]:
    """Yields the chunks of a region, in order; those at the end of the array may be smaller."""
    cuts = [[(p, min(p + n, stop)) for p in range(start, stop, n)] for (start, stop), n in zip(box, chunk, strict=True)]
    return product(*cuts)


def _raw(dtype: str) -> "np.dtype[Any]":
    """Returns the numpy type in which values are stored."""
    element = numpy_dtype(dtype)
    return element if is_of_numpy(element) else np.dtype(f"u{element.itemsize}")


def _text(error: Exception) -> str:
    """Returns TensorStore's error message without its source location."""
    return re.split(r" \[[a-z_]+(?: locations)?=", str(error), maxsplit=1)[0] or type(error).__name__
