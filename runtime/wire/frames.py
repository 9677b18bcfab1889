"""Frames over a stream socket: the size of the payload, the kind of message, the payload. No pickle.

A frame that is too large for its kind, or that ends in its middle, is an error of that connection alone.
"""

import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire.errors import BadMessage

HEADER = struct.Struct("<QB")
SMALL = 1 << 16
"""The most bytes that are joined to one write: a larger payload is not copied for it."""


class ByteStream(Protocol):
    """What carries frames: a stream socket, or one under TLS (`tls_stream.py`). Its failures are OSErrors."""

    def sendall(self, data: bytes | memoryview, /) -> None: ...

    def recv_into(self, buffer: memoryview, /) -> int: ...

    def shutdown(self, how: int, /) -> None: ...

    def close(self) -> None: ...


class TimedStream(ByteStream, Protocol):
    """A stream whose reads may be given a time limit."""

    def settimeout(self, value: float | None, /) -> None: ...


class ConnectionEnded(Exception):
    """The other end of a connection is gone."""


def frame_of(kind: int, payload: bytes, blob: bytes | memoryview = b"") -> list[bytes | memoryview]:
    """The bytes of one frame, in the order to write them. `blob` follows the payload, uncopied where it is long."""
    size = len(payload) + len(blob)
    header = HEADER.pack(size, kind)
    return [b"".join((header, payload, blob))] if size <= SMALL else [header + payload, blob]


def in_one(pieces: Sequence[bytes | memoryview]) -> Sequence[bytes | memoryview]:
    """Pieces to write, those that are small in one."""
    if len(pieces) == 1 or sum(map(len, pieces)) > SMALL:
        return pieces
    return [b"".join(pieces)]


def send_all(stream: ByteStream, data: bytes | memoryview) -> None:
    """Writes all bytes; raises ConnectionEnded where the other end is gone."""
    try:
        stream.sendall(data)
    except OSError as error:
        raise ConnectionEnded(str(error)) from None


def send_now(stream: ByteStream, data: bytes | memoryview) -> memoryview:
    """Writes what can be written without waiting; gives the rest, which under TLS is all. Raises as `send_all`."""
    rest = memoryview(data)
    try:
        while rest and isinstance(stream, socket.socket):
            rest = rest[stream.send(rest, socket.MSG_DONTWAIT) :]
    except BlockingIOError:
        pass
    except OSError as error:
        raise ConnectionEnded(str(error)) from None
    return rest


READ = 1 << 14
"""The most bytes that are taken of a stream before the frames among them: many that are small come by one call."""
CHUNK = 1 << 24
"""The most bytes for which room is made before they are there: a size that is not true takes no memory."""


class FrameReader:
    """Reads the frames of a stream, on one thread."""

    def __init__(self, stream: ByteStream, most_bytes: Callable[[int], int]) -> None:
        self._stream, self._most_bytes = stream, most_bytes
        self.heard = time.monotonic()
        """When bytes last came."""
        self._buffer = memoryview(bytearray(READ))
        self._begin = self._end = 0
        """What was taken, and is of frames to come."""

    def receive(self) -> tuple[int, bytearray]:
        """Waits for one frame: its kind, and the payload, of at most `most_bytes` of its kind.

        Raises ConnectionEnded at the end of the stream, PWC0911 for a larger frame.
        """
        while self._end - self._begin < HEADER.size:
            self._fill()
        size, kind = HEADER.unpack_from(self._buffer, self._begin)
        self._begin += HEADER.size
        if size > (most := self._most_bytes(kind)):
            have, rule = f"a message of kind {kind} of {size:,} bytes", f"at most {most:,} bytes"
            raise PathwaysError(BadMessage(have_=have, rule=rule))
        here = min(size, self._end - self._begin)
        payload = bytearray(self._buffer[self._begin : self._begin + here])
        self._begin += here
        if here < size:
            self._read_rest(payload, size)
        return kind, payload

    def _fill(self) -> None:
        """Takes whatever is there, behind what is left of what was taken before."""
        left = self._end - self._begin
        self._buffer[:left] = self._buffer[self._begin : self._end]
        self._begin, self._end = 0, left
        self._end += self._take(self._buffer[left:])

    def _read_rest(self, payload: bytearray, size: int) -> None:
        """Reads the rest of a payload, uncopied: nothing else was taken."""
        while (begin := len(payload)) < size:
            payload += bytes(min(size - begin, CHUNK))
            with memoryview(payload) as view:
                while begin < len(view):
                    begin += self._take(view[begin:])

    def _take(self, room: memoryview) -> int:
        try:
            count = self._stream.recv_into(room)
        except OSError as error:
            raise ConnectionEnded(str(error)) from None
        if not count:
            raise ConnectionEnded("the stream has ended")
        self.heard = time.monotonic()
        return count
