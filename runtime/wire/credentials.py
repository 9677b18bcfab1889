"""Identifies the process at the other end of a connection: by the operating system for Unix sockets, or by its TLS
certificate. Controllers and hosts call it when a process connects.
"""

import socket
import struct
from dataclasses import dataclass

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire.errors import NoPeer
from pathways.runtime.wire.identity import Identity, Role

_CREDENTIALS = struct.Struct("3i")

TICKET = "PATHWAYS_TICKET"
"""Environment variable with the ticket by which the controller recognizes a host that it started."""


@dataclass(frozen=True)
class Caller:
    """The process at the other end: one of this user on this machine (`pid`), or a cluster member from anywhere."""

    pid: int = 0
    member: Identity | None = None

    def __str__(self) -> str:
        return f"process {self.pid}" if self.member is None else str(self.member)

    def is_host(self, name: str) -> bool:
        """Whether the process has the certificate of this host. A process on this machine has no certificate."""
        return self.member is not None and (self.member.role, self.member.name) == ("host", name)

    def check(self, role: Role, address: str) -> None:
        """Raises PWC0913 for a member in another role. A process without a certificate may take either role."""
        if self.member is not None and self.member.role != role:
            reason = f"its certificate belongs to {self.member}"
            raise PathwaysError(NoPeer(address=address, reason=reason, wanted=role))


def process_at(sock: socket.socket) -> tuple[int, int]:
    """Returns the process id and the user id of the process at the other end of a Unix socket."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(raw)
    return pid, user
