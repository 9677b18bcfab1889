"""Messages on a TLS stream arrive as several threads send them, and the end of the stream is reported."""

import random
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from support.members import PATIENCE, Door, Members, hello

from pathways.runtime.wire import encoding, tls_stream
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.frames import HEADER, ConnectionEnded


class Reader(threading.Thread):
    """Receives `count` messages from a connection."""

    def __init__(self, connection: Connection, count: int) -> None:
        super().__init__(daemon=True)
        self.connection, self.count = connection, count
        self.found: list[m.Message] = []
        self.start()

    def run(self) -> None:
        for _ in range(self.count):
            self.found.append(self.connection.receive())

    def all(self) -> list[m.Message]:
        self.join(PATIENCE)
        assert len(self.found) == self.count
        return self.found


def mixed(seed: int, count: int) -> list[m.Message]:
    """Makes messages of all sizes; the first number of each is the seed."""
    rng = random.Random(seed)
    sizes = [rng.choice((0, 1, 100, 1 << 14, 1 << 16, 300_000)) for _ in range(count)]
    return [
        m.PutArray(seed, i, 0, rng.randbytes(n)) if i % 3 else m.RunPlan(seed, i, 1 << 61, n, (n, n + 1))
        for i, n in enumerate(sizes)
    ]


def check_both_ways(one: Connection, two: Connection, threads: int, count: int) -> None:
    """Sends both ways from several threads, and checks that the messages of each thread arrive in order."""
    sent = {seed: mixed(seed, count) for seed in range(2 * threads)}
    readers = [Reader(two, threads * count), Reader(one, threads * count)]

    def post(connection: Connection, messages: list[m.Message]) -> None:
        for message in messages:
            connection.post(message)

    for seed, messages in sent.items():
        threading.Thread(target=post, args=((one, two)[seed % 2], messages), daemon=True).start()
    for side, reader in enumerate(readers):
        found: dict[int, list[m.Message]] = {}
        for message in reader.all():
            assert isinstance(message, m.PutArray | m.RunPlan)
            found.setdefault(message.array if isinstance(message, m.PutArray) else message.plan, []).append(message)
        assert found == {seed: messages for seed, messages in sent.items() if seed % 2 == side}


def test_several_threads_send_both_ways_at_once(door: Door) -> None:
    check_both_ways(*door.pair(), threads=4, count=60)


def test_bytes_sent_by_several_threads_are_not_interleaved(door: Door) -> None:
    there, here = door.pair()
    out: Any = there
    size, count = 3 * tls_stream.PIECE + 5, 5

    def send(value: int) -> None:
        for _ in range(count):
            out._stream.sendall(bytes([value]) * size)

    threads = [threading.Thread(target=send, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    raw: Any = here
    found, left = bytearray(1 << 20), size * count * len(threads)
    runs: list[int] = []
    while left:
        got = raw._stream.recv_into(memoryview(found))
        left -= got
        runs += (v for v in found[:got:1000] if not runs or v != runs[-1])
    for thread in threads:
        thread.join(PATIENCE)
    assert set(runs) == {0, 1, 2, 3} and len(runs) <= count * len(threads)


def test_an_open_connection_has_no_read_timeout(door: Door) -> None:
    ends: list[Any] = [*door.pair()]
    assert [end._stream._socket.gettimeout() for end in ends] == [None, None]


def test_large_frames_are_sent_both_ways_at_once(door: Door) -> None:
    one, two = door.pair()
    blobs = [random.Random(seed).randbytes(50_000_000) for seed in range(2)]
    readers = [Reader(one, 1), Reader(two, 1)]
    writers = [
        threading.Thread(target=c.post, args=(m.PutArray(0, 0, 0, b),)) for c, b in zip((two, one), blobs, strict=True)
    ]
    for writer in writers:
        writer.start()
    for reader, blob in zip(readers, blobs, strict=True):
        (found,) = reader.all()
        assert isinstance(found, m.PutArray) and found.blob == blob
    for writer in writers:
        writer.join(PATIENCE)


class SplittingSocket:
    """A socket that reads and writes a random number of bytes at a time."""

    def __init__(self, sock: socket.socket, seed: int) -> None:
        self._sock, self._rng = sock, random.Random(seed)

    def recv(self, most: int) -> bytes:
        return self._sock.recv(min(most, self._rng.choice((1, 2, 5, 100, 5000, 1 << 16))))

    def sendall(self, data: bytes) -> None:
        while data:
            size = self._rng.choice((1, 3, 50, 4000, 1 << 16))
            self._sock.sendall(data[:size])
            data = data[size:]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


@pytest.mark.parametrize("seed", range(5))
def test_messages_arrive_unchanged_however_the_network_splits_bytes(seed: int, members: Members) -> None:
    ends: list[Any] = [SplittingSocket(sock, seed) for sock in socket.socketpair()]
    streams: list[Any] = [None, None]
    keys = (members.keys("host").connecting, members.keys("client").listening)

    def greet(side: int) -> None:
        until = time.monotonic() + PATIENCE
        streams[side] = tls_stream.handshake(ends[side], keys[side], listens=bool(side), until=until)

    greeting = threading.Thread(target=greet, args=(1,))
    greeting.start()
    greet(0)
    greeting.join(PATIENCE)
    for stream in streams:
        stream.settimeout(None)
    one, two = (Connection(stream) for stream in streams)
    check_both_ways(one, two, threads=2, count=12)
    one.close()
    two.close()


class SlowSocket:
    """A socket that receives one byte a second, so that no single read reaches its timeout."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.now = iter(raw), 0.0
        self.waited: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def settimeout(self, seconds: float) -> None:
        self.waited.append(seconds)

    def recv(self, most: int) -> bytes:
        self.now += 1.0
        return bytes([next(self.raw)])


def test_a_handshake_of_one_byte_a_second_times_out(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    slow: Any = SlowSocket(hello(members))
    monkeypatch.setattr(tls_stream, "time", slow)
    with pytest.raises(TimeoutError):
        tls_stream.handshake(slow, members.keys("client").listening, listens=True, until=10.0)
    assert slow.now == 10.0 and slow.waited == [10.0 - n for n in range(10)]


@pytest.mark.parametrize("cut", [0, 5, 1000, 70_000])
def test_a_stream_that_ends_in_a_frame_raises_connection_ended(cut: int, door: Door) -> None:
    """The other end closes without a close message of TLS."""
    there, here = door.pair()
    raw: Any = there
    kind, payload, blob = encoding.encode(m.PutArray(1, 2, 3, bytes(100_000)))
    frame = HEADER.pack(len(payload) + len(blob), kind) + payload + blob
    raw._stream.sendall(frame[:cut])
    there.close()
    with pytest.raises(ConnectionEnded):
        here.receive()
    with pytest.raises(ConnectionEnded):
        for _ in range(100):
            here.post(m.PutArray(0, 0, 0, bytes(1 << 16)))
    door.pair()


def test_a_bit_changed_in_transit_ends_the_connection(door: Door) -> None:
    there, here = door.pair()
    raw: Any = there
    record = bytearray(raw._stream._encrypted(memoryview(b"x" * 100)))
    record[50] ^= 1
    raw._stream._socket.sendall(record)
    with pytest.raises(ConnectionEnded):
        here.receive()


def test_closing_wakes_reading_and_writing_threads(door: Door) -> None:
    one, two = door.pair()
    ended: list[str] = []

    def until_the_end(work: Callable[[], Any]) -> None:
        try:
            while True:
                work()
        except ConnectionEnded:
            ended.append("ended")

    works = (one.receive, lambda: one.post(m.PutArray(0, 0, 0, bytes(1 << 22))), two.receive)
    threads = [threading.Thread(target=until_the_end, args=(work,)) for work in works[:2]]
    for thread in threads:
        thread.start()
    two.receive()  # both threads work; nothing more is read, so that the writer blocks
    one.close()
    for thread in threads:
        thread.join(PATIENCE)
    assert ended == ["ended"] * 2
    two.close()
