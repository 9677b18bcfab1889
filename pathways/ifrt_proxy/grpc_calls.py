"""Defines the calls of gRPC: their messages, their status codes, and what a call does with the data of its stream.
`connection.py` makes the calls; `server.py` and `store_call.py` define what they do.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from pathways.ifrt_proxy.http2 import FrameReader, Http2Error

OK, INVALID_ARGUMENT, NOT_FOUND, RESOURCE_EXHAUSTED, FAILED_PRECONDITION = 0, 3, 5, 8, 9
UNIMPLEMENTED = 12
"""Status codes of gRPC."""
MAX_MESSAGE_BYTES, MAX_UNARY_BYTES = 1 << 31, 1 << 16
"""Size limits of a message: in a stream of messages, which may contain a module, and of a single request."""
PREFIX = struct.Struct(">BI")
"""The first bytes of a message: whether it is compressed, and its size."""
Part: TypeAlias = bytes | memoryview


class Replies(Protocol):
    """The responses of one stream. Any thread may call the methods."""

    def send(self, parts: Sequence[Part], *, flush: bool = True, limit: int | None = None) -> bool:
        """Sends one message, given in parts. Without `flush`, it is sent with the next one.

        Returns False, and sends nothing, if more than `limit` bytes would wait.
        """
        ...

    def credit(self, size: int) -> None:
        """Lets the client send `size` more bytes."""
        ...

    def finish(self, status: int = OK, text: str = "") -> None:
        """Ends the stream after all messages. Only the first call counts."""
        ...


class Call(Protocol):
    """The server's side of one stream. The reading thread of the connection calls its methods."""

    def receive(self, reader: FrameReader, size: int) -> int:
        """Reads `size` bytes of the stream. Returns the number of bytes to credit to the client."""
        ...

    def end(self) -> None:
        """Notes that the client sends nothing more. `cancel` may still follow."""
        ...

    def cancel(self) -> None:
        """Notes that the client has reset the stream, or closed the connection, before the last response."""
        ...


Opener: TypeAlias = Callable[[Replies, Mapping[bytes, bytes]], Call]
"""Creates the call of a method from its replies and the headers of the request."""


class MessageReader:
    """Splits the bytes of a stream into gRPC messages of at most `max_bytes`."""

    def __init__(self, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()

    def messages(self, data: bytes) -> list[bytes]:
        """Returns the messages that these bytes complete. Raises Http2Error if a message is compressed or too large."""
        if self._rest:
            self._rest += data
            data = b"" if len(self._rest) < self._wanted() else bytes(self._rest)
        found: list[bytes] = []
        at = 0
        while len(data) - at >= PREFIX.size:
            compressed, size = PREFIX.unpack_from(data, at)
            if compressed or size > self._max_bytes:
                raise Http2Error("a compressed message" if compressed else f"a message of {size:,} bytes")
            if len(data) - at - PREFIX.size < size:
                break
            start = at + PREFIX.size
            at = start + size
            found.append(data[start:at])
        if data:
            self._rest = bytearray(data[at:])
        return found

    def _wanted(self) -> int:
        if len(self._rest) < PREFIX.size:
            return PREFIX.size
        return PREFIX.size + PREFIX.unpack_from(self._rest)[1]


@dataclass
class Unary:
    """A call of one request and any number of responses, given as parts of messages."""

    replies: Replies
    answer: Callable[[bytes], Iterable[Sequence[Part]]]
    _reader: MessageReader = field(default_factory=lambda: MessageReader(MAX_UNARY_BYTES))
    _found: list[bytes] = field(default_factory=list[bytes])

    def receive(self, reader: FrameReader, size: int) -> int:
        self._found += self._reader.messages(reader.exactly(size))
        if len(self._found) > 1:
            raise Http2Error("several requests of a call that takes one")
        return size

    def end(self) -> None:
        try:
            for message in self.answer(self._found[0] if self._found else b""):
                self.replies.send(message, flush=False)
        except CallFailed as error:
            self.replies.finish(error.status, str(error))
        else:
            self.replies.finish()

    def cancel(self) -> None:
        """Does nothing: the call owns nothing but its responses."""


class CallFailed(Exception):
    """A method ends with this status of gRPC."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
