"""Clusters by their addresses: of this machine by a name or a folder, of any other by HOST:PORT and keys."""

import json
import os
import socket
from pathlib import Path
from typing import Any

from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.launch.local_cluster import DEFAULT, cluster_folder, connect_here
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.addresses import Address, path_of, port_of, read_address, show_address
from pathways.runtime.wire.certificates import member_folder
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.errors import NoCluster, NoPeer
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.identity import Role
from pathways.runtime.wire.tls import Keys, checked_keys
from pathways.runtime.wire.tls_ports import join_as

ADDRESS, KEYS = "PATHWAYS_ADDRESS", "PATHWAYS_KEYS"
"""The environment variables for the cluster that programs run on: a name, a folder, or HOST:PORT with keys."""


def chosen_address(address: str | None) -> str:
    """The address of a cluster: this one, or that of PATHWAYS_ADDRESS."""
    return address or os.environ.get(ADDRESS) or DEFAULT


def chosen_keys(keys: str | Path | None) -> Path | None:
    """The folder of keys: this one, or that of PATHWAYS_KEYS."""
    chosen = keys or os.environ.get(KEYS)
    return Path(chosen) if chosen else None


def keys_of(folder: Path | None, role: Role, name: str = "", *, address: Address) -> Keys:
    """The keys of this process. Raises PWC0913 where it has none, PWC0914 where they are not those of such a member."""
    if folder is None:
        reason = f"this process has no keys: {KEYS} is not set"
        raise PathwaysError(NoPeer(address=show_address(address), reason=reason, wanted="member"))
    return checked_keys(member_folder(folder, role, name), role, name)


def connect_to(address: str, keys: Path | None = None) -> Connection:
    """Connects to the controller of a cluster. Raises PWC0918 where there is none, PWC0913 where it is not reached."""
    port = read_address(address)
    if port is None:
        return Connection(connect_here(address))
    return join_as(port, keys_of(keys, "client", address=port), "controller")[0]


def connect_to_host(said: str, name: str, keys: Path | None, *, elsewhere: bool) -> Connection:
    """Connects to a host, by what it says of where it listens (`addresses.both`); `elsewhere`: not by a Unix socket.

    Raises OSError where it is gone, PWC0913 where it is not reached or is another.
    """
    path, port = path_of(said), port_of(said)
    if port is None or (path and not elsewhere):
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(path)
        except OSError:
            sock.close()
            raise
        return Connection(sock)
    connection, host = join_as(port, keys_of(keys, "client", address=port), "host")
    if host.name != name:
        connection.close()
        raise PathwaysError(
            NoPeer(address=show_address(port), reason=f"its certificate is that of {host}", wanted=name)
        )
    return connection


def ask(address: str, what: str, keys: Path | None = None) -> Any:
    """Asks the controller of a cluster for `status` or `stacks`, or to `stop`.

    Raises PWC0918 where there is none, or where it does not answer, PWC0913 where it is not reached.
    """
    return request(address, m.Ask(0, what), keys)


def request(address: str, message: m.Ask | m.ChangeIslands, keys: Path | None = None) -> Any:
    """As `ask`, of any request. Raises what it answers, too."""
    return answer_of(connect_to(address, keys), address, message)


def answer_of(connection: Connection, address: str, message: m.Ask | m.ChangeIslands) -> Any:
    """Asks the controller at the other end of a connection, which ends then."""
    try:
        connection.post(message)
        while True:
            match answer := connection.receive():
                case m.Answer():
                    if answer.error:
                        raise PathwaysError(read_diagnostic(answer.error))
                    return json.loads(answer.value)
                case m.RunRefused():
                    raise PathwaysError(read_diagnostic(answer.cause))
                case _:
                    pass
    except ConnectionEnded as error:
        where = address if read_address(address) else str(cluster_folder(address))
        raise PathwaysError(NoCluster(address=where, reason=str(error))) from None
    finally:
        connection.close()
