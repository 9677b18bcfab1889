"""Holds the host buffers of one session: values that a client sends before it makes arrays, and values that it fetches.
The server receives and sends them in streams of their own.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import numpy_dtype
from pathways.dialect.sharding import Shape
from pathways.ifrt_proxy.errors import UnknownHandle

HostBuffer: TypeAlias = "np.ndarray[Any, Any]"
"""The bytes of a buffer, as an array of uint8."""
MAX_HOST_BYTES = 1 << 36
"""The most bytes in all host buffers of one client."""
ARRIVAL_TIMEOUT_S = 120.0
"""The longest wait of a request for a host buffer, whose stream may arrive after the request."""


@dataclass
class HostBuffers:
    """Keeps the host buffers of one session by number, and limits their bytes."""

    _found: "dict[int, HostBuffer | Exception]" = field(default_factory=dict[int, Any])
    """An exception stands for a buffer whose stream has failed."""
    _bytes: int = 0
    _closed: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def begin(self, size: int) -> "np.ndarray[Any, Any]":
        """Makes an array for the bytes of a buffer, and reserves them. Raises ValueError if it is too large."""
        with self._changed:
            if not 0 <= size <= MAX_HOST_BYTES - self._bytes:
                raise ValueError(f"a buffer of {size:,} bytes; at most {MAX_HOST_BYTES:,} in all buffers")
            made = np.empty(size, np.uint8)
            self._bytes += size
        return made

    def finish(self, number: int, data: "HostBuffer | Exception", reserved: int) -> None:
        """Stores a buffer whose bytes were reserved, or the reason why it never arrives."""
        with self._changed:
            self._bytes -= reserved
            self._put(number, data)

    def put(self, number: int, data: HostBuffer) -> None:
        """Stores a buffer. Raises ValueError if the session has too many bytes in its buffers."""
        with self._changed:
            if data.nbytes > MAX_HOST_BYTES - self._bytes:
                raise ValueError(f"more than {MAX_HOST_BYTES:,} bytes in host buffers")
            self._put(number, data)

    def _put(self, number: int, data: "HostBuffer | Exception") -> None:
        self._pop(number)
        if not self._closed:
            self._found[number] = data
            self._bytes += _size(data)
        self._changed.notify_all()

    def _pop(self, number: int) -> "HostBuffer | Exception | None":
        found = self._found.pop(number, None)
        self._bytes -= _size(found)
        return found

    def get(self, number: int) -> HostBuffer:
        """Returns a buffer. Raises PWC0941 if it does not exist."""
        with self._changed:
            found = self._found.get(number)
        if found is None or isinstance(found, Exception):
            raise PathwaysError(UnknownHandle(what="host buffer", number=number))
        return found

    def take(self, number: int) -> HostBuffer:
        """Waits for a buffer, removes and returns it. Raises PWC0941 if it does not arrive, or its stream fails."""
        with self._changed:
            self._changed.wait_for(lambda: number in self._found or self._closed, ARRIVAL_TIMEOUT_S)
            found = self._pop(number)
        if found is None or isinstance(found, Exception):
            raise PathwaysError(UnknownHandle(what="host buffer", number=number))
        return found

    def delete(self, number: int) -> None:
        with self._changed:
            self._pop(number)

    def close(self) -> None:
        """Frees all buffers, and wakes threads that wait for one."""
        with self._changed:
            self._closed = True
            self._bytes -= sum(map(_size, self._found.values()))
            self._found.clear()
            self._changed.notify_all()


class BufferWriter:
    """Writes one host buffer, in order."""

    def __init__(self, buffers: HostBuffers, number: int, size: int) -> None:
        """Raises ValueError if the buffer is too large; requests that wait for it fail."""
        self._buffers, self._number = buffers, number
        self._at = 0
        try:
            self._data = buffers.begin(size)
        except (ValueError, MemoryError) as error:
            buffers.finish(number, error, 0)
            raise

    @property
    def room(self) -> int:
        """Number of bytes that are missing."""
        return self._data.nbytes - self._at

    def next(self, size: int) -> memoryview:
        """Returns the memory for the next `size` bytes of the buffer."""
        at = self._at
        self._at += size
        return self._data.data[at : self._at]

    def end(self) -> None:
        """Stores the buffer, which must be complete."""
        assert not self.room
        self._buffers.finish(self._number, self._data, self._data.nbytes)

    def fail(self, error: Exception) -> None:
        """Notes that the buffer never arrives."""
        self._buffers.finish(self._number, error, self._data.nbytes)


def _size(data: "HostBuffer | Exception | None") -> int:
    return 0 if data is None or isinstance(data, Exception) else data.nbytes


def as_bytes(values: "np.ndarray[Any, Any]") -> HostBuffer:
    """Views an array as bytes; copies one that is not contiguous."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def array_of(data: Any, dtype: str, shape: Shape, strides: Sequence[int] | None) -> "np.ndarray[Any, Any]":
    """Views the bytes of a client as an array; `strides` are in bytes and may be negative or zero.

    Raises ValueError if the bytes are too few. The bytes begin at the lowest address that an element has.
    """
    kind = numpy_dtype(dtype)
    if strides is None:
        return np.frombuffer(data, kind, count=int(np.prod(shape))).reshape(shape)
    start = sum(-s * (d - 1) for s, d in zip(strides, shape, strict=True) if s < 0 and d)
    return np.ndarray(shape, kind, buffer=data, offset=start, strides=tuple(strides))
