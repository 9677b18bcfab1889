"""Represents a cluster to which this process is connected as a client. Runs go with their small arguments to the
cluster's controller, which schedules them. Plans and large arguments go directly to the hosts, which return results.
`pw.connect` and `Cluster` use it.
"""

import contextlib
import itertools
import time
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from msgspec.structs import replace as replace_field

from pathways.dialect.diagnostic_json import read_diagnostic, write_diagnostic
from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.ranks import ranks_in
from pathways.dialect.topology import Island, topology_of, write_topology
from pathways.dialect.user_line import caller
from pathways.runtime.client.remote.controller_requests import ControllerRequests
from pathways.runtime.client.remote.host_endpoints import (
    Connect,
    IslandEndpoints,
    ToController,
    ToIsland,
    island_endpoints,
)
from pathways.runtime.client.remote.hosts import HostedIslands, RemoteDevice, RunParcel, StartedRun
from pathways.runtime.client.remote.inside_clients import InsideClients
from pathways.runtime.client.remote.remote_host import show_ticket
from pathways.runtime.client.remote.remote_island import RemoteIsland
from pathways.runtime.client.remote.run_window import RunWindow
from pathways.runtime.client.remote.submitted import MAX_KEPT, HeldBytes, are_ahead, parcels_of, submitted
from pathways.runtime.client.remote_array import Parts, RemoteRun
from pathways.runtime.client_state import MAIN
from pathways.runtime.control.health import HeartbeatMonitor, host_timeout
from pathways.runtime.errors import CLUSTER_CLOSED, ClientClosed, DeviceLost, Hang
from pathways.runtime.host.devices.islands import PhysicalIsland
from pathways.runtime.interrupts import uninterrupted
from pathways.runtime.monitor import Monitor
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.encoding import Parcel, pack_parcels, read_frames
from pathways.runtime.wire.errors import ControllerLost, IslandRemoved, NoPeer
from pathways.runtime.wire.fields import named
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.ids import MAX_RUNS, first_id
from pathways.runtime.wire.load_proofs import Branches, digest_of
from pathways.runtime.wire.loop import Loop

CONNECT_TIMEOUT_S = 15.0
"""Time limit to connect to a host that the controller reports as available."""
TEND_POLL_S = 0.25
"""Interval of heartbeat checks, and of reports of freed arrays and held bytes that no run carries."""


class Attached(HostedIslands):
    """The devices of a cluster that has accepted this process as a client."""

    schedules_here: ClassVar[bool] = False

    def __init__(
        self, loop: Loop, address: str, control: ToController, welcome: m.Welcome, connect: Connect
    ) -> None:  # fmt: skip
        """`control` is the connection to the controller. It calls `hear` and `control_ended` on the loop's thread.
        `connect` connects to a host."""
        self._loop, self.address, self._control, self._connect = loop, address, control, connect
        self._places = {
            name: island_endpoints(number, text) for number, (name, text) in enumerate(welcome.hosts.items())
        }
        first = {name: place.first for name, place in self._places.items()}
        super().__init__(topology_of(welcome.topology, address), welcome.platform, welcome.client, first)
        self._ticket = welcome.ticket
        self.policy = welcome.policy
        self.ended: Diagnostic | None = None
        """The reason why the controller is lost or the cluster is closed, None while it is connected."""
        self.ranks = ranks_in(self.topology)
        self._by_number = dict(enumerate(welcome.hosts))
        self._changed = Monitor()
        """Guards host endpoints and hosts. Notified when a host connects or is given up, and when a run completes."""
        self._window = RunWindow(self._changed)
        self._moves = itertools.count(first_id(welcome.client) + MAX_RUNS)
        self._requests = ControllerRequests(self._changed, self._check_there)
        self._inside = InsideClients(self._post, self.telling)
        self._held = HeldBytes()
        for name, place in self._places.items():
            if place.ended:
                self._handle_ended(name, place)
        self._heartbeats = HeartbeatMonitor(host_timeout())
        loop.call(lambda: loop.every(TEND_POLL_S, self._tend))

    def host(self, name: str) -> RemoteIsland:
        tried: dict[int, float] = {}
        while True:
            self._changed.wait_for(lambda: self.ended is not None or self._is_known(name))
            self._check_there()
            place, host = self._seen(name)
            if host is not None and host.lost is None and host.epoch == place.epoch:
                return host
            if place.ended:
                assert place.cause is not None
                raise PathwaysError(place.cause)
            tried.setdefault(place.epoch, time.monotonic())
            try:
                self._attach(name, place)
            except (OSError, ConnectionEnded):
                pass  # lost again: the controller will report it
            except PathwaysError as error:
                self._check_there()  # a refusal after the end of the block has its reason there
                if error.code != NoPeer.code or time.monotonic() > tried[place.epoch] + CONNECT_TIMEOUT_S:
                    raise
            time.sleep(0.01)

    @uninterrupted
    def _seen(self, name: str) -> tuple[IslandEndpoints, RemoteIsland | None]:
        """Returns an island's endpoints, as the controller reports them, and its connected hosts, at one moment."""
        with self._changed.lock:
            return replace(self._places[name]), self.hosts.get(name)

    def _is_known(self, name: str) -> bool:
        place = self._places[name]
        return bool(place.addresses) or place.ended

    def _check_there(self) -> None:
        if self.ended is not None:
            raise PathwaysError(replace(self.ended, where=caller()))

    def _attach(self, name: str, place: IslandEndpoints) -> None:
        """Connects to all hosts of an island."""
        made: dict[str, Connection] = {}
        try:
            for host, address in place.addresses.items():
                made[host] = self._connected(host, address)
            if self._take_in(name, place, made):
                made = {}
        finally:
            for connection in made.values():
                connection.close()

    @uninterrupted
    def _take_in(self, name: str, place: IslandEndpoints, made: dict[str, Connection]) -> bool:
        """Registers connections to an island's hosts; returns False if others are connected or expected."""
        with self._changed.lock:
            wanted = self.ended is None and self._places[name].epoch == place.epoch and self._current(name) is None
            if wanted:
                self.hosts[name] = self._met(name, place, made)
            return wanted

    def _connected(self, name: str, address: str) -> Connection:
        """Connects to a host and presents the client's ticket."""
        connection = self._connect(address, name)
        if (cause := show_ticket(connection, m.Attach(-1, self.client, self._ticket))) is not None:
            raise PathwaysError(cause)
        return connection

    def _met(self, name: str, place: IslandEndpoints, connections: dict[str, Connection]) -> RemoteIsland:
        """Creates the `RemoteIsland` of hosts that have accepted this client."""
        ways = {host: connection.hand_over(self._loop) for host, connection in connections.items()}
        return RemoteIsland(
            name, ways, self._lost, lambda run: self._part_ended(run, name),
            numbers=self.numbers, ordered=ToIsland(self._control, place.number, place.epoch), epoch=place.epoch,
        )  # fmt: skip

    def _part_ended(self, run: int, island: str) -> None:
        """Decrements the run count of an island, and sends the messages that were kept (`are_ahead`)."""
        self._window.end_part(run, island)
        with contextlib.suppress(ConnectionEnded):
            self._control.flush_kept()

    def _current(self, name: str) -> RemoteIsland | None:
        host = self.hosts.get(name)
        return host if host is not None and host.lost is None and host.epoch == self._places[name].epoch else None

    def add(self, island: Island) -> None:
        spec = write_topology(replace(self.topology, islands=(island,)))
        self._requests.ask(self._post, lambda number: m.ChangeIslands(number, spec, "", named=True, now=False))

    def remove(self, name: str, *, now: bool) -> None:
        self._requests.ask(self._post, lambda number: m.ChangeIslands(number, "", name, named=True, now=now))

    def _island_added(self, message: m.IslandAdded) -> None:
        """Binds the devices of an added island, whose hosts may not be connected yet."""
        (island,) = topology_of(message.topology, self.address).islands
        if (old := self.named(island.name)) is not None:
            self.unbind(old)
        self.bind_hosted(island, message.first)
        with self._changed.lock:
            self._by_number[message.number] = island.name
            self._places[island.name] = IslandEndpoints(message.number, -1, {})
        self.appear(island)

    def _handle_ended(self, name: str, place: IslandEndpoints) -> None:
        """Handles an island whose hosts will not return: it was removed or given up."""
        assert place.cause is not None
        if isinstance(place.cause, IslandRemoved):
            self.leave(name, place.cause)
            if (island := self.named(name)) is not None:
                self.unbind(island)
        else:
            self.give_up(name, "its hosts are no longer restarted", place.cause)

    def next_move(self) -> int:
        return next(self._moves)

    @uninterrupted
    def known(self) -> Sequence[str]:
        with self._changed.lock:
            return [name for name, place in self._places.items() if place.addresses or name in self.hosts]

    def get_ready(self, hosts: Iterable[RemoteIsland], client: str) -> None:
        """Waits while a client has too many runs on these islands. Raises PWC0917, or PWC0509 after the block."""
        self._window.wait([host.island for host in hosts], client, lambda: self.ended is not None, self._post)
        self._check_there()

    def start(self, run: StartedRun, parcels: Sequence[RunParcel]) -> list[RemoteRun]:
        parcels = [self._to_current(parcel) for parcel in parcels]
        hosts = [parcel.host for parcel in parcels]
        parts = Parts(lambda cause: self._cancel(run.number, cause)) if run.branches is not None else None
        runs = [parts.add() if parts is not None else RemoteRun() for _ in parcels]
        client = "" if run.request is None else run.request.client
        self._window.begin(run.number, {host.island: len(host.members) for host in hosts}, client)
        there = [host.expect(run.number, part) for host, part in zip(hosts, runs, strict=True)]
        if not all(there):
            cause = next(host.lost for host in hosts if host.lost is not None)
            for host in hosts:
                host.refuse(run.number, cause)
            self._window.drop(run.number)
            return runs
        inside = 0 if run.request is None else self._inside.number(run.request.client)
        numbered = {self._places[parcel.host.island].number: parcel for parcel in parcels}
        with contextlib.suppress(ConnectionEnded):
            self._submit(submitted(run, inside), parcels_of(numbered), hosts)
        return runs

    def _submit(self, run: m.Submit, parcels: Sequence[Parcel], hosts: Sequence[RemoteIsland]) -> None:
        """Sends a run and all pending reports to the controller in one write, since each write wakes the controller."""
        messages = [*self._held_for_run(), replace_field(run, blob=pack_parcels(parcels))]
        if self._control.kept >= MAX_KEPT or not are_ahead(hosts):
            self._control.post(*messages)
            return
        self._control.keep(*messages)
        if not are_ahead(hosts):  # all have completed meanwhile, so no event may follow
            self._control.flush_kept()

    def _to_current(self, parcel: RunParcel) -> RunParcel:
        """Addresses a parcel to the island's current hosts. Omits arrays for new hosts: no handle would free them."""
        host = self.hosts[parcel.host.island]
        kept = [x for x in parcel.before if host is parcel.host or isinstance(x, m.PutPoison)]
        return RunParcel(host, kept, parcel.message)

    def introduce(self, plan: int, name: str, raw: bytes, branches: Branches | None) -> None:
        shared = None if branches is None else dict(branches)
        self._post(m.Introduce(0, plan, named(name), shared, digest_of(raw)))

    def report_loaded(self, host: RemoteIsland, plan: int, proofs: Sequence[bytes]) -> None:
        self._post(m.Loaded(plan, self._places[host.island].number, b" ".join(proofs).decode()))

    def retire(self, client: str) -> None:
        self._inside.retire(client)

    def _cancel(self, run: int, cause: Diagnostic) -> None:
        self._post(m.Cancel(run, write_diagnostic(cause)))

    def hold(self, devices: tuple[Hashable, ...], size: int, client: str, run: int) -> None:
        """Adds bytes of an array, held by a client of this process, to its devices' counts. Any thread may call it."""
        of = run if self.has_limits and self._window.has(run) else 0
        for device in devices:
            if isinstance(device, RemoteDevice):
                self._held.add(client, of, device.number, size)

    def ask(self, what: str) -> Any:
        """Requests `status`, `stacks` or `stop` from the controller. Raises the errors of `get_ready`."""
        self._post(*self._held_since())
        return self._requests.ask(self._post, lambda number: m.Ask(number, what))

    def _post(self, *messages: m.Message) -> None:
        """Sends messages to the controller. If the connection is lost, the loop notifies waiting threads."""
        with contextlib.suppress(ConnectionEnded):
            self._control.post(*messages)

    def deliver(self, message: m.Message) -> None:
        """Handles a message from the controller."""
        try:
            self._take(message)
            self._control.flush_kept()
        except Exception as error:  # after an invalid message the connection is unusable
            self.control_ended(str(error))

    def control_ended(self, reason: str) -> None:
        """Handles the loss of the connection to the controller."""
        self._end(ControllerLost(address=self.address, reason=reason))

    def _end(self, cause: Diagnostic) -> None:
        """Marks the controller and all hosts as lost. The first cause is kept."""
        with self._changed.lock:
            self.ended = self.ended or cause
            hosts = list(self.hosts.values())
            self._changed.notify_all()
        for host in hosts:
            host.lose("", cause)

    def _take(self, message: m.Message) -> None:
        match message:
            case m.Relayed():
                for relayed in read_frames(message.blob):
                    self._from_host(message.island, message.epoch, message.rank, relayed)
            case m.RunRefused(run=0):  # an error of the connection, not of one run
                raise PathwaysError(read_diagnostic(message.cause))
            case m.RunRefused():
                cause = read_diagnostic(message.cause)
                for host in list(self.hosts.values()):
                    host.refuse(message.run, cause)
                self._window.drop(message.run)
            case m.HostDisconnected():
                self._host_lost(message.island, message.epoch, read_diagnostic(message.cause))
            case m.HostConnected():
                with self._changed.lock:
                    place = self._places[message.island]
                    place.epoch, place.addresses, place.ended = message.epoch, message.addresses, not message.addresses
                    self._changed.notify_all()
                if place.ended:
                    self._handle_ended(message.island, place)
            case m.IslandAdded():
                self._island_added(message)
            case m.IslandDraining():
                self.leave(message.island, read_diagnostic(message.cause))
            case m.Beat():
                pass
            case m.Answer():
                self._requests.deliver(message)
            case _:
                raise ValueError(f"a {type(message).__name__} message from a controller")

    def _from_host(self, island: int, epoch: int, rank: int, message: m.Message) -> None:
        """Handles a host's message to this client that the controller forwarded."""
        host = self.hosts.get(self._by_number[island])
        if host is not None and host.epoch == epoch:
            host.members[rank].receive(message)
        elif isinstance(message, m.Done | m.Failed):
            self._window.end_part(message.run, self._by_number[island])

    def _host_lost(self, name: str, epoch: int, cause: Diagnostic) -> None:
        with self._changed.lock:
            place = self._places[name]
            place.addresses, place.cause = {}, cause
            host = self.hosts.get(name)
        if host is not None and host.epoch == epoch:
            self.faults += isinstance(cause, Hang | DeviceLost)  # may be an injected fault
            host.lose("", cause)
        self._window.lose(name)  # after the host: a run that starts now fails at once and is not counted

    def _lost(self, host: RemoteIsland) -> None:
        if host.lost is not None and (island := self.named(host.island)) is not None:
            self.on_lost(island, host.lost)

    def _tend(self) -> None:
        """Reports freed arrays and held bytes if no run does; drops the controller after a heartbeat timeout, for
        example if it is frozen."""
        if self.ended is not None:
            return
        for seconds in self._heartbeats.judge(time.monotonic(), {"": self._control.last_received}).values():
            return self.control_ended(f"heartbeat timeout: no message for {seconds:.1f} seconds")
        for host in list(self.hosts.values()):
            host.free_now()
            host.lose_late(time.monotonic())
        closed = self._inside.take_closed()  # before the bytes, so that none of theirs is reported later
        if held := self._held_since():
            self._post(*held)
        self._inside.report_retired(closed)

    def _held_for_run(self) -> list[m.Message]:
        """Returns `_held_since` if runs may wait for memory; otherwise `_tend` reports the bytes a little later."""
        return self._held_since() if self.has_limits else []

    def _held_since(self) -> list[m.Message]:
        """Returns messages with the changes of held bytes since the last report."""
        return [m.Hold(self._inside.number(client), pairs, run) for (client, run), pairs in self._held.take().items()]

    def lost_on(self, island: PhysicalIsland) -> tuple[int, ...]:
        """Returns all positions of an island whose hosts are lost, until new hosts are connected."""
        place = self._places.get(island.name)
        is_lost = place is not None and not place.addresses
        return tuple(range(len(island.devices))) if is_lost else super().lost_on(island)

    def keep_for_ever(self) -> None:
        super().keep_for_ever()
        self._loop.abandon()

    def close(self) -> None:
        """Disconnects from the cluster, which frees everything that this client has there."""
        if self.is_forked:
            return
        self._end(ClientClosed(client=MAIN.label, have_=CLUSTER_CLOSED))
        self._control.close()
        self._end_loop()

    def _end_loop(self) -> None:
        """Stops the loop and closes all its streams."""
        self._loop.call(self._loop.end)
