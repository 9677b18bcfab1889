"""The process of a host: `python -m pathways.runtime.host.serve` connects to its controller, and ends with it.

By a Unix socket on one machine; by `--connect HOST:PORT --keys FOLDER`, under TLS, from another.
A loop in a thread reads messages, and hands them to the main thread, which does them in their order; only what must not
wait behind a run is done at once. When the stream of the controller ends, however it ends, the process does.
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
import time
import traceback
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NoReturn

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
from pathways.runtime.host.load.peer_hosts import PeerHosts
from pathways.runtime.host.run_ends import PostAll
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.addresses import LOOPBACK, both, read_address
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.credentials import TICKET
from pathways.runtime.wire.encoding import decode
from pathways.runtime.wire.errors import BadMessage
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.loop import Loop
from pathways.runtime.wire.message import VERSIONS
from pathways.runtime.wire.peer import Peer
from pathways.runtime.wire.tls import read_keys
from pathways.runtime.wire.tls_ports import join_as

CONTROLLER_CHECKS, CHECK_INTERVAL_S = 20, 0.05
"""Number of checks, and their interval, whether the controller has exited after its stream has ended."""
GROUP_TIMEOUT_S = 100
"""Time limit for the hosts of an island to connect to their process group."""


def serve() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--socket")
    where.add_argument("--connect", metavar="HOST:PORT")
    parser.add_argument("--listen", metavar="SOCKET", help="the socket for clients")
    parser.add_argument("--keys", type=Path, help="the folder of this host's certificate")
    parser.add_argument("--ip", default="", help="address for peer hosts, and with --keys for clients")
    parser.add_argument("--foreground", action="store_true", help="Ctrl-C ends it; prints why it ends")
    parser.add_argument("--remove-folder", action="store_true", help="removes the folder of --socket when it ends")
    parser.add_argument("--island", required=True)
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument("--platform", required=True)
    parser.add_argument("--rank", type=int, default=0, help="position of this host in its island")
    parser.add_argument("--group", default="", help="address of the island's group service")
    parser.add_argument("--hosts", type=json.loads, default={}, help="JSON: number of hosts of each island")
    chosen = parser.parse_args()
    if chosen.connect and not chosen.keys:
        parser.error("--connect needs --keys")
    set_signals(foreground=chosen.foreground)
    rank: int = chosen.rank
    ranks, machine, loop = RankTable(chosen.hosts), Machine(chosen.platform), Loop()
    island = Island(chosen.island, devices=chosen.devices, hosts=ranks.count(chosen.island))
    name = ranks.names(island.name)[rank]
    try:
        if chosen.group:  # before it connects to the controller: until then, its launcher detects its exit
            machine.join(
                island, ProcessGroup(chosen.group, island.hosts, rank, GROUP_TIMEOUT_S, chosen.ip or LOOPBACK), name
            )
        host = _host_of(island, machine, lambda *sent: control.post(*sent), rank, ranks, chosen.ip or LOOPBACK, loop)
        connection = _connected(chosen)  # after the devices: the first message must follow soon
        todo: Todo = queue.SimpleQueue()
        clients = Clients(host, todo, loop)
        port = clients.listen_at((chosen.ip, 0), read_keys(chosen.keys)) if chosen.ip and chosen.keys else None
    except PathwaysError as error:
        loop.close()
        sys.exit(str(error))
    if chosen.listen:
        clients.listen(chosen.listen)
    connection.post(m.Hello(name, os.getpid(), VERSIONS, both(port, chosen.listen or ""), os.environ.pop(TICKET, "")))
    control = connection.hand_over(loop)
    host.start(loop)

    def at_end(_: Peer, reason: str) -> None:
        if chosen.foreground:
            print(f"note: the connection to the controller has ended: {reason}", file=sys.stderr, flush=True)
        if chosen.remove_folder:
            remove_folder(Path(chosen.socket))
        os._exit(0)  # other threads may be inside of XLA

    control.begin(lambda _, kind, payload: deliver(clients, decode(kind, payload)), at_end)
    loop.start()
    receive_all(host, todo, loop)


def set_signals(*, foreground: bool) -> None:
    """Ignores Ctrl-C in the terminal, which is for the controller, unless the controller runs elsewhere.

    SIGUSR1 writes the stacks of all threads to the log.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL if foreground else signal.SIG_IGN)
    faulthandler.register(signal.SIGUSR1, sys.__stderr__ or True)


def receive_all(host: Host, todo: Todo, loop: Loop) -> NoReturn:
    """Handles the messages of a host in their order, until the process ends."""
    while True:
        try:
            host.receive(*todo.get())
        except ConnectionEnded:  # the loop detects this, too, and ends the process
            loop.over.wait()
        except BaseException:  # the controller can no longer rely on the state of this host
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)


def _host_of(island: Island, machine: Machine, post: PostAll, rank: int, ranks: RankTable, ip: str, loop: Loop) -> Host:
    """Makes the host of an island, or of one rank of it. Other hosts reach it at `ip`.

    Raises PWC0503 for too few devices.
    """
    physical = machine.bound([island], "a cluster")[island.name]
    device = next(d for d in physical.devices if pjrt.is_here(d))
    peer_hosts = PeerHosts(device, loop, island.name, rank, ranks, ip)
    return Host(physical.key, machine, partial(islands_for, physical), peer_hosts, post)


def islands_for(island: PhysicalIsland, plan: Plan) -> Mapping[str, PhysicalIsland]:
    """Returns the island of a host for a plan. Raises PWC0911 if it has another number of devices there."""
    have = next((found.size for found in plan.topology.islands if found.name == island.name), 0)
    if have != (size := len(island.devices)):
        rule = f"{size} devices, as the host has"
        raise PathwaysError(BadMessage(have_=f"{island.name} of {have} devices", rule=rule))
    return {island.name: island}


def _connected(chosen: argparse.Namespace) -> Connection:
    """Connects to the controller."""
    if chosen.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(chosen.socket)
        return Connection(sock)
    address = read_address(chosen.connect)
    if address is None:
        sys.exit(f"{chosen.connect} is not HOST:PORT")
    return join_as(address, read_keys(chosen.keys), "controller")[0]


def remove_folder(controller: Path) -> None:
    """Removes the folder of a cluster if its controller, which would do so, has exited: its socket has no listener."""
    for _ in range(CONTROLLER_CHECKS):  # the system may close the socket later than the stream
        with socket.socket(socket.AF_UNIX) as sock:
            if sock.connect_ex(str(controller)):
                shutil.rmtree(controller.parent, ignore_errors=True)
                return
        time.sleep(CHECK_INTERVAL_S)


def deliver(clients: Clients, message: m.Message) -> None:
    """Handles a message of the controller at once, or enqueues it for the main thread."""
    match message:
        case m.Expect():
            clients.expect(message)
            return
        case m.Forget():
            clients.forget(message.client)
        case m.RunRefused():  # the controller refuses this host, or has abandoned it
            print(PathwaysError(read_diagnostic(message.cause)), file=sys.stderr, flush=True)
            os._exit(1)
        case _:
            pass
    if clients.host.notice(message):
        clients.todo.put((message, None))


if __name__ == "__main__":
    serve()
