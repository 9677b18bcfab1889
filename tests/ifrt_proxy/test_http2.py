"""Tests the HTTP/2 side of the proxy by frames that are written by hand."""

import socket
import struct
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import PATIENCE

from pathways.ifrt_proxy import connection as c
from pathways.ifrt_proxy import grpc_calls as g
from pathways.ifrt_proxy import http2 as h
from pathways.ifrt_proxy.connection import Connection
from pathways.ifrt_proxy.grpc_calls import Call, CallFailed, MessageReader, Replies, Unary

_hpack: Any = hpack
BIG = bytes(range(256)) * 1000


def message(data: bytes) -> bytes:
    return struct.pack(">BI", 0, len(data)) + data


def echo(data: bytes) -> Iterable[Sequence[g.Part]]:
    if data == b"fail":
        raise CallFailed(g.NOT_FOUND, "no such thing\n\u00e4")
    return ((BIG if data == b"big" else data, b"!"),)


@dataclass
class Seen:
    """A call that notes what happens to it, and gives no credit for what it receives."""

    events: list[str] = field(default_factory=list[str])

    def receive(self, reader: h.FrameReader, size: int) -> int:
        self.events.append(f"{len(reader.exactly(size))} bytes")
        return 0

    def end(self) -> None:
        self.events.append("end")

    def cancel(self) -> None:
        self.events.append("cancel")


class Client:
    """One connection to a server of two methods: /echo, and /seen, which answers nothing."""

    def __init__(self) -> None:
        self.socket, served = socket.socketpair()
        self.socket.settimeout(PATIENCE)
        self.seen = Seen()
        methods: Mapping[bytes, g.Opener] = {b"/echo": lambda replies, _: Unary(replies, echo), b"/seen": self._open}
        self.connection = Connection(served, methods)
        self.thread = threading.Thread(target=self._serve, args=(served,))
        self.thread.start()
        self.reader = h.FrameReader(self.socket.recv_into)
        self.decoder = _hpack.Decoder()
        self.encoder = _hpack.Encoder()

    def _serve(self, served: socket.socket) -> None:
        self.connection.serve()
        served.close()

    def _open(self, replies: Replies, headers: Mapping[bytes, bytes]) -> Call:
        return self.seen

    def send(self, *data: bytes) -> None:
        self.socket.sendall(b"".join(data))

    def headers(self, path: str, stream: int = 1, flags: int = h.END_HEADERS) -> bytes:
        return h.frame(h.HEADERS, flags, stream, self.encoder.encode({":method": "POST", ":path": path}))

    def next(self, kind: int) -> tuple[h.Frame, bytes]:
        """Reads the next frame of a type; others are skipped."""
        while True:
            frame = self.reader.header()
            payload = self.reader.exactly(frame.length)
            if frame.kind == kind:
                return frame, payload

    def answer(self) -> tuple[bytes, dict[str, str]]:
        """Reads the messages of the next stream that ends, and its trailers."""
        data, headers = b"", dict[str, str]()
        while True:
            frame = self.reader.header()
            payload = self.reader.exactly(frame.length)
            if frame.kind == h.DATA:
                data += payload
            elif frame.kind == h.HEADERS:
                headers |= dict(self.decoder.decode(payload))
                if frame.flags & h.END_STREAM:
                    return data, headers


@contextmanager
def client(start: bytes = h.PREFACE + h.settings({})) -> Generator[Client]:
    one = Client()
    one.send(start)
    try:
        yield one
    finally:
        one.socket.close()
        one.thread.join(PATIENCE)
    assert not one.thread.is_alive()


def test_a_request_in_any_frames_is_answered() -> None:
    with client() as one:
        data = message(b"hello")
        one.send(one.headers("/echo"), h.frame(h.DATA, h.END_STREAM, 1, data))
        assert one.answer() == (message(b"hello!"), one_status(0))
        padded = b"\x03" + data[:4] + b"\0\0\0"
        one.send(one.headers("/echo", 3), h.frame(h.DATA, h.PADDED, 3, padded), h.frame(h.DATA, 0, 3, data[4:]))
        one.send(h.frame(h.DATA, h.END_STREAM, 3))
        assert one.answer() == (message(b"hello!"), one_status(0))
        block = one.headers("/echo", 5)[9:]
        one.send(h.frame(h.HEADERS, h.HAS_PRIORITY, 5, bytes(5) + block[:1]))
        one.send(h.frame(h.CONTINUATION, h.END_HEADERS, 5, block[1:]), h.frame(h.DATA, h.END_STREAM, 5, data))
        assert one.answer() == (message(b"hello!"), one_status(0))


def one_status(code: int, text: str = "") -> dict[str, str]:
    return {":status": "200", "content-type": "application/grpc", "grpc-status": str(code), "grpc-message": text}


def test_failed_calls_and_unknown_methods_end_in_a_status() -> None:
    with client() as one:
        one.send(one.headers("/echo"), h.frame(h.DATA, h.END_STREAM, 1, message(b"fail")))
        assert one.answer() == (b"", one_status(g.NOT_FOUND, "no such thing%0A%C3%A4"))
        one.send(one.headers("/nothing", 3), h.frame(h.DATA, h.END_STREAM, 3, message(b"")))
        assert one.answer() == (b"", one_status(g.UNIMPLEMENTED, "the method /nothing"))


def test_pings_and_settings_are_acknowledged() -> None:
    with client() as one:
        one.send(h.frame(h.PING, 0, 0, b"12345678"))
        frame, payload = one.next(h.PING)
        assert (frame.flags, payload) == (h.ACK, b"12345678")
        one.send(h.settings({h.FRAME_SIZE: 1 << 20}))
        assert one.next(h.SETTINGS)[0].flags == h.ACK


def test_messages_wait_for_the_windows_of_the_client() -> None:
    with client(h.PREFACE + h.settings({h.INITIAL_WINDOW: 10})) as one:
        data = b"0123456789abcdefghij"
        one.send(one.headers("/echo"), h.frame(h.DATA, h.END_STREAM, 1, message(data)))
        wanted = message(data + b"!")
        assert one.next(h.DATA)[1] == wanted[:10]
        one.send(h.window_update(1, 1))
        assert one.next(h.DATA)[1] == wanted[10:11]
        one.send(h.settings({h.INITIAL_WINDOW: 12}))
        assert one.next(h.DATA)[1] == wanted[11:13]
        one.send(h.window_update(1, 100))
        assert one.answer()[0] == wanted[13:]


def test_the_window_of_a_connection_is_shared_by_its_streams() -> None:
    with client(h.PREFACE + h.settings({h.INITIAL_WINDOW: 1 << 20})) as one:
        one.send(one.headers("/echo"), h.frame(h.DATA, h.END_STREAM, 1, message(b"big")))
        got = b""
        while len(got) < h.DEFAULT_WINDOW:
            got += one.next(h.DATA)[1]
        assert len(got) == h.DEFAULT_WINDOW
        one.send(h.window_update(0, 1 << 20))
        assert got + one.answer()[0] == message(BIG + b"!")


def test_a_client_that_ends_or_resets_cancels_its_calls() -> None:
    with client() as one:
        one.send(one.headers("/seen"), h.frame(h.RST_STREAM, 0, 1, struct.pack(">I", h.CANCEL)))
        one.send(one.headers("/seen", 3), h.frame(h.DATA, h.END_STREAM, 3, b"abc"), one.headers("/seen", 5))
    assert one.seen.events == ["cancel", "3 bytes", "end", "cancel", "cancel"]


def test_a_call_whose_client_has_ended_can_still_be_canceled() -> None:
    with client() as one:
        one.send(one.headers("/seen"), h.frame(h.DATA, h.END_STREAM, 1, b"abc"))
        one.send(h.frame(h.RST_STREAM, 0, 1, struct.pack(">I", h.CANCEL)), h.frame(h.PING, 0, 0, bytes(8)))
        one.next(h.PING)
        assert one.seen.events == ["3 bytes", "end", "cancel"]
        one.send(one.headers("/seen", 3), h.frame(h.DATA, h.END_STREAM, 3, b"ab"))
    assert one.seen.events[3:] == ["2 bytes", "end", "cancel"]


def test_nothing_is_kept_of_streams_that_have_ended() -> None:
    with client() as one:
        for n in range(200):
            path, stream = ("/echo", "/nothing", "/seen", "/echo")[n % 4], 2 * n + 1
            one.send(one.headers(path, stream))
            if path == "/seen" or n % 8 == 0:
                one.send(h.frame(h.RST_STREAM, 0, stream, struct.pack(">I", h.CANCEL)))
            else:
                one.send(h.frame(h.DATA, h.END_STREAM, stream, message(b"hello")))
                one.answer()
        one.send(h.frame(h.PING, 0, 0, bytes(8)))
        one.next(h.PING)
        kept: Any = one.connection
        assert (len(kept._calls), len(kept._replies), list(kept._open_windows)) == (0, 0, [0])
        assert kept._out == []


def test_requests_of_one_call_are_limited() -> None:
    for data in (message(b"a") * 2, struct.pack(">BI", 0, g.MAX_UNARY_BYTES + 1)):
        with client() as one:
            one.send(one.headers("/echo"), h.frame(h.DATA, 0, 1, data))
            assert struct.unpack(">II", one.next(h.GOAWAY)[1])[1] == h.PROTOCOL_ERROR


def test_the_windows_of_unread_responses_are_limited_by_the_number_of_streams() -> None:
    with client(h.PREFACE + h.settings({h.INITIAL_WINDOW: 0})) as one:
        for n in range(c.MAX_CALLS + 1):
            one.send(one.headers("/echo", 2 * n + 1), h.frame(h.DATA, h.END_STREAM, 2 * n + 1, message(b"hello")))
        frame, payload = one.next(h.RST_STREAM)
        assert (frame.stream, payload[3]) == (2 * c.MAX_CALLS + 1, h.REFUSED_STREAM)


def test_headers_can_be_read_by_a_client_without_a_table() -> None:
    with client(h.PREFACE + h.settings({h.TABLE_SIZE: 0})) as one:
        one.decoder.max_allowed_table_size = 0
        for stream in (1, 3, 5):
            one.send(one.headers("/echo", stream), h.frame(h.DATA, h.END_STREAM, stream, message(b"hello")))
            assert one.answer() == (message(b"hello!"), one_status(0))


def test_a_connection_whose_client_does_not_read_can_be_closed() -> None:
    with client() as one:
        one.send(h.window_update(0, 1 << 30), h.settings({h.INITIAL_WINDOW: 1 << 30}))
        one.next(h.SETTINGS)
        for n in range(20):  # more than the buffers of the sockets hold
            one.send(one.headers("/echo", 2 * n + 3), h.frame(h.DATA, h.END_STREAM, 2 * n + 3, message(b"big")))
        one.connection.close()
        one.thread.join(PATIENCE)
        assert not one.thread.is_alive()


def test_a_client_with_too_many_streams_is_refused() -> None:
    with client() as one:
        one.send(*(one.headers("/seen", 2 * n + 1) for n in range(c.MAX_CALLS + 1)))
        frame, payload = one.next(h.RST_STREAM)
        assert (frame.stream, payload[3]) == (2 * c.MAX_CALLS + 1, h.REFUSED_STREAM)


WRONG = {
    "another protocol": (b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n", h.PROTOCOL_ERROR),
    "data without a stream": (h.frame(h.DATA, 0, 0, b"x"), h.PROTOCOL_ERROR),
    "data of a stream not opened": (h.frame(h.DATA, 0, 1, b"x"), h.PROTOCOL_ERROR),
    "a large frame": (h.frame_header(h.DATA, 0, 1, h.MAX_OWN_FRAME_BYTES + 1), h.FRAME_SIZE_ERROR),
    "large settings": (h.frame_header(h.SETTINGS, 0, 0, 60_000), h.FRAME_SIZE_ERROR),
    "settings of a wrong size": (h.frame(h.SETTINGS, 0, 0, b"12345"), h.FRAME_SIZE_ERROR),
    "a window too large": (h.settings({h.INITIAL_WINDOW: 1 << 31}), h.FLOW_CONTROL_ERROR),
    "a frame size too small": (h.settings({h.FRAME_SIZE: 1}), h.PROTOCOL_ERROR),
    "credit beyond all windows": (h.window_update(0, h.MAX_WINDOW), h.FLOW_CONTROL_ERROR),
    "a window update of a wrong size": (h.frame(h.WINDOW_UPDATE, 0, 0, b"1"), h.FRAME_SIZE_ERROR),
    "an even stream": (h.frame(h.HEADERS, h.END_HEADERS, 2, b""), h.PROTOCOL_ERROR),
    "headers that are no HPACK": (h.frame(h.HEADERS, h.END_HEADERS, 1, b"\xff" * 30), h.COMPRESSION_ERROR),
    "padding without an end": (h.frame(h.HEADERS, h.END_HEADERS | h.PADDED, 1, b"\x09abc"), h.PROTOCOL_ERROR),
    "no padding": (h.frame(h.HEADERS, h.END_HEADERS | h.PADDED, 1), h.PROTOCOL_ERROR),
    "another frame inside of headers": (h.frame(h.HEADERS, 0, 1) + h.frame(h.PING, 0, 0, bytes(8)), h.PROTOCOL_ERROR),
    "headers without an end": (
        h.frame(h.HEADERS, 0, 1) + h.frame(h.CONTINUATION, 0, 1, bytes(60_000)) * 2,
        h.PROTOCOL_ERROR,
    ),
    "a continuation of nothing": (h.frame(h.CONTINUATION, 0, 1), h.PROTOCOL_ERROR),
    "a push": (h.frame(h.PUSH_PROMISE, 0, 1), h.PROTOCOL_ERROR),
}


@pytest.mark.parametrize(("sent", "code"), WRONG.values(), ids=WRONG)
def test_violations_of_the_protocol_end_the_connection(sent: bytes, code: int) -> None:
    start = b"" if sent.startswith(b"GET") else h.PREFACE + h.settings({})
    with client(start) as one:
        one.send(sent)
        payload = one.next(h.GOAWAY)[1]
        assert struct.unpack(">II", payload)[1] == code


def test_data_beyond_the_window_ends_the_connection() -> None:
    with client() as one:
        one.send(one.headers("/seen"))
        for _ in range(c.STREAM_WINDOW_BYTES // h.MAX_OWN_FRAME_BYTES):
            one.send(h.frame(h.DATA, 0, 1, bytes(h.MAX_OWN_FRAME_BYTES)))
        one.send(h.frame(h.DATA, 0, 1, b"x"))
        assert struct.unpack(">II", one.next(h.GOAWAY)[1])[1] == h.FLOW_CONTROL_ERROR


def test_a_compressed_message_ends_the_connection() -> None:
    with client() as one:
        one.send(one.headers("/echo"), h.frame(h.DATA, 0, 1, b"\x01\0\0\0\x01x"))
        assert struct.unpack(">II", one.next(h.GOAWAY)[1])[1] == h.PROTOCOL_ERROR


@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(1, 30), min_size=1))
def test_messages_are_the_same_however_they_arrive(messages: list[bytes], sizes: list[int]) -> None:
    data, reader, found = b"".join(map(message, messages)), MessageReader(), list[bytes]()
    number = 0
    while data:
        size = sizes[number % len(sizes)]
        found += reader.messages(data[:size])
        data, number = data[size:], number + 1
    assert found == messages


@given(
    st.lists(
        st.builds(h.frame, st.integers(0, 12), st.integers(0, 255), st.integers(0, 9), st.binary(max_size=20))
        | st.binary(max_size=30),
        max_size=8,
    )
)
def test_random_frames_harm_only_their_connection(frames: list[bytes]) -> None:
    with client() as one:
        one.send(one.headers("/echo"), *frames)
        one.socket.shutdown(socket.SHUT_WR)
        b"".join(iter(lambda: one.socket.recv(1 << 16), b""))
