"""Messages on a connection under TLS arrive unchanged, and the end of the connection is reported."""

import random
import socket
import threading
import time
from typing import Any

import pytest
from support.members import PATIENCE, Door, Members
from support.streams import Stream, running_loop

from pathways.runtime.wire import encoding, tls_socket
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.frames import HEADER, ConnectionEnded
from pathways.runtime.wire.identity import ROLES
from pathways.runtime.wire.tls_socket import Handshake, TlsSocket, connect_under_tls


def mixed(seed: int, count: int) -> list[m.Message]:
    """Makes messages of all sizes; the first number of each is the seed."""
    rng = random.Random(seed)
    sizes = [rng.choice((0, 1, 100, 1 << 14, 1 << 16, 300_000)) for _ in range(count)]
    return [
        m.PutArray(seed, i, 0, rng.randbytes(n)) if i % 3 else m.RunPlan(seed, i, 1 << 61, n, (n, n + 1))
        for i, n in enumerate(sizes)
    ]


class SplittingSocket:
    """A socket that reads a random number of bytes at a time, and writes so, too, once `splits_writes` is set."""

    splits_writes = False

    def __init__(self, sock: socket.socket, seed: int) -> None:
        self._sock, self._rng = sock, random.Random(seed)

    def recv(self, most: int) -> bytes:
        return self._sock.recv(min(most, self._rng.choice((1, 2, 5, 100, 5000, 1 << 16))))

    def send(self, data: bytes) -> int:
        return self._sock.send(data[: self._rng.choice((1, 3, 50, 4000, 1 << 16))] if self.splits_writes else data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


@pytest.mark.parametrize("seed", range(5))
def test_messages_arrive_unchanged_however_the_network_splits_bytes(seed: int, members: Members) -> None:
    here, there = socket.socketpair()
    ends: list[Any] = [SplittingSocket(here, seed), SplittingSocket(there, seed + 1)]
    found: list[TlsSocket] = []
    shaking = Handshake(ends[1], members.keys("controller"), ROLES)

    def listen() -> None:
        there.setblocking(True)
        while not found:
            if (met := shaking.step()) is not None:
                found.append(met[0])

    listening = threading.Thread(target=listen)
    listening.start()
    stream, peer = connect_under_tls(ends[0], members.keys("host"), "controller", time.monotonic() + PATIENCE)
    listening.join(PATIENCE)
    assert peer.role == "controller"
    for end in ends:
        end.splits_writes = True
    stream.settimeout(None)
    messages = mixed(seed, 40)
    with running_loop() as loop:
        far, near = Stream(loop, Connection(found[0])), Stream(loop, Connection(stream))
        far.post(*messages)
        near.post(*messages)
        assert [near.receive() for _ in messages] == messages
        assert [far.receive() for _ in messages] == messages


class SlowSocket:
    """A socket that receives one byte a second, so that no single read reaches its timeout."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waited: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def settimeout(self, seconds: float) -> None:
        self.waited.append(seconds)

    def sendall(self, data: bytes) -> None: ...

    def recv(self, most: int) -> bytes:
        self.now += 1.0
        return b"\x16\x03\x01\x40\x00\x01\xff\xff\xff\x00"[int(self.now) - 1 :][:1]

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def test_a_handshake_of_one_byte_a_second_times_out(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    slow: Any = SlowSocket()
    monkeypatch.setattr(tls_socket, "time", slow)
    with pytest.raises(TimeoutError):
        connect_under_tls(slow, members.keys("client"), "controller", until=5.0)
    assert slow.now == 5.0 and slow.waited[-5:] == [5.0 - n for n in range(5)]


@pytest.mark.parametrize("cut", [0, 5, 1000, 70_000])
def test_a_stream_that_ends_in_a_frame_raises_connection_ended(cut: int, door: Door) -> None:
    """The other end closes without a close message of TLS."""
    there, here = door.pair()
    raw: Any = there
    kind, payload, blob = encoding.encode(m.PutArray(1, 2, 3, bytes(100_000)))
    frame = HEADER.pack(len(payload) + len(blob), kind) + payload + blob
    assert raw._transport.send(frame[:cut]) == cut
    there.close()
    with pytest.raises(ConnectionEnded):
        here.receive()
    with pytest.raises(ConnectionEnded):
        for _ in range(100):
            here.post(m.PutArray(0, 0, 0, bytes(1 << 16)))
    door.pair()


def test_a_bit_changed_in_transit_ends_the_connection(door: Door) -> None:
    there, here = door.pair()
    stream: Any = there
    stream = stream._transport
    stream._tls.write(b"x" * 100)
    record = bytearray(stream._outgoing.read())
    record[50] ^= 1
    stream._socket.sendall(record)
    with pytest.raises(ConnectionEnded):
        here.receive()
