"""A frame reader returns complete frames for every size of reads, and many small frames of one read."""

import random
import socket
import threading
from typing import Any

import pytest

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire.encoding import encode, max_bytes
from pathways.runtime.wire.frames import READ_BYTES, ConnectionEnded, FrameReader, frame_of
from pathways.runtime.wire.messages import Beat, Done, Message, PutArray


class Pieces:
    """A stream that returns at most `most` bytes a read, and counts the reads."""

    def __init__(self, data: bytes, most: int) -> None:
        self.data, self.most, self.calls = data, most, 0

    def recv(self, size: int, /) -> bytes:
        self.calls += 1
        size = min(self.most, size)
        part, self.data = self.data[:size], self.data[size:]
        return part


def raw(messages: list[Message]) -> bytes:
    return b"".join(bytes(piece) for message in messages for piece in frame_of(*encode(message)))


def read(stream: Any) -> list[tuple[int, bytes]]:
    """Reads all frames of a stream until it ends."""
    reader = FrameReader(max_bytes)
    found: list[tuple[int, bytes]] = []
    with pytest.raises(ConnectionEnded):
        while True:
            reader.read(stream)
            found += [(kind, bytes(payload)) for kind, payload in reader.frames()]
    return found


def wanted(messages: list[Message]) -> list[tuple[int, bytes]]:
    return [(kind, payload + blob) for kind, payload, blob in map(encode, messages)]


def shuffled(rng: random.Random, largest: int) -> list[Message]:
    """Makes messages of many sizes in random order."""
    sizes = [0, 1, 50, READ_BYTES - 60, READ_BYTES, READ_BYTES + 1, 3 * READ_BYTES]
    fitting = [size for size in sizes if size <= largest]
    messages: list[Message] = [PutArray(n, 0, 0, rng.randbytes(rng.choice(fitting))) for n in range(30)]
    messages += [Done(n, n) for n in range(30)]
    rng.shuffle(messages)
    return messages


@pytest.mark.parametrize("most", [1, 7, 100, READ_BYTES - 1, READ_BYTES, 1 << 20])
def test_frames_are_complete_for_every_size_of_reads(most: int) -> None:
    messages = shuffled(random.Random(most), 50 if most < 50 else 1 << 20)
    assert read(Pieces(raw(messages), most)) == wanted(messages)


@pytest.mark.parametrize("seed", range(3))
def test_frames_of_a_socket_are_complete_however_it_is_written(seed: int) -> None:
    rng = random.Random(seed)
    messages = shuffled(rng, 1 << 20)
    data, (here, there) = raw(messages), socket.socketpair()

    def write() -> None:
        at = 0
        with there:
            while at < len(data):
                at += there.send(data[at : at + rng.choice((1, 9, 1000, 200_000))])

    writing = threading.Thread(target=write)
    writing.start()
    with here:
        assert read(here) == wanted(messages)
    writing.join(60)


def test_many_small_frames_take_one_read() -> None:
    messages: list[Message] = [Beat(n, n) for n in range(100)]
    stream = Pieces(raw(messages), 1 << 20)
    assert read(stream) == wanted(messages)
    assert stream.calls == 2  # the second read finds the end


def test_a_frame_that_is_too_large_is_refused_behind_those_before_it() -> None:
    reader = FrameReader(lambda kind: 100)
    stream: Any = Pieces(b"".join(bytes(p) for n in (100, 101) for p in frame_of(1, bytes(n))), 1 << 20)
    reader.read(stream)
    frames = reader.frames()
    assert next(frames) == (1, bytes(100))
    with pytest.raises(PathwaysError, match="101 bytes"):
        next(frames)
