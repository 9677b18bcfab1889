"""The process of a host: `python -m pathways.runtime.host.serve` connects to its controller, and ends with it.

By a Unix socket on one machine; by `--connect HOST:PORT --keys FOLDER`, under TLS, from another.
A thread reads messages, and hands them to the main thread, which does them in their order; only what must not wait
behind a run is done at once. When the stream ends, however it ends, the process does.
"""

import argparse
import faulthandler
import json
import os
import queue
import shutil
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ranks import RankTable
from pathways.dialect.topology import Island
from pathways.runtime.host.clients import Clients, Todo
from pathways.runtime.host.devices.group import ProcessGroup
from pathways.runtime.host.devices.islands import Machine
from pathways.runtime.host.host import host_of_island
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.credentials import TICKET
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.ids import check_arrays
from pathways.runtime.wire.tls import join_as, read_keys
from pathways.runtime.wire.versions import VERSIONS

MEET = 100
"""Seconds that the hosts of an island may take to meet."""


def serve() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--socket")
    where.add_argument("--connect", metavar="HOST:PORT")
    parser.add_argument("--listen", metavar="SOCKET", help="where clients come, where the controller has several")
    parser.add_argument("--keys", type=Path, help="the folder of this host's certificate")
    parser.add_argument("--island", required=True)
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument("--platform", required=True)
    parser.add_argument("--rank", type=int, default=0, help="which of the hosts of its island it is")
    parser.add_argument("--group", default="", help="where the hosts of the island meet")
    parser.add_argument("--hosts", type=json.loads, default={}, help="JSON: how many hosts each island has")
    chosen = parser.parse_args()
    if chosen.connect and not chosen.keys:
        parser.error("--connect needs --keys")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is for the controller
    faulthandler.register(signal.SIGUSR1, sys.__stderr__ or True)  # says in its log where each thread is
    rank: int = chosen.rank
    ranks, machine = RankTable(chosen.hosts), Machine(chosen.platform)
    island = Island(chosen.island, devices=chosen.devices, hosts=ranks.count(chosen.island))
    name = ranks.names(island.name)[rank]
    try:
        if chosen.group:  # first: until it connects, its end is seen
            machine.join(island, ProcessGroup(chosen.group, island.hosts, rank, MEET), name)
        connection, check = _connected(chosen)
    except PathwaysError as error:
        sys.exit(str(error))
    host = host_of_island(island, machine, connection.post, rank, ranks)
    todo: Todo = queue.SimpleQueue()
    clients = Clients(host, todo)
    if chosen.listen:
        clients.listen(chosen.listen)
    connection.post(m.Hello(name, os.getpid(), VERSIONS, chosen.listen or "", os.environ.pop(TICKET, "")))
    host.start()
    folder = os.path.dirname(chosen.socket) if chosen.socket and not chosen.listen else ""
    threading.Thread(
        target=_read, args=(connection, clients, folder, check), name="pathways-reader", daemon=True
    ).start()
    while True:
        try:
            host.receive(*todo.get())
        except ConnectionEnded:
            os._exit(0)
        except BaseException:  # what a controller relies on is not there any more
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)


def _connected(chosen: argparse.Namespace) -> "tuple[Connection, Callable[[m.Message], None]]":
    """The connection to the controller, and what its messages must pass: who comes by TLS is client 0 of a cluster."""
    if chosen.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(chosen.socket)
        return Connection(sock), lambda _: None
    name, _, port = chosen.connect.rpartition(":")
    connection, peer = join_as((name.strip("[]"), int(port)), read_keys(chosen.keys), "client")
    return connection, lambda message: check_arrays(message, 0, str(peer))


def _read(connection: Connection, clients: Clients, folder: str, check: "Callable[[m.Message], None]") -> None:
    """Reads messages until the stream ends; `os._exit`, since other threads may be inside of XLA."""
    try:
        while True:
            message = connection.receive()
            check(message)
            match message:
                case m.Expect():
                    clients.expect(message)
                    continue
                case m.Forget():
                    clients.forget(message.client)
                case _:
                    pass
            if clients.host.notice(message):
                clients.todo.put((message, None))
    except ConnectionEnded:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)  # its controller may be unable to
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    serve()
