"""Reads and writes the frames of HTTP/2 (RFC 9113) of one connection, as far as gRPC uses them. `connection.py` does
the rest: it owns the socket and the streams.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pathways.dialect.diagnostics import PathwaysError
from pathways.ifrt_proxy.errors import NoHpack
from pathways.runtime.wire.frames import STREAM_ENDED, ConnectionEnded

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The bytes that every client sends first."""
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
"""The types of frames."""
END_STREAM = ACK = 0x1
END_HEADERS, PADDED, HAS_PRIORITY = 0x4, 0x8, 0x20
"""The flags of frames. ACK is that of SETTINGS and PING."""
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = 0x0, 0x1, 0x2, 0x3
FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR = 0x6, 0x7, 0x8, 0x9
"""The error codes of RST_STREAM and GOAWAY."""
TABLE_SIZE, MAX_STREAMS, INITIAL_WINDOW, FRAME_SIZE, HEADER_BYTES = 0x1, 0x3, 0x4, 0x5, 0x6
"""The numbers of settings."""
DEFAULT_WINDOW, DEFAULT_FRAME, DEFAULT_TABLE = 65_535, 16_384, 4096
"""Values of a peer that has sent no settings."""
MAX_WINDOW = (1 << 31) - 1
MAX_OWN_FRAME_BYTES = 1 << 20
"""The largest payload that a client may send in one frame."""
MAX_HEADER_BYTES = 1 << 16
"""The most bytes of one list of headers, compressed or not."""
_HEADER = struct.Struct(">BHBBI")
_BUFFER_BYTES = 1 << 17


class Http2Error(Exception):
    """A violation of the protocol by the client; it ends the connection with this error code."""

    def __init__(self, text: str, code: int = PROTOCOL_ERROR) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Frame:
    """The header of a frame: its type, its flags, its stream, and the bytes of its payload."""

    kind: int
    flags: int
    stream: int
    length: int


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Encodes a frame."""
    return frame_header(kind, flags, stream, len(payload)) + payload


def frame_header(kind: int, flags: int, stream: int, length: int) -> bytes:
    return _HEADER.pack(length >> 16, length & 0xFFFF, kind, flags, stream)


def window_update(stream: int, size: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", size))


def settings(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *item) for item in values.items()))


def read_settings(payload: bytes) -> dict[int, int]:
    """Decodes the payload of a SETTINGS frame. Raises Http2Error for values that the protocol forbids."""
    if len(payload) % 6:
        raise Http2Error("settings of a wrong size", FRAME_SIZE_ERROR)
    values = dict(struct.iter_unpack(">HI", payload))
    if values.get(INITIAL_WINDOW, 0) > MAX_WINDOW:
        raise Http2Error("a window beyond 2^31 - 1", FLOW_CONTROL_ERROR)
    if not DEFAULT_FRAME <= values.get(FRAME_SIZE, DEFAULT_FRAME) < 1 << 24:
        raise Http2Error("a frame size outside of the limits")
    return values


def read_number(payload: bytes) -> int:
    """Decodes the payload of WINDOW_UPDATE or RST_STREAM."""
    if len(payload) != 4:
        raise Http2Error("a number of a wrong size", FRAME_SIZE_ERROR)
    return int.from_bytes(payload, "big")


class FrameReader:
    """Reads frames from a function like `socket.recv_into`."""

    def __init__(self, receive: Callable[[memoryview], int]) -> None:
        self._receive = receive
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._start = self._end = 0

    def header(self) -> Frame:
        """Reads the header of the next frame. Raises Http2Error if its payload would be too large."""
        high, low, kind, flags, stream = _HEADER.unpack(self.exactly(_HEADER.size))
        length = (high << 16) + low
        if length > MAX_OWN_FRAME_BYTES:
            raise Http2Error(f"a frame of {length:,} bytes", FRAME_SIZE_ERROR)
        return Frame(kind, flags, stream & MAX_WINDOW, length)

    def exactly(self, size: int) -> bytes:
        """Reads exactly `size` bytes. Raises ConnectionEnded if the client closes the connection earlier."""
        if self._end - self._start < size:
            if size > _BUFFER_BYTES:
                whole = bytearray(size)
                self.into(memoryview(whole))
                return bytes(whole)
            self._fill(size)
        start = self._start
        self._start = start + size
        return bytes(self._buffer[start : start + size])

    def into(self, target: memoryview) -> None:
        """Fills `target`; large parts are not copied twice."""
        at = 0
        while at < len(target):
            if (have := min(self._end - self._start, len(target) - at)) > 0:
                target[at : at + have] = self._buffer[self._start : self._start + have]
                self._start += have
                at += have
            else:
                at += self._received(target[at:])

    def _fill(self, size: int) -> None:
        have = self._end - self._start
        self._buffer[:have] = self._buffer[self._start : self._end]
        self._start, self._end = 0, have
        while self._end < size:
            self._end += self._received(self._buffer[self._end :])

    def _received(self, target: memoryview) -> int:
        if not (count := self._receive(target)):
            raise ConnectionEnded(STREAM_ENDED)
        return count


class HeaderCoder:
    """Decodes the lists of headers of one connection, and encodes those of its responses. Needs the package hpack."""

    def __init__(self) -> None:
        hpack = _hpack()
        self._errors: type[Exception] = hpack.HPACKError
        self._decoder = hpack.Decoder(max_header_list_size=MAX_HEADER_BYTES)
        self._encoder = hpack.Encoder()

    def decode(self, block: bytes) -> dict[bytes, bytes]:
        """Returns the headers. If a name is repeated, its last value counts. Raises Http2Error for another block."""
        try:
            return {bytes(name): bytes(value) for name, value in self._decoder.decode(block, raw=True)}
        except (self._errors, ValueError, LookupError) as error:
            raise Http2Error(f"headers that cannot be decoded: {str(error)[:200]}", COMPRESSION_ERROR) from None

    def limit_table(self, size: int | None) -> None:
        """Limits the table of headers that the decoder of the client keeps, in bytes, as its settings say."""
        if size is not None:
            self._encoder.header_table_size = min(size, DEFAULT_TABLE)

    def encode(self, headers: dict[str, str]) -> bytes:
        return bytes(self._encoder.encode(headers))


def header_block(reader: FrameReader, first: Frame) -> bytes:
    """Reads the block of a HEADERS frame and of the CONTINUATION frames that follow it."""
    if first.length > MAX_HEADER_BYTES:
        raise Http2Error("too many headers")
    payload = reader.exactly(first.length)
    start = (1 if first.flags & PADDED else 0) + (5 if first.flags & HAS_PRIORITY else 0)
    end = len(payload) - (payload[0] if first.flags & PADDED and payload else 0)
    if start > end:
        raise Http2Error("padding that is larger than its frame")
    block = payload[start:end]
    flags = first.flags
    while not flags & END_HEADERS:
        one = reader.header()
        if one.kind != CONTINUATION or one.stream != first.stream:
            raise Http2Error("a frame inside of a list of headers")
        block += reader.exactly(one.length)
        flags = one.flags
        if len(block) > MAX_HEADER_BYTES:
            raise Http2Error("too many headers")
    return block


def _hpack() -> Any:
    try:
        import hpack
    except ImportError:
        raise PathwaysError(NoHpack()) from None
    return hpack
