"""Frames are written with few copies: small ones in one piece, large payloads as they are."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from pathways.runtime.wire.encoding import max_bytes
from pathways.runtime.wire.frames import (
    HEADER,
    JOINED_BYTES,
    STREAM_ENDED,
    ConnectionEnded,
    FrameReader,
    frame_of,
    send_all,
)

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    here, there = socket.socketpair()
    with here, there:
        yield here, there


@pytest.mark.parametrize(("size", "count"), [(0, 1), (JOINED_BYTES, 1), (JOINED_BYTES + 1, 2)])
def test_a_large_blob_is_not_copied_into_its_frame(size: int, count: int) -> None:
    payload, blob = b"text", bytes(max(size - 4, 0))
    pieces = frame_of(3, payload, blob)
    assert b"".join(pieces) == HEADER.pack(len(payload) + len(blob), 3) + payload + blob
    assert len(pieces) == count and (pieces[-1] is blob) == (count == 2)


class Counting:
    """A stream that takes at most so many bytes a call, and counts the calls."""

    def __init__(self, most: int) -> None:
        self.most, self.written, self.calls = most, b"", 0

    def send(self, data: bytes | memoryview, /) -> int:
        self.calls += 1
        self.written += data[: self.most]
        return min(len(data), self.most)


@pytest.mark.parametrize(
    ("sizes", "calls"),
    [
        ((5,), 1),
        ((2, 3), 1),
        ((2, 3, 0), 1),
        ((JOINED_BYTES - 1, 1), 1),
        ((JOINED_BYTES, 1), 2),
        ((), 0),
        ((1 << 20, 3), 5),
    ],
)
def test_small_pieces_are_sent_by_one_write_and_all_bytes_are_sent(sizes: tuple[int, ...], calls: int) -> None:
    pieces = [bytes([number]) * size for number, size in enumerate(sizes)]
    stream: Any = Counting(1 << 18)
    send_all(stream, pieces)
    assert stream.written == b"".join(pieces) and stream.calls == calls


def test_a_stream_that_has_ended_gives_one_reason_for_reads_and_writes(pair: Pair) -> None:
    here, there = pair
    here.sendall(b"data that nobody reads, so that the system resets the stream")
    there.close()
    reader = FrameReader(max_bytes)
    with pytest.raises(ConnectionEnded, match=STREAM_ENDED):  # a reset
        reader.read(here)
    with pytest.raises(ConnectionEnded, match=STREAM_ENDED):  # the end of the stream
        reader.read(here)
    with pytest.raises(ConnectionEnded, match=STREAM_ENDED):  # a broken pipe
        send_all(here, [b"abc"])
