"""Arrays in folders of their own, in chunks of which each is a file: several processes write parts of one at a time.

They are Zarr 3, as TensorStore writes it: uncompressed, each chunk with a checksum. A chunk that is missing, cut or
changed is an error, never zeros. Element types that numpy does not know are stored as integers of their size.
"""

import importlib
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
from pathways.dialect.sharding import Box, Shape

MOST_CHUNK = 1 << 26
"""The most bytes of a chunk, where the parts that are written at once can be cut so: who reads takes whole chunks."""
_LEAST_CHUNK = MOST_CHUNK // 16
_AT_ONCE = 4
"""So many chunks are written at once: each waits for the disk."""
_NAME = re.compile(r"a\d{1,9}")
_FAILURES = (ValueError, OSError, RuntimeError)
"""What TensorStore raises."""


@dataclass(frozen=True)
class ArrayFile:
    """How one array lies in a folder of arrays: its name there, its type, and the shape of its chunks.

    `within`: it is a part of the array that is there, of that shape, and begins at those indices.
    """

    name: str
    type: ArrayType
    chunk: Shape
    within: tuple[Shape, Shape] | None = None

    def as_json(self) -> dict[str, Any]:
        found = {"name": self.name, "dtype": self.type.dtype, "shape": self.type.shape, "chunk": self.chunk}
        return found | ({"within": self.within} if self.within is not None else {})

    def part(self, axis: int, start: int, size: int) -> "ArrayFile":
        """Describes so many elements along an axis as an array of their own: what is read or written of it is."""
        shape, begin = list(self.type.shape), [0] * len(self.type.shape)
        shape[axis], begin[axis] = size, start
        return replace(self, type=ArrayType(tuple(shape), self.type.dtype), within=(self.type.shape, tuple(begin)))

    def create(self, folder: Path) -> None:
        """Makes it, without any values. Raises PWC0606, also where it is there."""
        self._open(folder, writing=True, create=True)

    def write(self, folder: Path, box: Box, values: "np.ndarray[Any, Any]") -> None:
        """Writes one part, which begins and ends where chunks do. Raises PWC0606."""
        store = self._open(folder, writing=True)
        raw = np.asarray(values, order="C").view(_raw(self.type.dtype))
        under_way: deque[Any] = deque()
        try:
            for piece in pieces(box, self.chunk):
                if len(under_way) == _AT_ONCE:
                    under_way.popleft().result()
                part = raw[tuple(slice(p - start, q - start) for (p, q), (start, _) in zip(piece, box, strict=True))]
                under_way.append(store[self._slices(piece)].write(part, can_reference_source_data_indefinitely=True))
            while under_way:
                under_way.popleft().result()
        except _FAILURES as error:
            raise self._cannot_write(folder, error) from None
        finally:
            for write in under_way:  # the values may change when this returns
                write.exception()

    def read(self, folder: Path, box: Box) -> "np.ndarray[Any, Any]":
        """Reads one part, any that there is. Raises PWC0615 where that is damaged, or not there."""
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
        """Opens it as it must be: TensorStore compares what is said here with what is there."""
        tensorstore: Any = importlib.import_module("tensorstore")  # takes its time: most need none
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
        """Where a box of it is in the array that is there."""
        begin = (0,) * len(box) if self.within is None else self.within[1]
        return tuple(slice(at + start, at + stop) for at, (start, stop) in zip(begin, box, strict=True))

    def _cannot_write(self, folder: Path, error: Exception) -> PathwaysError:
        rule = "room on the disk, and a folder that nothing else changes"
        return PathwaysError(CannotWrite(path=str(folder / self.name), problem=_text(error), rule=rule))

    def _damaged(self, folder: Path, error: Exception) -> PathwaysError:
        return PathwaysError(DamagedArray(name=self.name, folder=str(folder), problem=_text(error)))


def read_array_file(found: Any) -> ArrayFile:
    """Reads what `as_json` gave. Raises ValueError, KeyError or TypeError for anything else."""
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
    """Reads where in an array a part of this shape is."""
    if found is None:
        return None
    whole, begin = (tuple(cast("list[int]", part)) for part in found)
    fits = len(whole) == len(begin) == len(shape) and all(type(n) is int for n in whole + begin)
    if not fits or not all(0 <= b <= b + n <= w for b, n, w in zip(begin, shape, whole, strict=True)):
        raise ValueError(f"an array of shape {shape} at {begin} in one of shape {whole}")
    return whole, begin


def chunk_of(type_: ArrayType, part: Shape) -> Shape:
    """Cuts the parts that are written at once, of this shape, into chunks that are not too large.

    A dimension that is one part may be cut anywhere; others so that no chunk is of two parts.
    """
    chunk = [max(1, n) for n in part]
    for i, (length, whole) in enumerate(zip(part, type_.shape, strict=True)):
        size = type_.shard_bytes(tuple(chunk))
        if size <= MOST_CHUNK:
            break
        most = max(1, chunk[i] * MOST_CHUNK // size)
        if length == whole:
            chunk[i] = most
            continue
        divisor = next(n for n in range(most, 0, -1) if length % n == 0)
        if size // chunk[i] * divisor >= _LEAST_CHUNK:  # of a prime number of rows, each would be a chunk
            chunk[i] = divisor
    return tuple(chunk)


def pieces(box: Box, chunk: Shape) -> Iterator[Box]:
    """Lists the chunks of a part, in their order; those at the end of the array may be smaller."""
    cuts = [[(p, min(p + n, stop)) for p in range(start, stop, n)] for (start, stop), n in zip(box, chunk, strict=True)]
    return product(*cuts)


def _raw(dtype: str) -> "np.dtype[Any]":
    """The type in which values are stored."""
    element = numpy_dtype(dtype)
    return element if is_of_numpy(element) else np.dtype(f"u{element.itemsize}")


def _text(error: Exception) -> str:
    """What TensorStore says, without where in its source."""
    return re.split(r" \[[a-z_]+(?: locations)?=", str(error), maxsplit=1)[0] or type(error).__name__
