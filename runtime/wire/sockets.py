"""Options of the sockets between processes, and their ends."""

import contextlib
import socket

from pathways.runtime.wire.addresses import Address

BACKLOG = 256
"""The most processes that may wait to be accepted at a port."""
_ENDS = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 300_000))
"""When an end whose machine is gone is given up: after five minutes, which a process that is stopped and does not read
has, too; half a minute where a system does not know the last of these. Not all know all."""


def listening_at(address: Address) -> socket.socket:
    """A socket that listens at an address, and at no other. Raises OSError where it cannot be had."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    return socket.create_server(address, family=family, backlog=BACKLOG)


def undelayed(sock: socket.socket) -> None:
    """Has what is sent go at once: it is waited for, however small it is. Unix sockets do that by themselves."""
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def prepare(sock: socket.socket) -> None:
    """Sets what all streams of messages between machines have. Streams of values have no such end: who is to read may
    have other things to do for long."""
    undelayed(sock)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _ENDS:
        with contextlib.suppress(AttributeError, OSError):  # this system knows none of it
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def end_socket(sock: socket.socket) -> None:
    """Ends a socket in both directions, and wakes the thread that waits for it, which closes it."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
