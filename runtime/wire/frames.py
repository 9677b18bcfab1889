"""Frames over a stream socket: the size of the payload, the kind of message, the payload. No pickle.

A frame that is too large for its kind, or that ends in its middle, is an error of that connection alone.
"""

import socket
import struct
from collections.abc import Callable
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


class ConnectionEnded(Exception):
    """The other end of a connection is gone."""


def frame_of(kind: int, payload: bytes, blob: bytes | memoryview = b"") -> list[bytes | memoryview]:
    """The bytes of one frame, in the order to write them. `blob` follows the payload, uncopied where it is long."""
    size = len(payload) + len(blob)
    header = HEADER.pack(size, kind)
    return [b"".join((header, payload, blob))] if size <= SMALL else [header + payload, blob]


def send_frame(stream: ByteStream, kind: int, payload: bytes, blob: bytes | memoryview = b"") -> None:
    """Writes one frame; raises ConnectionEnded where the other end is gone."""
    for data in frame_of(kind, payload, blob):
        send_all(stream, data)


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


def receive_frame(
    stream: ByteStream, most_bytes: Callable[[int], int], heard: Callable[[], None]
) -> tuple[int, bytearray]:
    """Reads one frame: its kind, and the payload, of at most `most_bytes` of its kind. `heard`: called as bytes come.

    Raises ConnectionEnded at the end of the stream, PWC0911 for a larger frame.
    """
    size, kind = HEADER.unpack(_exactly(stream, HEADER.size, heard))
    if size > (most := most_bytes(kind)):
        have, rule = f"a message of kind {kind} of {size:,} bytes", f"at most {most:,} bytes"
        raise PathwaysError(BadMessage(have_=have, rule=rule))
    return kind, _exactly(stream, size, heard)


CHUNK = 1 << 24
"""The most bytes for which room is made before they are there: a size that is not true takes no memory."""


def _exactly(stream: ByteStream, size: int, heard: Callable[[], None]) -> bytearray:
    found = bytearray()
    while len(found) < size:
        begin = len(found)
        found += bytes(min(size - begin, CHUNK))
        view = memoryview(found)
        while begin < len(found):
            try:
                count = stream.recv_into(view[begin:])
            except OSError as error:
                raise ConnectionEnded(str(error)) from None
            if not count:
                raise ConnectionEnded("the stream has ended")
            begin += count
            heard()
        view.release()
    return found
