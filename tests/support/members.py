"""Creates members of a cluster for tests: their keys, and both ends of a connection between two members."""

import contextlib
import queue
import random
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire.certificates import issue, make_authority
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.frames import HEADER
from pathways.runtime.wire.identity import Role
from pathways.runtime.wire.tls import HANDSHAKE, Keys, Listener, join_as, read_keys
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


@dataclass
class Door:
    """A controller's listener for hosts, and the errors of the connections that it has refused."""

    members: Members
    seconds: float = HANDSHAKE
    keys: Keys | None = None

    def __post_init__(self) -> None:
        self.ends: list[Connection] = []
        self.refused: queue.SimpleQueue[PathwaysError] = queue.SimpleQueue()
        keys = self.keys or self.members.keys("controller")
        self.listener = Listener(HERE, keys, "host", seconds=self.seconds, on_refused=self.refused.put)

    def __enter__(self) -> "Door":
        return self

    def __exit__(self, *_: Any) -> None:
        self.listener.close()
        for end in self.ends:
            end.close()

    def pair(self, name: str = "one") -> tuple[Connection, Connection]:
        """Connects a host with valid keys; returns the host's end and the controller's end of the connection."""
        there, client = join_as(self.listener.address, self.members.keys("host", name), "controller")
        here, host = self.listener.accept(PATIENCE)
        self.ends += (there, here)
        assert (client.role, host.role, host.name) == ("controller", "host", name)
        return there, here

    def reason(self) -> str:
        """Waits for the next refused connection; returns the reason."""
        error = self.refused.get(timeout=PATIENCE)
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
