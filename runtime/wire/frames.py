"""Splits a byte stream into frames, and writes frames. A frame is one message: its size, its kind, its bytes. It never
uses pickle, because a message may come from another user. `peer.py` and `connection.py` call it.

A frame that is too large for its kind, or incomplete, fails only its own connection.
"""

import contextlib
import mmap
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeAlias

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire.errors import BadMessage

HEADER = struct.Struct("<QB")
STREAM_ENDED = "the other end closed the connection or exited"
"""Reason why a stream ends if the other end closes it or exits."""
JOINED_BYTES = 1 << 16
"""Frames up to this size in bytes are joined into one write. Larger payloads are not copied."""
READ_BYTES = 1 << 16
"""Maximum bytes of one read, except into a large payload. A buffer four times as large takes 13 us longer to allocate,
even for few bytes, because the system provides it page by page."""
CHUNK_BYTES = 1 << 28
"""Maximum address space allocated ahead of received data. It takes memory only where data was received."""
MAPPED_BYTES = 1 << 20
"""Blocks of memory beyond this size are mapped, so that their pages are provided on demand."""
Bytes: TypeAlias = bytes | memoryview
"""Sent or received data. Large data is a view of memory, so that it is not copied."""
Payload: TypeAlias = bytes | bytearray | memoryview
"""The bytes of a frame after its header. The payload of a large frame is not copied after it is received."""


class Transport(Protocol):
    """Carries the bytes of a stream: a stream socket, or one under TLS (`tls_socket.py`). Failures are OSErrors."""

    def fileno(self) -> int: ...

    def setblocking(self, flag: bool, /) -> None: ...

    def send(self, data: Bytes, /) -> int: ...

    def recv(self, size: int, /) -> bytes: ...

    def shutdown(self, how: int, /) -> None: ...

    def close(self) -> None: ...


class ConnectionEnded(Exception):
    """The other end of a connection has disconnected."""


def frame_of(kind: int, payload: bytes, blob: Bytes = b"") -> list[Bytes]:
    """Returns the bytes of one frame in write order. `blob` follows the payload; a long `blob` is not copied."""
    size = len(payload) + len(blob)
    header = HEADER.pack(size, kind)
    return [b"".join((header, payload, blob))] if size <= JOINED_BYTES else [header + payload, blob]


def end_reason(error: BaseException) -> str:
    """Explains why a stream cannot be used.

    If the other end has disconnected, the answer is the same whether a read or a write notices it first.
    """
    if isinstance(error, ConnectionError):
        return STREAM_ENDED
    return (isinstance(error, OSError) and error.strerror) or str(error)


def send_all(transport: Transport, pieces: Sequence[Bytes]) -> None:
    """Writes all bytes; joins small pieces into one write. Raises ConnectionEnded if the other end has disconnected."""
    if len(pieces) > 1 and sum(map(len, pieces)) <= JOINED_BYTES:
        pieces = [b"".join(pieces)]
    try:
        for data in pieces:
            rest = memoryview(data)
            while rest:
                rest = rest[transport.send(rest) :]
    except OSError as error:
        raise ConnectionEnded(end_reason(error)) from None


class FrameReader:
    """Splits the bytes of one stream into frames. The owner decides when to read."""

    def __init__(self, max_bytes: Callable[[int], int]) -> None:
        """`max_bytes` returns the maximum payload size in bytes for the kind of a frame. It may be replaced later."""
        self.max_bytes = max_bytes
        self.last_received = time.monotonic()
        """Time of the last received bytes."""
        self._buffer = bytearray()
        self._begin = 0
        """Position of the first frame that was not returned yet."""
        self._kind = 0
        self._size = -1
        """Size of the large payload that is being read; -1 if none is."""
        self._payload = memoryview(b"")
        """The received bytes of that payload, with allocated room for more."""
        self._filled = 0

    def read(self, transport: Transport) -> None:
        """Reads the bytes that have arrived.

        Raises BlockingIOError if none have, ConnectionEnded at the end of the stream.
        """
        try:
            if self._size >= 0 and isinstance(transport, socket.socket):  # without a copy
                self._make_room(self._filled + 1)
                count = transport.recv_into(self._payload[self._filled :])
                self._filled += count
            else:
                data = transport.recv(READ_BYTES)
                self._buffer += data
                count = len(data)
        except BlockingIOError:
            raise
        except OSError as error:
            raise ConnectionEnded(end_reason(error)) from None
        if not count:
            raise ConnectionEnded(STREAM_ENDED)
        self.last_received = time.monotonic()

    def frames(self) -> Iterator[tuple[int, Payload]]:
        """Yields the frames read completely, as kind and payload. Raises PWC0911 for a frame that is too large."""
        while (found := self._next()) is not None:
            yield found

    def _next(self) -> tuple[int, Payload] | None:
        if self._size >= 0:
            return self._rest_of_large()
        buffer, begin = self._buffer, self._begin + HEADER.size
        if len(buffer) >= begin:
            size, kind = HEADER.unpack_from(buffer, self._begin)
            if size > (most := self.max_bytes(kind)):
                have, rule = f"a message of kind {kind} of {size:,} bytes", f"at most {most:,} bytes"
                raise PathwaysError(BadMessage(have_=have, rule=rule))
            if len(buffer) >= begin + size:
                self._begin = begin + size
                return kind, buffer[begin : begin + size]
            if size > READ_BYTES:
                self._kind, self._size = kind, size
                self._filled = 0
                del buffer[:begin]
                self._begin = 0
                return self._rest_of_large()
        del buffer[: self._begin]
        self._begin = 0
        return None

    def _rest_of_large(self) -> tuple[int, Payload] | None:
        """Completes a large payload with bytes that were read into the buffer instead of directly into the payload."""
        if self._buffer:
            more = min(self._size - self._filled, len(self._buffer))
            self._make_room(self._filled + more)
            self._payload[self._filled : self._filled + more] = self._buffer[:more]
            self._filled += more
            del self._buffer[:more]
        if self._filled < self._size:
            return None
        payload, self._payload, self._size = self._payload[: self._size], memoryview(b""), -1
        return self._kind, payload

    def _make_room(self, needed: int) -> None:
        """Allocates room for at least `needed` bytes of the large payload, and for more that it will need."""
        if needed > len(self._payload):
            room = _memory(min(self._size, max(2 * self._filled, CHUNK_BYTES)))
            room[: self._filled] = self._payload[: self._filled]
            self._payload = room


def _memory(size: int) -> memoryview:
    """Allocates memory; a large block takes pages only where something is written. Raises ConnectionEnded."""
    if size <= MAPPED_BYTES:
        return memoryview(bytearray(size))
    try:
        block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise ConnectionEnded(end_reason(error)) from None
    with contextlib.suppress(AttributeError, OSError):  # without huge pages, it takes twice as long
        block.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(block)
