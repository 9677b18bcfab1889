"""Serves all hosts of one timed island in one process: one loop for all, and for each host the threads, the streams and
the messages of a host in a process of its own (`host/serve.py`).

Each host has other objects for the devices, so that each can ask which are here.
"""

import argparse
import json
import os
import queue
import socket
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ranks import RankTable, island_of_host
from pathways.dialect.topology import Island
from pathways.runtime.host.between.link import Inbound, Outbound
from pathways.runtime.host.clients import Clients, Todo
from pathways.runtime.host.devices.in_flight_limit import DeviceQueue
from pathways.runtime.host.devices.islands import Machine, PhysicalIsland
from pathways.runtime.host.host import Host
from pathways.runtime.host.load.peer_hosts import PeerHosts
from pathways.runtime.host.serve import deliver, islands_for, receive_all, remove_folder, set_signals
from pathways.runtime.host.timed import pjrt
from pathways.runtime.host.timed.devices import TimedClient, TimedDevice
from pathways.runtime.host.timed.figures import Figures, allow_many_files
from pathways.runtime.host.timed.links import MAX_BYTES, NearServer, Network, TimedOutbound, TimedSource, near_inbox
from pathways.runtime.host.timed.moments import Timer
from pathways.runtime.host.timed.ports import Ports
from pathways.runtime.threads import start_thread
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.addresses import both
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.credentials import TICKET
from pathways.runtime.wire.encoding import decode
from pathways.runtime.wire.loop import Loop
from pathways.runtime.wire.message import VERSIONS
from pathways.runtime.wire.peer import Peer


class TimedMachine(Machine):
    """The devices of an island as one of its hosts sees them."""

    def __init__(self, platform: str, island: Island, key: str, devices: Sequence[TimedDevice]) -> None:
        super().__init__(platform)
        queues = tuple(self._queues.setdefault(d, DeviceQueue(self.row.in_flight)) for d in devices)
        self.island = PhysicalIsland(island.name, tuple(devices), queues, key)
        self._bound[island.name, island.size] = self.island


class TimedPeerHosts(PeerHosts):
    """The links of a timed host. Those to hosts of its own island are made when a plan first needs them."""

    network: Network

    @cached_property
    def name(self) -> str:
        return self.ranks.names(self.island)[self.rank]

    def _is_near(self, host: str) -> bool:
        return island_of_host(host) == self.island

    def make_outbound(self, host: str) -> Outbound:
        near, island = self._is_near(host), island_of_host(host)
        server = NearServer(self.name, host) if near else self.sends
        made = TimedOutbound(self.network, island, self.device, self.ip, server, MAX_BYTES, self.sender)
        if near:
            made.invite()
        return made

    def invite(self, host: str) -> str:
        return _NEAR if self._is_near(host) else super().invite(host)

    def connect_to(self, invitations: Mapping[str, str]) -> None:
        super().connect_to({host: text for host, text in invitations.items() if text != _NEAR})

    def reached(self) -> Mapping[str, Inbound]:
        return _Sources(self.name, super().reached())


_NEAR = "near"
"""The invitation of a host of the same island."""


class _Sources(dict[str, Inbound]):
    """The sources of values of a host. That of a host of the same island is made when it is first needed."""

    def __init__(self, own: str, known: Mapping[str, Inbound]) -> None:
        super().__init__(known)
        self._own = own

    def __missing__(self, host: str) -> Inbound:
        inbox = near_inbox(host, self._own)
        return self.setdefault(host, Inbound(inbox, (TimedSource(inbox),)))


def serve_island() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="the folder of the cluster")
    parser.add_argument("--socket", required=True, help="the socket of the controller")
    parser.add_argument("--listen", nargs="+", required=True, help="the sockets for clients, by rank")
    parser.add_argument("--island", required=True)
    parser.add_argument("--devices", type=int, required=True, help="devices of each host")
    parser.add_argument("--platform", required=True)
    parser.add_argument("--hosts", type=json.loads, default={}, help="JSON: number of hosts of each island")
    chosen = parser.parse_args()
    ranks, loop = RankTable(chosen.hosts), Loop()
    island = Island(chosen.island, devices=chosen.devices, hosts=ranks.count(chosen.island))
    set_signals(foreground=False)
    allow_many_files()
    figures = Figures(chosen.folder, island.name)
    tickets: list[str] = json.loads(os.environ.pop(TICKET))
    others = _devices(island, chosen.platform, TimedClient(-1), range(island.hosts))
    todos: list[tuple[Host, Todo]] = []
    try:
        figures.read()
        pjrt.use(figures)
        network = Network(figures, Ports(chosen.folder, len(figures.names)), Timer())
        for rank, (ticket, listen) in enumerate(zip(tickets, chosen.listen, strict=True)):
            own = _devices(island, chosen.platform, TimedClient(rank), [rank])
            at = rank * island.devices
            devices = [*others[:at], *own, *others[at + island.devices :]]
            machine = TimedMachine(chosen.platform, island, ranks.names(island.name)[rank], devices)
            todos.append(_begun(machine, rank, ranks, network, loop, chosen.socket, listen, ticket))
    except (OSError, PathwaysError) as error:
        sys.exit(str(error))
    for host, todo in todos[1:]:
        start_thread("pathways-host", receive_all, host, todo, loop)
    loop.start()
    receive_all(*todos[0], loop)


def _devices(island: Island, platform: str, client: TimedClient, ranks: Sequence[int]) -> list[TimedDevice]:
    each = island.devices
    return [
        TimedDevice(rank * each + at, island.name, "timed", platform, rank, client)
        for rank in ranks
        for at in range(each)
    ]


def _begun(
    machine: TimedMachine, rank: int, ranks: RankTable, network: Network, loop: Loop,
    controller: str, listen: str, ticket: str,
) -> tuple[Host, Todo]:  # fmt: skip
    """Makes a host, and connects it with the controller."""
    island = machine.island
    peer_hosts = TimedPeerHosts(
        island.devices[rank * len(island.devices) // ranks.count(island.name)], loop, island.name, rank, ranks
    )
    peer_hosts.network = network
    host = Host(island.key, machine, partial(islands_for, island), peer_hosts, lambda *sent: control.post(*sent))
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(controller)
    connection = Connection(sock)
    todo: Todo = queue.SimpleQueue()
    clients = Clients(host, todo, loop)
    clients.listen(listen)
    connection.post(m.Hello(island.key, os.getpid(), VERSIONS, both(None, listen), ticket))
    control = connection.hand_over(loop)
    host.start(loop)
    control.begin(lambda _, kind, payload: deliver(clients, decode(kind, payload)), partial(_end, Path(controller)))
    return host, todo


def _end(controller: Path, _: Peer, reason: str) -> None:
    """Ends the process with its controller, and removes the folder of the cluster, since nothing else would."""
    remove_folder(controller)
    os._exit(0)
