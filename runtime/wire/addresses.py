"""Where processes of a cluster listen, a Unix socket, HOST:PORT, or both; and the options of their sockets."""

import contextlib
import os
import re
import socket
from typing import TypeAlias

Address: TypeAlias = tuple[str, int]
_PORT = re.compile(r"(\[[0-9a-fA-F:.%\w]+\]|[^\[\]:/\s]+):([0-9]{1,5})")
LOOPBACK = "127.0.0.1"
"""Where what is not told otherwise listens: no other machine gets there."""


def read_address(text: str) -> Address | None:
    """The machine and the port that HOST:PORT or [HOST]:PORT says; None for anything else."""
    found = _PORT.fullmatch(text)
    return (found[1].strip("[]"), int(found[2])) if found and int(found[2]) < 1 << 16 else None


def show_address(address: Address) -> str:
    """Formats an address as HOST:PORT, which `read_address` reads."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def both(port: Address | None, path: str) -> str:
    """Says where a process listens: at a port, at a Unix socket, or at both."""
    return " ".join([*([show_address(port)] if port else []), *([path] if path else [])])


def port_of(said: str) -> Address | None:
    """The port at which a process listens, by what `both` says; None where it has none."""
    return None if said.startswith(os.sep) else read_address(said.partition(" ")[0])


def path_of(said: str) -> str:
    """The Unix socket at which it listens; empty where it has none."""
    return said if port_of(said) is None else said.partition(" ")[2]


BACKLOG = 1024
"""The most processes that may wait to be accepted at a port."""
_ENDS = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 300_000))
"""When an end whose machine is gone is given up: after five minutes, which a process that is stopped and does not read
has, too; half a minute where a system does not know the last of these. Not all know all."""


def listening_at(address: Address) -> socket.socket:
    """Makes a socket that listens at an address, and at no other. Raises OSError where it cannot be had."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    return socket.create_server(address, family=family, backlog=BACKLOG)


def undelayed(sock: socket.socket) -> None:
    """Turns off the delay with which TCP joins small writes; Unix sockets have none."""
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def prepare(sock: socket.socket) -> None:
    """Sets the options of streams of messages between machines: no delay, and an end when the other machine is gone.

    Streams of values have no such end: a host may have other things to do for long before it reads.
    """
    undelayed(sock)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _ENDS:
        with contextlib.suppress(AttributeError, OSError):  # this system knows none of it
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def end_socket(sock: socket.socket) -> None:
    """Ends a socket in both directions, and wakes the thread that waits for it, which closes it."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
