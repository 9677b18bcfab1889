"""A frame reader returns complete frames for every size of reads, and many small frames of one read."""

import random

import pytest

from pathways.runtime.wire.encoding import encode, most_bytes
from pathways.runtime.wire.frames import READ, ByteStream, ConnectionEnded, FrameReader, frame_of
from pathways.runtime.wire.messages import Beat, Done, Message, PutArray


class Pieces:
    """A stream that returns at most `most` bytes a read, and counts the reads."""

    def __init__(self, data: bytes, most: int) -> None:
        self.data, self.most, self.calls = data, most, 0

    def recv_into(self, buffer: memoryview, /) -> int:
        self.calls += 1
        part, self.data = self.data[: min(self.most, len(buffer))], self.data[min(self.most, len(buffer)) :]
        buffer[: len(part)] = part
        return len(part)

    def sendall(self, data: bytes | memoryview, /) -> None: ...
    def shutdown(self, how: int, /) -> None: ...
    def close(self) -> None: ...


def raw(messages: list[Message]) -> bytes:
    return b"".join(bytes(piece) for message in messages for piece in frame_of(*encode(message)))


def read(stream: ByteStream, count: int) -> list[tuple[int, bytes]]:
    reader = FrameReader(stream, most_bytes)
    found = [reader.receive() for _ in range(count)]
    with pytest.raises(ConnectionEnded):
        reader.receive()
    return [(kind, bytes(payload)) for kind, payload in found]


def wanted(messages: list[Message]) -> list[tuple[int, bytes]]:
    return [(kind, payload + blob) for kind, payload, blob in map(encode, messages)]


@pytest.mark.parametrize("most", [1, 7, 100, READ - 1, READ, 1 << 20])
def test_frames_are_complete_for_every_size_of_reads(most: int) -> None:
    rng = random.Random(most)
    sizes = [0, 1, READ - 60, READ, READ + 1, 3 * READ] if most > 50 else [0, 1, 50]
    messages: list[Message] = [PutArray(n, 0, 0, rng.randbytes(rng.choice(sizes))) for n in range(30)]
    messages += [Done(n, n) for n in range(30)]
    rng.shuffle(messages)
    assert read(Pieces(raw(messages), most), len(messages)) == wanted(messages)


def test_many_small_frames_take_one_read() -> None:
    messages: list[Message] = [Beat(n, n) for n in range(100)]
    stream = Pieces(raw(messages), 1 << 20)
    assert read(stream, 100) == wanted(messages)
    assert stream.calls == 2  # the second read finds the end
