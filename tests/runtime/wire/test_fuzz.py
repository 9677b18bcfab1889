"""Malformed bytes at a listening socket are refused or end the connection, soon and with little memory."""

import queue
import random
import socket
import struct
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.members import PATIENCE, Door, Members

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire import encoding
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.frames import CHUNK_BYTES, HEADER, ConnectionEnded
from pathways.runtime.wire.tls_ports import join_as

FUZZED_INPUTS = 300
SIZES = (
    0,
    1,
    7,
    1 << 16,
    encoding.MAX_NUMBERS_BYTES,
    encoding.MAX_NUMBERS_BYTES + 1,
    1 << 32,
    encoding.MAX_BYTES,
    encoding.MAX_BYTES + 1,
    1 << 60,
    (1 << 64) - 1,
)
MESSAGES: list[m.Message] = [
    m.Hello("island0", 7, {"jax": "0.10"}),
    m.LoadPlan(1, 2, "plan", True, {}, bytes(200)),
    m.Answer(3, value="[1]", blob=b"abc"),
    m.Connect(1, {"island1": "127.0.0.1:1"}),
    m.PutArray(1, 2, 3, bytes(300)),
    m.RunPlan(1, 2, 3, 4, (5, 6)),
    m.Failed(1, 2, {"0": "{}"}),
    m.FreeArrays(tuple(range(50))),
    m.WriteArray(1, 2, b"/tmp/state.arrays-0123456789abcdef", "{}"),
    m.ReadArray(1, 2, 3, 4, b"/tmp/state.arrays-0123456789abcdef", "{}"),
    m.Inject(1, 0, "{}"),
    m.Beat(1, 2),
]


def frame(message: m.Message) -> bytearray:
    kind, payload, blob = encoding.encode(message)
    return bytearray(HEADER.pack(len(payload) + len(blob), kind) + payload + blob)


def noise(rng: random.Random) -> bytes:
    """Makes up to two valid frames, followed by a malformed one."""
    raw = b"".join(frame(rng.choice(MESSAGES)) for _ in range(rng.randrange(3)))
    bad = frame(rng.choice(MESSAGES))
    match rng.randrange(7):
        case 0:
            bad = bytearray(rng.randbytes(rng.randrange(200)))
        case 1:
            bad[:8] = struct.pack("<Q", rng.choice(SIZES))
        case 2:
            bad[8] = rng.randrange(256)
        case 3:
            del bad[rng.randrange(len(bad)) :]
        case 4:
            position = rng.randrange(len(bad))
            bad[position:position] = rng.randbytes(rng.randrange(1, 20))
        case 5:
            text = rng.choice([b"[" * 100_000, b"null", b'{"request": NaN}', b"9" * 10_000, b'"\\ud800"', b"{}" * 9])
            kind, count = rng.randrange(len(encoding.MESSAGES)), struct.pack("<I", len(text))
            bad = bytearray(HEADER.pack(len(text) + 4, kind) + count + text)
        case _:
            for _ in range(rng.randrange(1, 6)):
                bad[rng.randrange(len(bad))] = rng.randrange(256)
    return raw + bytes(bad)


class Served:
    """A listening socket that reads each connection as a host does, and reports how the connection ended."""

    def __init__(self, accept: Callable[[], Connection], send: Callable[[bytes], None]) -> None:
        self._accept, self.send = accept, send
        self.ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection = self._accept()
            except (OSError, ConnectionEnded):
                return
            self.ended.put(self._read(connection))
            connection.close()

    def _read(self, connection: Connection) -> str:
        try:
            while True:
                connection.receive()
        except ConnectionEnded:
            return "ended"
        except PathwaysError as error:
            return error.code
        except BaseException as error:
            return f"FOUND {error!r}"

    def outcome(self, raw: bytes) -> str:
        self.send(raw)
        return self.ended.get(timeout=PATIENCE)


def unix(tmp_path: Path, members: Members) -> Iterator[Served]:
    address = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()

        def send(raw: bytes) -> None:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(address)
                _send(sock, raw)

        yield Served(lambda: Connection(listener.accept()[0]), send)
        listener.shutdown(socket.SHUT_RDWR)


def under_tls(tmp_path: Path, members: Members) -> Iterator[Served]:
    with Door(members) as door:

        def send(raw: bytes) -> None:
            """Sends bytes as a malicious member with a valid certificate."""
            connection: Any = join_as(door.address, members.keys("host"), "controller")[0]
            _send(connection._transport, raw)
            connection._transport.close()

        yield Served(lambda: door.accept()[0], send)


def _send(stream: Any, raw: bytes) -> None:
    try:
        while raw:
            raw = raw[stream.send(raw) :]
        stream.shutdown(socket.SHUT_WR)
    except OSError:  # refused before all bytes were sent
        return


@pytest.fixture(params=[unix, under_tls])
def served(request: pytest.FixtureRequest, tmp_path: Path, members: Members) -> Iterator[Served]:
    yield from request.param(tmp_path, members)


def test_malformed_frames_are_refused_or_end_the_connection(served: Served) -> None:
    found: Counter[str] = Counter()
    for seed in range(FUZZED_INPUTS):
        outcome = served.outcome(noise(random.Random(seed)))
        assert outcome in ("ended", "PWC0911"), (seed, outcome)
        found[outcome] += 1
    assert found["ended"] > 20 and found["PWC0911"] > 20
    assert served.outcome(bytes(frame(m.Beat(1, 2)))) == "ended"


def test_a_frame_size_allocates_no_memory_before_the_bytes_arrive(served: Served) -> None:
    """A frame that is too large gets not even one chunk. Other threads of the process may allocate some megabytes."""
    served.outcome(b"")
    kinds = range(len(encoding.MESSAGES))
    for size, most in ((1 << 60, CHUNK_BYTES), (encoding.MAX_BYTES, 4 * CHUNK_BYTES)):
        tracemalloc.start()
        outcomes = {served.outcome(HEADER.pack(size, kind) + b"cut") for kind in kinds}
        assert outcomes == ({"PWC0911"} if size > encoding.MAX_BYTES else {"PWC0911", "ended"})
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < most
