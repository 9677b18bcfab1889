"""Holds the host buffers of one session: values that a client sends before it makes arrays of them, and values that it
fetches. The server receives and sends them in streams of their own.
"""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import numpy_dtype
from pathways.dialect.sharding import Shape
from pathways.ifrt_proxy.errors import UnknownHandle

MAX_BUFFER_BYTES = 1 << 36
"""The largest host buffer of a client."""
ARRIVAL_TIMEOUT_S = 120.0
"""How long a request waits for a host buffer, whose stream may arrive after the request."""


@dataclass
class HostBuffers:
    """The buffers by number."""

    _found: dict[int, bytes | bytearray | memoryview] = field(default_factory=dict[int, Any])
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def store(self, number: int, size: int, chunks: Iterable[bytes]) -> None:
        """Stores a buffer of `size` bytes. Raises ValueError if the chunks have another size, or it is too large."""
        if not 0 <= size <= MAX_BUFFER_BYTES:
            raise ValueError(f"a buffer of {size:,} bytes; at most {MAX_BUFFER_BYTES:,}")
        data = bytearray(size)
        at = 0
        for chunk in chunks:
            if at + len(chunk) > size:
                raise ValueError(f"more than {size:,} bytes")
            data[at : at + len(chunk)] = chunk
            at += len(chunk)
        if at != size:
            raise ValueError(f"{at:,} bytes in place of {size:,}")
        self.put(number, data)

    def put(self, number: int, data: bytes | bytearray | memoryview) -> None:
        with self._changed:
            self._found[number] = data
            self._changed.notify_all()

    def get(self, number: int) -> bytes | bytearray | memoryview:
        """Returns a buffer. Raises PWC0941 if it does not exist."""
        with self._changed:
            if number not in self._found:
                raise PathwaysError(UnknownHandle(what="host buffer", number=number))
            return self._found[number]

    def take(self, number: int) -> bytes | bytearray | memoryview:
        """Waits for a buffer, removes and returns it. Raises PWC0941 if it does not arrive in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: number in self._found, ARRIVAL_TIMEOUT_S):
                raise PathwaysError(UnknownHandle(what="host buffer", number=number))
            return self._found.pop(number)

    def delete(self, number: int) -> None:
        with self._changed:
            self._found.pop(number, None)


def array_of(data: Any, dtype: str, shape: Shape, strides: Sequence[int] | None) -> "np.ndarray[Any, Any]":
    """Views the bytes of a client as an array; `strides` are in bytes and may be negative or zero.

    Raises ValueError if the bytes are too few. The bytes begin at the lowest address that an element has.
    """
    kind = numpy_dtype(dtype)
    if strides is None:
        return np.frombuffer(data, kind, count=int(np.prod(shape))).reshape(shape)
    start = sum(-s * (d - 1) for s, d in zip(strides, shape, strict=True) if s < 0 and d)
    return np.ndarray(shape, kind, buffer=data, offset=start, strides=tuple(strides))
