"""Which process is at the other end of a Unix socket, as the system says it (Linux)."""

import socket
import struct

_CREDENTIALS = struct.Struct("3i")

TICKET = "PATHWAYS_TICKET"
"""The environment variable in which a host finds the ticket by which its controller knows it."""


def process_at(sock: socket.socket) -> tuple[int, int]:
    """The number of the process, and of its user."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(raw)
    return pid, user
