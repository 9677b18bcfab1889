"""Receives one host buffer of a client. `server.py` makes such a call for each stream of a buffer."""

from pathways.ifrt_proxy.grpc_calls import INVALID_ARGUMENT, OK, Replies
from pathways.ifrt_proxy.host_buffers import BufferWriter
from pathways.ifrt_proxy.http2 import FrameReader
from pathways.ifrt_proxy.protocol import bytes_field


class StoreCall:
    """The stream of a host buffer that a client sends. The bytes are received directly into the buffer."""

    def __init__(self, replies: Replies, writer: BufferWriter) -> None:
        self._replies, self._writer = replies, writer
        self._head = bytearray()
        self._left = 0
        self._over = False

    def receive(self, reader: FrameReader, size: int) -> int:
        left = size
        while left and not self._over:
            if self._left:
                taken = min(left, self._left)
                reader.into(self._writer.next(taken))
                self._left -= taken
                left -= taken
            else:
                self._head += reader.exactly(1)
                left -= 1
                self._read_head()
        if left:
            reader.exactly(left)
        return size

    def _read_head(self) -> None:
        """Reads the size of a message once its head is complete: the prefix of gRPC, and the key of its one field."""
        head = self._head
        if len(head) < 5:
            return
        size = int.from_bytes(head[1:5], "big")
        key = bytes(head[5:])
        if size and (len(key) < 2 or key[-1] >= 0x80) and len(key) <= 6:
            return
        data = size - len(key)
        if head[0] or data < 0 or (size and (key != bytes_field(data) or data > self._writer.room)):
            self._fail(f"a message of {size:,} bytes for a buffer with room for {self._writer.room:,}")
        else:
            self._left = data if size else 0
            head.clear()

    def _fail(self, text: str) -> None:
        self._over = True
        self._writer.fail(ValueError(text))
        self._replies.finish(INVALID_ARGUMENT, text)

    def end(self) -> None:
        if self._over:
            return
        self._over = True
        if self._left or self._head or self._writer.room:
            self._fail(f"{self._writer.room:,} bytes are missing")
            return
        self._writer.end()
        self._replies.send((b"",), flush=False)
        self._replies.finish(OK)

    def cancel(self) -> None:
        if not self._over:
            self._writer.fail(ValueError("the client has ended the stream"))
