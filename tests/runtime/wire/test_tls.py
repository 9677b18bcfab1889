"""Messages under TLS arrive as they were sent, whoever sends at once; and no one but a member is let in."""

import contextlib
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.members import HERE, PATIENCE, Door, Members

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire import messages as m
from pathways.runtime.wire import tls, tls_stream
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.frames import HEADER, ConnectionEnded
from pathways.runtime.wire.tls import Keys, Listener, connect

SOON = 0.3
"""Seconds that a handshake may take where it is to fail."""


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Members:
    return Members(tmp_path_factory.mktemp("members"))


@pytest.fixture
def door(members: Members) -> Iterator[Door]:
    with Door(members) as door:
        yield door


class Reader(threading.Thread):
    """Takes so many messages from a connection."""

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
    """Messages of all sizes; the first number of each is the seed."""
    rng = random.Random(seed)
    sizes = [rng.choice((0, 1, 100, 1 << 14, 1 << 16, 300_000)) for _ in range(count)]
    return [
        m.PutArray(seed, i, 0, rng.randbytes(n)) if i % 3 else m.RunPlan(seed, i, 1 << 61, n, (n, n + 1))
        for i, n in enumerate(sizes)
    ]


def sent_at_once(one: Connection, two: Connection, threads: int, count: int) -> None:
    """Sends both ways from several threads, and compares what each sent with what came, in its order."""
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
    sent_at_once(*door.pair(), threads=4, count=60)


def test_large_frames_cross_each_other(door: Door) -> None:
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


class Chopped:
    """A socket that gives and takes as many bytes at a time as it likes."""

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
def test_how_the_network_cuts_bytes_is_the_same(seed: int, members: Members) -> None:
    ends: list[Any] = [Chopped(sock, seed) for sock in socket.socketpair()]
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
    sent_at_once(one, two, threads=2, count=12)
    one.close()
    two.close()


def stranger(verifies: Keys | None = None) -> Keys:
    """What has no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return Keys("demo", context, context)


REFUSED: dict[str, tuple[Callable[[Members], Keys], str, str]] = {
    "no certificate": (lambda _: stranger(), "peer did not return a certificate", "certificate required"),
    "another authority": (lambda a: a.keys("host", authority="theirs"), "certificate is refused", "unknown ca|unable"),
    "expired": (lambda a: a.keys("host", begins=-2), "certificate has expired", "expired"),
    "of tomorrow": (lambda a: a.keys("host", begins=1), "not yet valid", "certificate"),
    "a client's": (lambda a: a.keys("client", "other"), "that of client other of demo", "not let this process in"),
}
"""Keys that are not those of a host of the cluster; what the listener says of them, and what they hear."""


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_a_host_is_not_let_in(case: str, members: Members, door: Door) -> None:
    make, said, heard = REFUSED[case]
    keys = make(members)
    if case == "another authority":  # it trusts ours, and is not trusted
        keys.connecting.load_verify_locations(members.folder / "ours" / "authority.pem")
    with pytest.raises(PathwaysError, match=heard) as caught:
        stranger_met(door, keys)
    assert caught.value.code == "PWC0913"
    assert said in door.reason()
    there, here = door.pair()
    there.post(m.Beat(1, 2))
    assert here.receive() == m.Beat(1, 2)


def stranger_met(door: Door, keys: Keys) -> None:
    """Connects, with no look at who listens: that is not what is asked here."""
    if keys.connecting.verify_mode is not ssl.CERT_NONE:
        connect(door.listener.address, keys, "client")
        return
    until = time.monotonic() + PATIENCE
    with socket.create_connection(door.listener.address) as sock:
        try:
            stream = tls_stream.handshake(sock, keys.connecting, listens=False, until=until)
            stream.recv_into(memoryview(bytearray(1)))
        except OSError as error:
            raise tls._no_peer(door.listener.address, error, "client", 1) from None  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("case", ["another authority", "expired", "a host's"])
def test_who_connects_is_as_careful(case: str, members: Members) -> None:
    match case:
        case "another authority":
            keys = members.keys("client", authority="theirs")
        case "expired":
            keys = members.keys("client", begins=-2)
        case _:
            keys = members.keys("host", "other")
    with Door(members, keys=keys) as door:
        with pytest.raises(PathwaysError, match="certificate is") as caught:
            connect(door.listener.address, members.keys("host"), "client")
        assert caught.value.code == "PWC0913"


def test_a_member_of_a_cluster_of_another_name_is_refused(members: Members, door: Door) -> None:
    ours = members.keys("host")
    with pytest.raises(PathwaysError, match="client one of demo"):
        connect(door.listener.address, Keys("other", ours.connecting, ours.listening), "client")


def hello(members: Members) -> bytes:
    """What a member says first."""
    outgoing = ssl.MemoryBIO()
    talking = members.keys("host").connecting.wrap_bio(ssl.MemoryBIO(), outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        talking.do_handshake()
    return outgoing.read()


NOISE: dict[str, tuple[Callable[[Members], bytes], str]] = {
    "a plain frame": (lambda _: HEADER.pack(16, 1) + bytes(16), "not TLS"),
    "a web browser": (lambda _: b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", "not TLS"),
    "random bytes": (lambda _: random.Random(1).randbytes(5000), "not TLS"),
    "a hello of 16 MB": (lambda _: b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + bytes(1 << 14), "not TLS"),
    "silence": (lambda _: b"", f"did not say in {SOON:g} seconds"),
    "half a handshake": (lambda a: hello(a)[:100], f"did not say in {SOON:g} seconds"),
    "a handshake without an end": (hello, f"did not say in {SOON:g} seconds"),
}


@pytest.mark.parametrize("case", NOISE)
def test_noise_and_silence_end_soon(case: str, members: Members) -> None:
    make, said = NOISE[case]
    with Door(members, seconds=SOON) as door, socket.create_connection(door.listener.address) as sock:
        sock.sendall(make(members))
        assert said in door.reason()
        sock.settimeout(PATIENCE)
        with contextlib.suppress(ConnectionError):
            b"".join(iter(lambda: sock.recv(1 << 16), b""))  # an alert, perhaps; then it is closed
    with Door(members) as door:
        door.pair()[0].close()


def test_older_tls_is_refused(members: Members, door: Door) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(PathwaysError) as caught:
        stranger_met(door, Keys("demo", context, context))
    assert caught.value.code == "PWC0913" and "unsupported protocol" in door.reason()


def test_what_says_nothing_holds_up_no_other(members: Members, door: Door) -> None:
    """More than may be saying who they are at once, for all the time that they have."""
    silent = [socket.create_connection(door.listener.address) for _ in range(tls.MOST_HANDSHAKES + 10)]
    there, here = door.pair()
    there.post(m.Beat(3, 4))
    assert here.receive() == m.Beat(3, 4)
    for _ in range(10):
        assert "ended the connection" in door.reason()  # the first that came were dropped
    for sock in silent:
        sock.close()


def test_a_handshake_takes_no_more_than_it_needs(members: Members, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_stream, "MOST_HANDSHAKE", 100)
    with pytest.raises(PathwaysError):
        connect(door.listener.address, members.keys("host"), "client")
    assert "a handshake that does not end" in door.reason()


class Talker(threading.Thread):
    """Something else that listens: says a thing to the first who comes, and waits until that is gone."""

    def __init__(self, server: socket.socket, says: bytes) -> None:
        super().__init__(daemon=True)
        self.server, self.says = server, says
        self.start()

    def run(self) -> None:
        with contextlib.suppress(OSError):  # closed before it began
            sock, _ = self.server.accept()
            with sock:
                sock.sendall(self.says)
                b"".join(iter(lambda: sock.recv(1 << 16), b""))


@pytest.mark.parametrize("says", [b"", b"SSH-2.0-OpenSSH\r\n", None])
def test_who_connects_to_something_else_hears_so(says: bytes | None, members: Members) -> None:
    with socket.create_server(HERE) as server:
        address = server.getsockname()
        if says is None:
            server.close()  # nothing is there
        talker = Talker(server, says or b"")
        with pytest.raises(PathwaysError) as caught:
            connect(address, members.keys("host"), "client", seconds=SOON)
        talker.join(PATIENCE)
        assert caught.value.code == "PWC0913"


@pytest.mark.parametrize("cut", [0, 5, 1000, 70_000])
def test_a_stream_that_ends_in_the_middle_is_an_end(cut: int, door: Door) -> None:
    """Of a frame, with no word of TLS."""
    there, here = door.pair()
    raw: Any = there
    kind, payload, blob = m.encode(m.PutArray(1, 2, 3, bytes(100_000)))
    frame = HEADER.pack(len(payload) + len(blob), kind) + payload + blob
    raw._stream.sendall(frame[:cut])
    there.close()
    with pytest.raises(ConnectionEnded):
        here.receive()
    with pytest.raises(ConnectionEnded):
        for _ in range(100):
            here.post(m.PutArray(0, 0, 0, bytes(1 << 16)))
    door.pair()


def test_a_bit_that_was_changed_on_the_way_is_an_end(door: Door) -> None:
    there, here = door.pair()
    raw: Any = there
    record = bytearray(raw._stream._encrypted(memoryview(b"x" * 100)))
    record[50] ^= 1
    raw._stream._socket.sendall(record)
    with pytest.raises(ConnectionEnded):
        here.receive()


def test_closing_wakes_who_reads_and_who_writes(door: Door) -> None:
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
    two.receive()  # both are at it; nothing is read any more, so that the writer waits
    one.close()
    for thread in threads:
        thread.join(PATIENCE)
    assert ended == ["ended"] * 2
    two.close()


def test_a_listener_that_is_closed_lets_none_in(members: Members) -> None:
    with Door(members) as door:
        waiting = socket.create_connection(door.listener.address)
        address = door.listener.address
        connect(address, members.keys("host"), "client")[0].close()
        door.listener.close()
        for _ in range(2):
            with pytest.raises(ConnectionEnded):
                door.listener.accept(PATIENCE)
        with pytest.raises(PathwaysError) as caught:
            connect(address, members.keys("host"), "client", seconds=SOON)
        assert caught.value.code == "PWC0913"
        waiting.close()


def test_an_address_that_is_taken_is_said(members: Members, door: Door) -> None:
    with pytest.raises(PathwaysError, match="in use") as caught:
        Listener(door.listener.address, members.keys("client"), "host")
    assert caught.value.code == "PWC0913"
    with pytest.raises(TimeoutError, match="no host came"):
        door.listener.accept(0.01)


def test_names_are_those_of_certificates(tmp_path: Path, door: Door) -> None:
    for name in ("island0", "island1/2", "ü *"):
        door.pair(name)[0].close()
