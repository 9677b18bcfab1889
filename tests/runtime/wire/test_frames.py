"""Frames are written with few copies: small ones in one piece, large payloads as they are."""

import socket
from collections.abc import Iterator

import pytest

from pathways.runtime.wire.frames import HEADER, SMALL, ConnectionEnded, frame_of, in_one, send_all, send_now

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    here, there = socket.socketpair()
    with here, there:
        yield here, there


class Blocking:
    """A stream that is no socket, and takes all that is written."""

    def __init__(self) -> None:
        self.written = b""

    def sendall(self, data: bytes | memoryview, /) -> None:
        self.written += data

    def recv_into(self, buffer: memoryview, /) -> int:
        return 0

    def shutdown(self, how: int, /) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize(("size", "count"), [(0, 1), (SMALL, 1), (SMALL + 1, 2)])
def test_a_large_blob_is_not_copied_into_its_frame(size: int, count: int) -> None:
    payload, blob = b"text", bytes(max(size - 4, 0))
    pieces = frame_of(3, payload, blob)
    assert b"".join(pieces) == HEADER.pack(len(payload) + len(blob), 3) + payload + blob
    assert len(pieces) == count and (pieces[-1] is blob) == (count == 2)


@pytest.mark.parametrize(
    ("sizes", "is_joined"),
    [((5,), False), ((2, 3), True), ((2, 3, 0), True), ((SMALL - 1, 1), True), ((SMALL, 1), False), ((), True)],
)
def test_several_small_pieces_are_joined_to_one(sizes: tuple[int, ...], is_joined: bool) -> None:
    pieces = [bytes([number]) * size for number, size in enumerate(sizes)]
    assert in_one(pieces) == ([b"".join(pieces)] if is_joined else pieces)


def test_a_socket_takes_what_it_has_room_for_without_waiting(pair: Pair) -> None:
    here, there = pair
    assert not send_now(here, b"") and not send_now(here, b"abc")
    data = bytes(range(256)) * (1 << 14)
    rest = bytes(send_now(here, data))
    assert 0 < len(rest) < len(data) and data.endswith(rest)
    there.settimeout(10)
    received = b""
    while len(received) < 3 + len(data) - len(rest):
        received += there.recv(1 << 20)
    assert received == b"abc" + data[: len(data) - len(rest)]


def test_another_stream_takes_nothing_without_waiting() -> None:
    stream = Blocking()
    assert send_now(stream, b"abc") == b"abc" and not stream.written


def test_a_stream_that_has_ended_takes_nothing(pair: Pair) -> None:
    here, there = pair
    there.close()
    for send in (send_all, send_now):
        with pytest.raises(ConnectionEnded, match="Broken pipe"):
            send(here, b"abc")
