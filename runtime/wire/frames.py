"""Frames over a stream: the size of the payload, the kind of message, the payload. No pickle.

A frame that is too large for its kind, or that ends in its middle, is an error of that connection alone.
"""

import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire.errors import BadMessage

HEADER = struct.Struct("<QB")
JOINED_BYTES = 1 << 16
"""Pieces are joined to one write up to this size: a larger payload is not copied for it."""
READ_BYTES = 1 << 16
"""The most bytes that are read at once, unless they are of a large payload. Room for four times as many takes 13 us
more to make, whatever comes, since the system gives it page by page."""
CHUNK_BYTES = 1 << 24
"""The most bytes for which room is made before they are there: a false size takes no memory."""


class Transport(Protocol):
    """Carries the bytes of a stream: a stream socket, or one under TLS (`tls_socket.py`). Its failures are OSErrors."""

    def fileno(self) -> int: ...

    def setblocking(self, flag: bool, /) -> None: ...

    def send(self, data: bytes | memoryview, /) -> int: ...

    def recv(self, size: int, /) -> bytes: ...

    def shutdown(self, how: int, /) -> None: ...

    def close(self) -> None: ...


class ConnectionEnded(Exception):
    """The other end of a connection is gone."""


def frame_of(kind: int, payload: bytes, blob: bytes | memoryview = b"") -> list[bytes | memoryview]:
    """Lists the bytes of one frame in the order to write them. `blob` follows the payload; a long one is not copied."""
    size = len(payload) + len(blob)
    header = HEADER.pack(size, kind)
    return [b"".join((header, payload, blob))] if size <= JOINED_BYTES else [header + payload, blob]


def send_all(transport: Transport, pieces: Sequence[bytes | memoryview]) -> None:
    """Writes all bytes, small pieces by one write. Raises ConnectionEnded where the other end is gone."""
    if len(pieces) > 1 and sum(map(len, pieces)) <= JOINED_BYTES:
        pieces = [b"".join(pieces)]
    try:
        for data in pieces:
            rest = memoryview(data)
            while rest:
                rest = rest[transport.send(rest) :]
    except OSError as error:
        raise ConnectionEnded(str(error)) from None


class FrameReader:
    """Splits the bytes of one stream into frames; its owner says when to read."""

    def __init__(self, most_bytes: Callable[[int], int]) -> None:
        """`most_bytes` gives the most bytes of a payload by the kind of the frame; it may be replaced."""
        self.most_bytes = most_bytes
        self.heard = time.monotonic()
        """When bytes last came."""
        self._buffer = bytearray()
        self._begin = 0
        """Where the first frame begins that was not given yet."""
        self._kind = 0
        self._size = -1
        """The size of a large payload that is being read; -1: none is."""
        self._payload = bytearray()
        """That payload, and room for more of it."""
        self._filled = 0

    def read(self, transport: Transport) -> None:
        """Takes what has come.

        Raises BlockingIOError where nothing has, ConnectionEnded at the end of the stream.
        """
        try:
            if self._size >= 0 and isinstance(transport, socket.socket):  # straight to its place
                self._make_room()
                with memoryview(self._payload) as view:
                    count = transport.recv_into(view[self._filled :])
                self._filled += count
            else:
                data = transport.recv(READ_BYTES)
                self._buffer += data
                count = len(data)
        except BlockingIOError:
            raise
        except OSError as error:
            raise ConnectionEnded(str(error)) from None
        if not count:
            raise ConnectionEnded("the stream has ended")
        self.heard = time.monotonic()

    def frames(self) -> Iterator[tuple[int, bytearray]]:
        """Gives the frames that were read whole: the kind and the payload of each. Raises PWC0911 for a larger one."""
        while (found := self._next()) is not None:
            yield found

    def _next(self) -> tuple[int, bytearray] | None:
        if self._size >= 0:
            return self._rest_of_large()
        buffer, begin = self._buffer, self._begin + HEADER.size
        if len(buffer) >= begin:
            size, kind = HEADER.unpack_from(buffer, self._begin)
            if size > (most := self.most_bytes(kind)):
                have, rule = f"a message of kind {kind} of {size:,} bytes", f"at most {most:,} bytes"
                raise PathwaysError(BadMessage(have_=have, rule=rule))
            if len(buffer) >= begin + size:
                self._begin = begin + size
                return kind, buffer[begin : begin + size]
            if size > READ_BYTES:
                self._kind, self._size = kind, size
                self._payload, self._filled = buffer[begin:], len(buffer) - begin
                self._buffer, self._begin = bytearray(), 0
                return None
        del buffer[: self._begin]
        self._begin = 0
        return None

    def _rest_of_large(self) -> tuple[int, bytearray] | None:
        """Completes a large payload, with what was read behind it where it was not read straight to its place."""
        if self._buffer:
            more = min(self._size - self._filled, len(self._buffer))
            self._payload[self._filled : self._filled + more] = self._buffer[:more]
            self._filled += more
            del self._buffer[:more]
        if self._filled < self._size:
            return None
        payload, self._payload, self._size = self._payload, bytearray(), -1
        return self._kind, payload

    def _make_room(self) -> None:
        if self._filled == len(self._payload):
            self._payload += bytes(min(self._size - self._filled, CHUNK_BYTES))
