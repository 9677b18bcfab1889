"""Serves one connection of a gRPC client: its streams, their messages and their flow control. `server.py` has the
methods that clients call.

One thread reads from the connection. The thread that made an answer writes it. Python's gRPC library takes 230 us of
CPU time for one request and its response (measured); this module takes 20 us.
"""

import contextlib
import itertools
import socket
import struct
import threading
import traceback
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from pathways.ifrt_proxy import http2 as h
from pathways.ifrt_proxy.grpc_calls import OK, PREFIX, UNIMPLEMENTED, Call, CallFailed, Opener, Part
from pathways.ifrt_proxy.http2 import Frame, FrameReader, HeaderCoder, Http2Error
from pathways.runtime.wire.frames import JOINED_BYTES, ConnectionEnded
from pathways.runtime.wire.loop import do_safely

STREAM_WINDOW_BYTES, CONNECTION_WINDOW_BYTES = 1 << 24, 1 << 26
"""Bytes that a client may send in advance: in one stream, and in all streams of a connection."""
CREDIT_BYTES = 1 << 20
"""Received bytes are credited to the client in steps of this size."""
MAX_CALLS = 256
"""Number of streams of one connection at a time."""
PREFACE_TIMEOUT_S = 20.0
MAX_STATUS_CHARACTERS = 1000
"""JAX's client accepts 16 KiB of headers, and a character takes up to 12 bytes."""
_PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


@dataclass
class Window:
    """Counts the bytes that a client may still send, and the received bytes that are not credited to it yet."""

    room: int
    owed: int = 0


@dataclass(eq=False)
class StreamReplies:
    """Sends the responses of one stream, as `grpc_calls.Replies` describes it.

    Messages wait in `waiting` until the windows of the client have room.
    """

    connection: "Connection"
    stream: int
    window: int
    waiting: "deque[Part]" = field(default_factory=lambda: deque[Part]())
    trailers: dict[str, str] | None = None
    unread: int = 0
    """Bytes in `waiting`."""
    has_begun: bool = False
    """Whether the first headers were sent."""

    def send(self, parts: Sequence[Part], *, flush: bool = True, limit: int | None = None) -> bool:
        return self.connection.send(self, parts, flush=flush, limit=limit)

    def credit(self, size: int) -> None:
        self.connection.credit(self.stream, size)

    def finish(self, status: int = OK, text: str = "") -> None:
        self.connection.finish(
            self, {"grpc-status": str(status), "grpc-message": quote(text[:MAX_STATUS_CHARACTERS], safe=_PLAIN)}
        )


class Connection:
    """One connection. `serve` reads until it ends."""

    def __init__(self, connected: socket.socket, methods: Mapping[bytes, Opener]) -> None:
        """Raises PWC0942 without the package hpack."""
        self._socket, self._methods = connected, methods
        self._coder = HeaderCoder()
        self._calls: dict[int, Call] = {}
        self._open_windows = {0: Window(CONNECTION_WINDOW_BYTES)}
        """The windows of the connection (0), and of each stream whose client still sends."""
        self._last = 0
        self._replies: dict[int, StreamReplies] = {}
        self._window, self._first_window, self._frame = h.DEFAULT_WINDOW, h.DEFAULT_WINDOW, h.DEFAULT_FRAME
        self._out: list[Part] = []
        self._lock = threading.Lock()

    def serve(self) -> None:
        """Reads frames until the client closes the connection or violates the protocol; then cancels all calls."""
        reader = FrameReader(self._socket.recv_into)
        code = h.INTERNAL_ERROR
        try:
            self._begin(reader)
            while True:
                self._read(reader)
        except Http2Error as error:
            code = error.code
        except (ConnectionEnded, OSError):
            code = h.NO_ERROR
        except Exception as error:  # a bug of this server: it ends only this connection
            traceback.print_exception(error)
        finally:
            self.close(code)
            self._cancel_all()

    def _cancel_all(self) -> None:
        """Cancels all calls, and closes the socket: under the lock, since its number may be used again."""
        for call in list(self._calls.values()):
            do_safely(call.cancel)
        self._calls.clear()
        with self._lock:
            self._replies.clear()
            self._socket.close()

    def close(self, code: int = h.NO_ERROR) -> None:
        """Closes the connection; threads that read or write wake up."""
        if self._lock.acquire(blocking=False):  # otherwise another thread is writing, which shutdown ends
            try:
                with contextlib.suppress(OSError):
                    goaway = h.frame(h.GOAWAY, 0, 0, struct.pack(">II", self._last, code))
                    self._socket.send(goaway, socket.MSG_DONTWAIT)
            finally:
                self._lock.release()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _begin(self, reader: FrameReader) -> None:
        own = {
            h.MAX_STREAMS: MAX_CALLS,
            h.INITIAL_WINDOW: STREAM_WINDOW_BYTES,
            h.FRAME_SIZE: h.MAX_OWN_FRAME_BYTES,
            h.HEADER_BYTES: h.MAX_HEADER_BYTES,
        }
        more = h.window_update(0, CONNECTION_WINDOW_BYTES - h.DEFAULT_WINDOW)
        self._socket.settimeout(PREFACE_TIMEOUT_S)
        self._write(h.settings(own) + more)
        if reader.exactly(len(h.PREFACE)) != h.PREFACE:
            raise Http2Error("not a client of HTTP/2")
        self._socket.settimeout(None)

    def _write(self, data: bytes) -> None:
        with self._lock:
            self._out.append(data)
            self._flush()

    # Input from the client. Only the thread of the connection calls these methods.

    def _read(self, reader: FrameReader) -> None:
        frame = reader.header()
        if frame.kind == h.DATA:
            self._data(reader, frame)
        elif frame.kind == h.HEADERS:
            self._headers(reader, frame)
        else:
            if frame.length > h.DEFAULT_FRAME:
                raise Http2Error(f"a frame of {frame.length:,} bytes", h.FRAME_SIZE_ERROR)
            self._control(frame, reader.exactly(frame.length))

    def _data(self, reader: FrameReader, frame: Frame) -> None:
        size, padding = frame.length, 0
        if frame.flags & h.PADDED:
            padding = reader.exactly(1)[0]
            size -= 1 + padding
            if size < 0:
                raise Http2Error("padding that is larger than its frame")
        if not 0 < frame.stream <= self._last:
            raise Http2Error("data of a stream that was not opened")
        self._use_window(0, frame.length)
        self._use_window(frame.stream, frame.length)
        call = self._calls.get(frame.stream) if frame.stream in self._open_windows else None
        credit = frame.length - size
        if call is None:  # the call ended before its data arrived
            reader.exactly(size)
        elif size:
            credit += call.receive(reader, size)
        if padding:
            reader.exactly(padding)
        self.credit(0, frame.length)
        self.credit(frame.stream, credit)
        if frame.flags & h.END_STREAM:
            self._end(frame.stream)

    def _use_window(self, stream: int, size: int) -> None:
        """Counts received bytes, of a stream that may have ended. Raises Http2Error if the client had no room."""
        with self._lock:
            if (window := self._open_windows.get(stream)) is not None:
                window.room -= size
                if window.room < 0:
                    raise Http2Error("more data than its window", h.FLOW_CONTROL_ERROR)

    def credit(self, stream: int, size: int) -> None:
        """Lets the client send `size` more bytes, in a stream that may have ended. Any thread may call it."""
        with self._lock:
            if (window := self._open_windows.get(stream)) is None:
                return
            window.owed += size
            if window.owed >= CREDIT_BYTES:
                self._out.append(h.window_update(stream, window.owed))
                window.room += window.owed
                window.owed = 0
                self._flush()

    def _headers(self, reader: FrameReader, frame: Frame) -> None:
        headers = self._coder.decode(h.header_block(reader, frame))
        if frame.stream in self._open_windows:  # trailers, which gRPC does not use
            if not frame.flags & h.END_STREAM:
                raise Http2Error("headers in the middle of a stream")
            self._end(frame.stream)
            return
        if frame.stream <= self._last or frame.stream % 2 == 0:
            raise Http2Error("a stream with a wrong number")
        self._last = frame.stream
        if len(self._replies) >= MAX_CALLS:
            self._write(h.frame(h.RST_STREAM, 0, frame.stream, struct.pack(">I", h.REFUSED_STREAM)))
            return
        with self._lock:
            self._open_windows[frame.stream] = Window(STREAM_WINDOW_BYTES)
            replies = self._replies[frame.stream] = StreamReplies(self, frame.stream, self._first_window)
        self._open(replies, headers)
        if frame.flags & h.END_STREAM:
            self._end(frame.stream)

    def _open(self, replies: StreamReplies, headers: Mapping[bytes, bytes]) -> None:
        path = headers.get(b":path", b"")
        opener = self._methods.get(path)
        if opener is None:
            replies.finish(UNIMPLEMENTED, f"the method {path.decode(errors='replace')[:200]}")
            return
        try:
            call = opener(replies, headers)
        except CallFailed as error:
            replies.finish(error.status, str(error))
            return
        self._calls[replies.stream] = call
        if replies.stream not in self._replies:  # another thread has sent its last response already
            self._calls.pop(replies.stream, None)

    def _end(self, stream: int) -> None:
        was_open = self._close_window(stream)
        if was_open and (call := self._calls.get(stream)) is not None:
            call.end()

    def _close_window(self, stream: int) -> bool:
        """Forgets the window of a stream whose client sends nothing more; returns whether it was open."""
        with self._lock:
            return self._open_windows.pop(stream, None) is not None

    def _control(self, frame: Frame, payload: bytes) -> None:
        if frame.kind == h.SETTINGS and not frame.flags & h.ACK:
            self._configure(h.read_settings(payload))
        elif frame.kind == h.PING and not frame.flags & h.ACK:
            self._write(h.frame(h.PING, h.ACK, 0, payload[:8]))
        elif frame.kind == h.WINDOW_UPDATE:
            self._extend(frame.stream, h.read_number(payload) & h.MAX_WINDOW)
        elif frame.kind == h.RST_STREAM:
            self._close_window(frame.stream)
            with self._lock:
                self._replies.pop(frame.stream, None)
            if (call := self._calls.pop(frame.stream, None)) is not None:
                call.cancel()
        elif frame.kind in (h.PUSH_PROMISE, h.CONTINUATION):
            raise Http2Error(f"a frame of type {frame.kind}")

    def _configure(self, values: Mapping[int, int]) -> None:
        with self._lock:
            self._frame = min(values.get(h.FRAME_SIZE, self._frame), h.MAX_OWN_FRAME_BYTES)
            self._coder.limit_table(values.get(h.TABLE_SIZE))
            more = values.get(h.INITIAL_WINDOW, self._first_window) - self._first_window
            self._first_window += more
            self._out.append(h.frame(h.SETTINGS, h.ACK, 0))
            for replies in list(self._replies.values()):
                replies.window += more
                self._pump(replies)
            self._flush()

    def _extend(self, stream: int, size: int) -> None:
        with self._lock:
            if stream == 0:
                self._window += size
                for replies in list(self._replies.values()):
                    self._pump(replies)
            elif (replies := self._replies.get(stream)) is not None:
                replies.window += size
                self._pump(replies)
            if self._window > h.MAX_WINDOW:
                raise Http2Error("a window beyond 2^31 - 1", h.FLOW_CONTROL_ERROR)
            self._flush()

    # What the server sends. Any thread may call these.

    def send(self, replies: StreamReplies, parts: Sequence[Part], *, flush: bool, limit: int | None) -> bool:
        """Sends one message in a stream; `Replies.send` describes it."""
        size = sum(map(len, parts))
        with self._lock:
            if self._replies.get(replies.stream) is not replies or replies.trailers is not None:
                return True  # the client does not wait for it any more
            if limit is not None and replies.unread + size > limit:
                return False
            replies.waiting.append(PREFIX.pack(0, size))
            replies.waiting.extend(parts)
            replies.unread += size + PREFIX.size
            self._pump(replies)
            if flush:
                self._flush()
        return True

    def finish(self, replies: StreamReplies, trailers: dict[str, str]) -> None:
        """Ends a stream after its messages."""
        with self._lock:
            if self._replies.get(replies.stream) is replies and replies.trailers is None:
                replies.trailers = trailers
                self._pump(replies)
                self._flush()

    def _pump(self, replies: StreamReplies) -> None:
        """Moves messages of a stream to the output, as far as the windows of the client allow."""
        if not replies.has_begun and (replies.waiting or replies.trailers is not None):
            replies.has_begun = True
            first = self._coder.encode({":status": "200", "content-type": "application/grpc"})
            self._out.append(h.frame(h.HEADERS, h.END_HEADERS, replies.stream, first))
        while replies.waiting and (room := min(replies.window, self._window, self._frame)) > 0:
            taken, size = _take(replies.waiting, room)
            self._out.append(h.frame_header(h.DATA, 0, replies.stream, size))
            self._out.extend(taken)
            replies.window -= size
            self._window -= size
            replies.unread -= size
        if replies.trailers is not None and not replies.waiting:
            block = self._coder.encode(replies.trailers)
            self._out.append(h.frame(h.HEADERS, h.END_HEADERS | h.END_STREAM, replies.stream, block))
            del self._replies[replies.stream]
            self._calls.pop(replies.stream, None)
            if self._open_windows.pop(replies.stream, None) is not None:  # the client need not send the rest
                self._out.append(h.frame(h.RST_STREAM, 0, replies.stream, struct.pack(">I", h.NO_ERROR)))

    def _flush(self) -> None:
        """Writes the output. Ignores errors of the socket: the thread of the connection cancels the calls."""
        out, self._out = self._out, []
        with contextlib.suppress(OSError):
            for small, group in itertools.groupby(out, lambda part: len(part) < JOINED_BYTES):
                for part in (b"".join(group),) if small else group:
                    self._socket.sendall(part)


def _take(waiting: "deque[Part]", room: int) -> tuple[list[Part], int]:
    """Removes at most `room` bytes; returns their parts and their number."""
    taken: list[Part] = []
    size = 0
    while waiting and size < room:
        part = waiting.popleft()
        if len(part) > room - size:
            view = memoryview(part)
            waiting.appendleft(view[room - size :])
            part = view[: room - size]
        taken.append(part)
        size += len(part)
    return taken, size
