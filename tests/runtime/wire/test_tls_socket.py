"""A TLS socket that never blocks delivers all bytes in order, however few the network accepts."""

import contextlib
import random
import selectors
import socket
import ssl
from collections.abc import Iterator

import pytest
from support.members import HERE, PATIENCE, Members

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.identity import ROLES
from pathways.runtime.wire.tls_socket import MAX_HANDSHAKE_BYTES, Handshake, TlsSocket

READ_BYTES = 1 << 16


class Pair:
    """A host that connects by hand, and the handshake that a loop has with that host."""

    def __init__(self, members: Members, buffer: int | None = None) -> None:
        with socket.create_server(HERE) as server:
            self.there = socket.create_connection(server.getsockname())
            self.here = server.accept()[0]
        for sock in (self.there, self.here) if buffer else ():
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer or 0)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = members.keys("host").connecting
        self.tls = context.wrap_bio(self.incoming, self.outgoing)
        self.handshake = Handshake(self.here, members.keys("controller"), ROLES)

    def meet(self) -> tuple[TlsSocket, TlsSocket]:
        """Completes the handshake; returns both ends."""
        found = None
        while found is None:
            with contextlib.suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
            self.there.sendall(self.outgoing.read())
            found = self.handshake.step()
            if found is None:
                self.incoming.write(self.there.recv(READ_BYTES))
        self.there.setblocking(False)
        stream, peer = found
        assert (peer.role, peer.name) == ("host", "one")
        return stream, TlsSocket(self.there, self.tls, self.incoming, self.outgoing)

    def close(self) -> None:
        self.there.close()
        self.here.close()


def has_more(stream: "TlsSocket | socket.socket", seconds: float = PATIENCE) -> bool:
    """Waits until there are bytes to read; returns whether there are."""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return bool(selector.select(seconds))


def next_bytes(stream: TlsSocket) -> bytes:
    while has_more(stream):
        with contextlib.suppress(BlockingIOError):  # half a record
            return stream.recv(READ_BYTES)
    raise TimeoutError


@pytest.fixture
def pair(members: Members) -> Iterator[Pair]:
    made = Pair(members, 16_384)
    yield made
    made.close()


def test_all_bytes_arrive_in_order_when_writes_are_partial(pair: Pair) -> None:
    """Sends as `Peer` does: unsent bytes are passed again, followed by the bytes posted in the meantime."""
    rng = random.Random(1)
    here, there = pair.meet()
    for source, target in ((here, there), (there, here)):
        data = rng.randbytes(3_000_000)
        posted = sent = 0
        waiting, found = b"", bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(target, selectors.EVENT_READ)
            while len(found) < len(data):
                size = rng.choice([1, 100, 20_000, 500_000])
                waiting += data[posted : posted + size]
                posted = min(posted + size, len(data))
                count = source.send(waiting)
                sent, waiting = sent + count, waiting[count:]
                for _ in selector.select(0):
                    try:
                        found += target.recv(READ_BYTES)
                    except BlockingIOError:  # half a record
                        continue
        assert found == data and sent == len(data) and not waiting
    assert here.send(b"") == 0


def test_small_messages_arrive_separately_or_joined(pair: Pair) -> None:
    here, there = pair.meet()
    assert [there.send(b"one"), there.send(b"two")] == [3, 3]
    assert next_bytes(here) + (next_bytes(here) if has_more(here, 0.1) else b"") == b"onetwo"
    with pytest.raises(BlockingIOError):
        here.recv(READ_BYTES)


def test_the_end_of_a_stream_is_seen_with_and_without_a_tls_close(pair: Pair, members: Members) -> None:
    here, _ = pair.meet()
    with pytest.raises(ssl.SSLWantReadError):
        pair.tls.unwrap()  # sends the close message of TLS, and leaves the socket open
    pair.there.send(pair.outgoing.read())
    assert next_bytes(here) == b""
    other = Pair(members)
    here, _ = other.meet()
    other.there.close()
    assert next_bytes(here) == b""
    other.close()


def test_bytes_changed_in_transit_raise_an_error(pair: Pair) -> None:
    here, _ = pair.meet()
    pair.tls.write(b"run this")
    data = bytearray(pair.outgoing.read())
    data[-3] ^= 1
    pair.there.send(data)
    with pytest.raises(ssl.SSLError):
        next_bytes(here)


def test_an_endless_handshake_is_aborted(pair: Pair) -> None:
    """Sends records of a handshake message of 16 MB, which TLS does not read before all of them have arrived."""
    record = b"\x16\x03\x01\x40\x00"
    hello = b"\x01\x00\xff\xff" + bytes((1 << 14) - 4)
    with pytest.raises((OSError, PathwaysError)):
        for number in range(MAX_HANDSHAKE_BYTES // len(hello) + 2):
            pair.there.sendall(record + (hello if number == 0 else bytes(1 << 14)))
            while has_more(pair.here, 0.05):
                pair.handshake.step()


def test_a_peer_that_sends_data_before_its_admission_is_refused(pair: Pair) -> None:
    with pytest.raises(ConnectionEnded, match="before it was accepted"):
        while True:
            with contextlib.suppress(ssl.SSLWantReadError):
                pair.tls.do_handshake()
                pair.tls.write(b"run this")
            pair.there.sendall(pair.outgoing.read())
            pair.handshake.step()
            pair.incoming.write(pair.there.recv(READ_BYTES))
