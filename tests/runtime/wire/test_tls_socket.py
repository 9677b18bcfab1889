"""A socket under TLS that is never waited for carries all bytes, in their order, whatever the network takes."""

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
from pathways.runtime.wire.tls_socket import MOST_HANDSHAKE, Handshake, TlsSocket

READ = 1 << 16


class Pair:
    """A host that connects, by hand, and what a loop has of it."""

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
        """Both ends, when they have met."""
        found = None
        while found is None:
            with contextlib.suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
            self.there.sendall(self.outgoing.read())
            found = self.handshake.step()
            if found is None:
                self.incoming.write(self.there.recv(READ))
        self.there.setblocking(False)
        stream, peer = found
        assert (peer.role, peer.name) == ("host", "one")
        return stream, TlsSocket(self.there, self.tls, self.incoming, self.outgoing)

    def close(self) -> None:
        self.there.close()
        self.here.close()


def has_more(stream: "TlsSocket | socket.socket", seconds: float = PATIENCE) -> bool:
    """Waits until there is something to read."""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return bool(selector.select(seconds))


def next_of(stream: TlsSocket) -> bytes:
    while has_more(stream):
        with contextlib.suppress(BlockingIOError):  # half a record
            return stream.recv(READ)
    raise TimeoutError


@pytest.fixture
def pair(members: Members) -> Iterator[Pair]:
    made = Pair(members, 16_384)
    yield made
    made.close()


def test_all_bytes_come_in_their_order_however_few_are_taken(pair: Pair) -> None:
    """As `Peer` sends: what was not said to have gone comes again, with what was posted meanwhile behind it."""
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
                        found += target.recv(READ)
                    except BlockingIOError:  # half a record
                        continue
        assert found == data and sent == len(data) and not waiting
    assert here.send(b"") == 0


def test_small_messages_come_one_by_one_and_joined(pair: Pair) -> None:
    here, there = pair.meet()
    assert [there.send(b"one"), there.send(b"two")] == [3, 3]
    assert next_of(here) + (next_of(here) if has_more(here, 0.1) else b"") == b"onetwo"
    with pytest.raises(BlockingIOError):
        here.recv(READ)


def test_an_end_is_seen_said_or_not(pair: Pair, members: Members) -> None:
    here, _ = pair.meet()
    with pytest.raises(ssl.SSLWantReadError):
        pair.tls.unwrap()  # says that this is the end, and leaves the socket open
    pair.there.send(pair.outgoing.read())
    assert next_of(here) == b""
    other = Pair(members)
    here, _ = other.meet()
    other.there.close()
    assert next_of(here) == b""
    other.close()


def test_what_is_changed_on_its_way_ends_the_stream(pair: Pair) -> None:
    here, _ = pair.meet()
    pair.tls.write(b"run this")
    data = bytearray(pair.outgoing.read())
    data[-3] ^= 1
    pair.there.send(data)
    with pytest.raises(ssl.SSLError):
        next_of(here)


def test_a_handshake_that_does_not_end_is_ended(pair: Pair) -> None:
    """Records of a handshake of 16 MB, of which no byte is looked at before all are there."""
    record = b"\x16\x03\x01\x40\x00"
    hello = b"\x01\x00\xff\xff" + bytes((1 << 14) - 4)
    with pytest.raises((OSError, PathwaysError)):
        for number in range(MOST_HANDSHAKE // len(hello) + 2):
            pair.there.sendall(record + (hello if number == 0 else bytes(1 << 14)))
            while has_more(pair.here, 0.05):
                pair.handshake.step()


def test_what_speaks_before_it_is_let_in_is_not(pair: Pair) -> None:
    with pytest.raises(ConnectionEnded, match="before it is let in"):
        while True:
            with contextlib.suppress(ssl.SSLWantReadError):
                pair.tls.do_handshake()
                pair.tls.write(b"run this")
            pair.there.sendall(pair.outgoing.read())
            pair.handshake.step()
            pair.incoming.write(pair.there.recv(READ))
