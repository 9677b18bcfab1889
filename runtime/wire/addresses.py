"""Parses and formats the addresses of processes in a cluster: a Unix socket, HOST:PORT, or both. It also sets the
options of their sockets.
"""

import contextlib
import os
import re
import socket
from typing import TypeAlias

Address: TypeAlias = tuple[str, int]
_PORT = re.compile(r"(\[[0-9a-fA-F:.%\w]+\]|[^\[\]:/\s]+):([0-9]{1,5})")
LOOPBACK = "127.0.0.1"
"""Default listening address. Other machines cannot reach it."""


def read_address(text: str) -> Address | None:
    """Parses HOST:PORT or [HOST]:PORT into host and port. Returns None for any other text."""
    found = _PORT.fullmatch(text)
    return (found[1].strip("[]"), int(found[2])) if found and int(found[2]) < 1 << 16 else None


def show_address(address: Address) -> str:
    """Formats an address as HOST:PORT, which `read_address` reads."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def both(port: Address | None, path: str) -> str:
    """Formats the endpoints of a process: a port, a Unix socket, or both."""
    return " ".join([*([show_address(port)] if port else []), *([path] if path else [])])


def port_of(endpoints: str) -> Address | None:
    """Returns the port in a text written by `both`, or None if the text has no port."""
    return None if endpoints.startswith(os.sep) else read_address(endpoints.partition(" ")[0])


def path_of(endpoints: str) -> str:
    """Returns the path of the Unix socket in a text written by `both`, or an empty string."""
    return endpoints if port_of(endpoints) is None else endpoints.partition(" ")[2]


BACKLOG = 1024
"""Maximum number of connections that wait to be accepted at a port."""
_LOST_PEER_OPTIONS = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 300_000))
"""TCP options that end a connection whose other machine is lost.

The connection ends after five minutes. A stopped process that does not read has the same five minutes. A system without
TCP_USER_TIMEOUT ends the connection after half a minute. Not every system has all of these options."""


def listening_at(address: Address) -> socket.socket:
    """Creates a socket that listens at this address only. Raises OSError if the address is not available."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    return socket.create_server(address, family=family, backlog=BACKLOG)


def undelayed(sock: socket.socket) -> None:
    """Disables Nagle's algorithm, by which TCP delays small writes. Unix sockets have no such delay."""
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def prepare(sock: socket.socket) -> None:
    """Sets the options of message streams between machines: no delay, and a timeout if the other machine is lost.

    Streams of array values have no such timeout: a host may be busy for a long time before it reads.
    """
    undelayed(sock)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _LOST_PEER_OPTIONS:
        with contextlib.suppress(AttributeError, OSError):  # this system does not have the option
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def end_socket(sock: socket.socket) -> None:
    """Shuts a socket down in both directions. The thread that waits for the socket wakes up and closes it."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
