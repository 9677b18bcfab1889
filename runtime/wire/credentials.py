"""Which process is at the other end: as the system says it of a Unix socket (Linux), or as its certificate does."""

import socket
import struct
from dataclasses import dataclass

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire.errors import NoPeer
from pathways.runtime.wire.identity import Identity, Role

_CREDENTIALS = struct.Struct("3i")

TICKET = "PATHWAYS_TICKET"
"""The environment variable in which a host finds the ticket by which its controller knows it."""


@dataclass(frozen=True)
class Caller:
    """A process of this user and this machine, by its number, or a member of the cluster from anywhere."""

    pid: int = 0
    member: Identity | None = None

    def __str__(self) -> str:
        return f"process {self.pid}" if self.member is None else str(self.member)

    def is_host(self, name: str) -> bool:
        """Whether it has the certificate of a host; a process of this machine has none."""
        return self.member is not None and (self.member.role, self.member.name) == ("host", name)

    def check(self, role: Role, address: str) -> None:
        """Raises PWC0913 for a member in another role; who needs no certificate may be either."""
        if self.member is not None and self.member.role != role:
            reason = f"its certificate is that of {self.member}"
            raise PathwaysError(NoPeer(address=address, reason=reason, wanted=role))


def process_at(sock: socket.socket) -> tuple[int, int]:
    """The number of the process, and of its user."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(raw)
    return pid, user
