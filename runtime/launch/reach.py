"""Connects this process to the controller or a host of a cluster, given an address. The address is a cluster's name or
folder on this machine, or HOST:PORT with a folder of TLS keys. The API and `pwc` call it.
"""

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
"""Environment variables of the cluster that programs run on: a name, a folder, or HOST:PORT with keys."""


def chosen_address(address: str | None) -> str:
    """Returns `address`, or the value of PATHWAYS_ADDRESS, or the default cluster."""
    return address or os.environ.get(ADDRESS) or DEFAULT


def chosen_keys(keys: str | Path | None) -> Path | None:
    """Returns the folder `keys`, or the value of PATHWAYS_KEYS."""
    chosen = keys or os.environ.get(KEYS)
    return Path(chosen) if chosen else None


def keys_of(folder: Path | None, role: Role, name: str = "", *, address: Address) -> Keys:
    """Returns the keys of this process. Raises PWC0913 if it has none, PWC0914 if they are of another member."""
    if folder is None:
        reason = f"this process has no keys: {KEYS} is not set"
        raise PathwaysError(NoPeer(address=show_address(address), reason=reason, wanted="member"))
    return checked_keys(member_folder(folder, role, name), role, name)


def connect_to(address: str, keys: Path | None = None) -> Connection:
    """Connects to a cluster's controller. Raises PWC0918 if there is none, PWC0913 if it cannot be reached."""
    port = read_address(address)
    if port is None:
        return Connection(connect_here(address))
    return join_as(port, keys_of(keys, "client", address=port), "controller")[0]


def connect_to_host(endpoints: str, name: str, keys: Path | None, *, elsewhere: bool) -> Connection:
    """Connects to a host at its reported address (`addresses.both`). `elsewhere`: does not use a Unix socket.

    Raises OSError if it is lost, PWC0913 if it cannot be reached or is another host.
    """
    path, port = path_of(endpoints), port_of(endpoints)
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
            NoPeer(address=show_address(port), reason=f"its certificate belongs to {host}", wanted=name)
        )
    return connection


def ask(address: str, what: str, keys: Path | None = None) -> Any:
    """Requests `status`, `stacks` or `stop` from a cluster's controller.

    Raises PWC0918 if there is none or it does not answer, PWC0913 if it cannot be reached.
    """
    return request(address, m.Ask(0, what), keys)


def request(address: str, message: m.Ask | m.ChangeIslands, keys: Path | None = None) -> Any:
    """Sends any request to a cluster's controller, like `ask`. Raises errors in its answer, too."""
    return answer_of(connect_to(address, keys), address, message)


def answer_of(connection: Connection, address: str, message: m.Ask | m.ChangeIslands) -> Any:
    """Sends a request over a connection to a controller; returns the answer and closes the connection."""
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
