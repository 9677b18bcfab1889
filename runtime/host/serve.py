"""The process of a host: `python -m pathways.runtime.host.serve` connects to its controller, and ends with it.

By a Unix socket on one machine; by `--connect HOST:PORT --keys FOLDER`, under TLS, from another.
A thread reads messages, and hands them to the main thread, which does them in their order; only what must not wait
behind a run is done at once. When the stream ends, however it ends, the process does.
"""

import argparse
import contextlib
import faulthandler
import json
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.ranks import RankTable
from pathways.dialect.topology import Island
from pathways.runtime.host.clients import Clients, Todo
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.group import ProcessGroup
from pathways.runtime.host.devices.islands import Machine, PhysicalIsland
from pathways.runtime.host.host import Host
from pathways.runtime.host.load.neighbors import Neighbors
from pathways.runtime.host.run_ends import PostAll
from pathways.runtime.launch.host_start import log_of
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.addresses import LOOPBACK, both, read_address
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.credentials import TICKET
from pathways.runtime.wire.errors import BadMessage
from pathways.runtime.wire.fields import check_fields
from pathways.runtime.wire.frames import ConnectionEnded
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
    parser.add_argument("--ip", default="", help="where others reach this host, and with --keys clients, too")
    parser.add_argument("--foreground", action="store_true", help="Ctrl-C ends it, and it says why it ends")
    parser.add_argument("--island", required=True)
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument("--platform", required=True)
    parser.add_argument("--rank", type=int, default=0, help="which of the hosts of its island it is")
    parser.add_argument("--group", default="", help="where the hosts of the island meet")
    parser.add_argument("--hosts", type=json.loads, default={}, help="JSON: how many hosts each island has")
    chosen = parser.parse_args()
    if chosen.connect and not chosen.keys:
        parser.error("--connect needs --keys")
    # The terminal's Ctrl-C is for the controller, unless that is elsewhere.
    signal.signal(signal.SIGINT, signal.SIG_DFL if chosen.foreground else signal.SIG_IGN)
    faulthandler.register(signal.SIGUSR1, sys.__stderr__ or True)  # says in its log where each thread is
    rank: int = chosen.rank
    ranks, machine = RankTable(chosen.hosts), Machine(chosen.platform)
    island = Island(chosen.island, devices=chosen.devices, hosts=ranks.count(chosen.island))
    name = ranks.names(island.name)[rank]
    try:
        if chosen.group:  # first: until it connects, its end is seen
            machine.join(island, ProcessGroup(chosen.group, island.hosts, rank, MEET, chosen.ip or LOOPBACK), name)
        host = _host_of(island, machine, lambda *said: connection.post(*said), rank, ranks, chosen.ip or LOOPBACK)
        connection, check = _connected(chosen)  # after the devices: it must send its first message soon
        todo: Todo = queue.SimpleQueue()
        clients = Clients(host, todo)
        port = clients.listen_at((chosen.ip, 0), read_keys(chosen.keys)) if chosen.ip and chosen.keys else None
    except PathwaysError as error:
        sys.exit(str(error))
    if chosen.listen:
        clients.listen(chosen.listen)
    connection.post(m.Hello(name, os.getpid(), VERSIONS, both(port, chosen.listen or ""), os.environ.pop(TICKET, "")))
    host.start()
    folder = Path(chosen.socket).parent if chosen.socket and not chosen.listen else None

    def clean_up() -> None:
        """Removes what this host has in its folder: the controller may be dead. Other hosts may still log there."""
        if folder is None:
            return
        own = [log_of(folder, name), Path(chosen.socket)]
        if rank == 0:
            own.append(log_of(folder, island.name))  # of the service where the hosts of the island meet
        with contextlib.suppress(OSError):
            for path in own:
                path.unlink(missing_ok=True)
            folder.rmdir()

    def at_end(error: ConnectionEnded) -> None:
        if chosen.foreground:
            print(f"note: the controller has ended the connection: {error}", file=sys.stderr, flush=True)
        clean_up()

    threading.Thread(
        target=_read, args=(connection, clients, check, at_end), name="pathways-reader", daemon=True
    ).start()
    while True:
        try:
            host.receive(*todo.get())
        except ConnectionEnded:
            clean_up()
            os._exit(0)
        except BaseException:  # what a controller relies on is not there any more
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)


def _host_of(island: Island, machine: Machine, post: PostAll, rank: int, ranks: RankTable, ip: str) -> Host:
    """Makes a host of one island, or of a rank of it, reached by others at `ip`. Raises PWC0503 for too few devices."""
    physical = machine.bound([island], "a cluster")[island.name]

    def islands_of(plan: Plan) -> Mapping[str, PhysicalIsland]:
        size = next((found.size for found in plan.topology.islands if found.name == island.name), 0)
        if size != island.size:
            have, rule = f"{island.name} of {size} devices", f"{island.size}, as the host has"
            raise PathwaysError(BadMessage(have_=have, rule=rule))
        return {island.name: physical}

    device = next(d for d in physical.devices if pjrt.is_here(d))
    return Host(physical.key, machine, islands_of, Neighbors(device, island.name, rank, ranks, ip), post)


def _connected(chosen: argparse.Namespace) -> "tuple[Connection, Callable[[m.Message], None]]":
    """The connection to the controller, and what its messages must pass: one of a single client is client 0."""
    if chosen.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(chosen.socket)
        return Connection(sock), lambda _: None
    address = read_address(chosen.connect)
    if address is None:
        sys.exit(f"{chosen.connect} is not HOST:PORT")
    connection, peer = join_as(address, read_keys(chosen.keys), "controller")
    return connection, (lambda _: None) if chosen.ip else lambda message: check_fields(message, 0, str(peer))


def _read(
    connection: Connection,
    clients: Clients,
    check: "Callable[[m.Message], None]",
    at_end: "Callable[[ConnectionEnded], None]",
) -> None:
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
                case m.RunRefused():  # this host is not let in, or was given up
                    print(PathwaysError(read_diagnostic(message.cause)), file=sys.stderr, flush=True)
                    os._exit(1)
                case _:
                    pass
            if clients.host.notice(message):
                clients.todo.put((message, None))
    except ConnectionEnded as error:
        at_end(error)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    serve()
