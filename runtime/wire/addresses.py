"""Where processes of a cluster listen: a Unix socket on one machine, HOST:PORT between machines, or both."""

import os
import re
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
    """As `read_address` reads it."""
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
