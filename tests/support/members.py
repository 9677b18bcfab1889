"""Creates members of a cluster for tests: their keys, and both ends of a connection between two members."""

import contextlib
import queue
import random
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire.addresses import Address, listening_at
from pathways.runtime.wire.certificates import issue, make_authority
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.frames import HEADER, ConnectionEnded
from pathways.runtime.wire.identity import Identity, Role
from pathways.runtime.wire.loop import Loop
from pathways.runtime.wire.tls import Keys, no_peer, read_keys
from pathways.runtime.wire.tls_ports import HANDSHAKE_S, LoopListener, join_as
from pathways.runtime.wire.tls_socket import TlsSocket
from support.clusters import PATIENCE

HERE = ("127.0.0.1", 0)


@dataclass
class Members:
    """A folder of certificate authorities and member keys. Keys are created once and shared by all tests."""

    folder: Path
    made: dict[tuple[str, str, str, int], Keys] = field(default_factory=dict)

    def keys(self, role: Role, name: str = "one", *, authority: str = "ours", begins: int = 0) -> Keys:
        """Returns the keys of a member, issued by the named authority and valid for one day.

        The day begins `begins` days from now. All authorities are for one cluster name; they differ in their folders.
        """
        case = (role, name, authority, begins)
        if case not in self.made:
            if not (self.folder / authority).exists():
                make_authority(self.folder / authority, "demo")
            folder = self.folder / "-".join(map(str, case))
            start = datetime.now(UTC) + timedelta(days=begins)
            issue(self.folder / authority, folder, role, name, begins=start, valid=timedelta(days=1))
            self.made[case] = read_keys(folder)
        return self.made[case]


class NotingListener(LoopListener):
    """A listener that notes why it refuses connections."""

    refused: "queue.SimpleQueue[PathwaysError]"

    def _refuse(self, sock: socket.socket, error: Exception) -> None:
        address = self._pending[sock].address
        super()._refuse(sock, error)
        self.refused.put(no_peer(address, error, "host", self._seconds))


@dataclass
class Door:
    """A controller's port for hosts, and the errors of the connections that it has refused."""

    members: Members
    seconds: float = HANDSHAKE_S
    keys: Keys | None = None

    def __post_init__(self) -> None:
        self.ends: list[Connection] = []
        self._came: queue.SimpleQueue[tuple[Connection, Identity] | None] = queue.SimpleQueue()
        self.socket, self.loop = listening_at(HERE), Loop()
        self.address: Address = self.socket.getsockname()[:2]
        keys = self.keys or self.members.keys("controller")
        self.listener = NotingListener(self.loop, self.socket, keys, ("host",), self._let_in, seconds=self.seconds)
        self.listener.refused = queue.SimpleQueue()
        self.loop.start()

    def _let_in(self, stream: TlsSocket, member: Identity) -> None:
        stream.setblocking(True)
        self._came.put((Connection(stream), member))

    def __enter__(self) -> "Door":
        return self

    def __exit__(self, *_: Any) -> None:
        self.loop.call(self.loop.end)
        assert self.loop.over.wait(PATIENCE)
        self.socket.close()
        self._came.put(None)
        while (found := self._came.get()) is not None:
            self.ends.append(found[0])
        self._came.put(None)  # for a thread that still accepts
        for end in self.ends:
            end.close()

    def accept(self) -> tuple[Connection, Identity]:
        """Waits for the next member that is let in. Raises ConnectionEnded when the port is closed."""
        if (found := self._came.get(timeout=PATIENCE)) is None:
            self._came.put(None)
            raise ConnectionEnded("the port is closed")
        return found

    def pair(self, name: str = "one") -> tuple[Connection, Connection]:
        """Connects a host with valid keys; returns the host's end and the controller's end of the connection."""
        there, client = join_as(self.address, self.members.keys("host", name), "controller")
        here, host = self.accept()
        self.ends += (there, here)
        assert (client.role, host.role, host.name) == ("controller", "host", name)
        return there, here

    def reason(self) -> str:
        """Waits for the next refused connection; returns the reason."""
        error = self.listener.refused.get(timeout=PATIENCE)
        assert error.code == "PWC0913"
        return str(error)


def hello(members: Members) -> bytes:
    """Returns the first TLS bytes that a member sends (ClientHello)."""
    outgoing = ssl.MemoryBIO()
    talking = members.keys("host").connecting.wrap_bio(ssl.MemoryBIO(), outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        talking.do_handshake()
    return outgoing.read()


NOISE: dict[str, Callable[[Members], bytes]] = {
    "a plain frame": lambda _: HEADER.pack(16, 1) + bytes(16),
    "a web browser": lambda _: b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    "random bytes": lambda _: random.Random(1).randbytes(5000),
    "a hello of 16 MB": lambda _: b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + bytes(1 << 17),
    "silence": lambda _: b"",
    "half a handshake": lambda members: hello(members)[:100],
    "a handshake without an end": hello,
}
"""Bytes of connections that never become members."""
