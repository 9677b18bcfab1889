"""A cluster: islands in processes of their own, and the devices that this process has there by name."""

import json
import sys
import threading
import time
from collections import Counter

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ranks import ranks_in
from pathways.dialect.topology import Topology
from pathways.runtime.client.hosts import HostedIslands, ask_each
from pathways.runtime.client.lost_values import LostValues
from pathways.runtime.client.remote_gang import IslandHost, RemoteGang
from pathways.runtime.client.remote_host import RemoteHost
from pathways.runtime.control.epochs import Epoch
from pathways.runtime.control.silence import Silence, host_timeout
from pathways.runtime.host.devices.islands import PhysicalIsland
from pathways.runtime.journal import note
from pathways.runtime.launch.processes import HostProcess, start_hosts
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import NotOverProcesses

MOST_STARTS = 5
"""So many hosts that end before a run of theirs does are enough."""
LOOK = 0.2
"""Seconds between two looks at when hosts were last heard of."""


class Cluster(HostedIslands):
    """The machine of a process whose islands are other processes: devices by name, and the hosts that have them."""

    def __init__(self, topology: Topology, platform: str) -> None:
        """Starts the processes of each island. Raises PWC0910 where one does not start, PWC0912 where all would take
        the same devices."""
        super().__init__(topology, platform)
        if self.row.made_at_will is None:
            have, rule = f"{platform} devices, which every process would take", "devices that are made at will: cpu"
            raise PathwaysError(NotOverProcesses(what="a cluster on one machine", have_=have, rule=rule))
        self._changed = threading.Condition()
        """Guards the hosts; notified when one has been started anew, or cannot be."""
        self._epochs = {i.name: Epoch() for i in topology.islands}
        """Which host of each island is there, or comes."""
        self._idle: Counter[str] = Counter()
        """How many hosts of each island in a row have ended before any run of theirs did."""
        self._closed = threading.Event()
        self._lost_values = LostValues(self.hosts)
        self.ranks = ranks_in(topology)
        self.processes = {p.island: p for p in start_hosts(topology.islands, platform, self.ranks)}
        """By name of the host: an island of several has one for each."""
        self.hosts.update({i.name: self._met(i.name) for i in topology.islands})
        threading.Thread(target=self._listen, name="pathways-beats", daemon=True).start()
        try:
            self._join()
            for host in self.hosts.values():
                if host.lost is not None:
                    raise PathwaysError(host.lost)
        except BaseException:
            self.close()
            raise
        for epoch in self._epochs.values():
            epoch.settle(0, "join")

    def _met(self, island: str) -> IslandHost:
        """What has an island, when its processes have said hello."""
        found = {name: self.processes[name].connection for name in self.ranks.names(island)}
        if len(found) > 1:
            met: IslandHost = RemoteGang(island, found, self._lost, self._losing, numbers=self.numbers)
        else:
            met = RemoteHost(island, found[island], self._lost, self._losing, numbers=self.numbers)
        for member in met.members:
            member.on_missing = self._lost_values.look_for
        return met

    def host(self, name: str) -> IslandHost:
        with self._changed:
            self._changed.wait_for(lambda: self._closed.is_set() or self._epochs[name].state != "starting")
            host = self.hosts[name]
        if host.lost is not None:
            raise PathwaysError(host.lost)
        return host

    def _join(self) -> None:
        """Tells all hosts that are there where the data of the others comes from; one that goes meanwhile is joined
        when another takes its place."""
        members = [member for host in self.hosts.values() for member in host.members]
        there = {member.island: member for member in members if member.lost is None}

        def ask(name: str, number: int) -> m.Message:
            return m.Connect(number, {n: "" for n in there if n != name})

        answers = ask_each(there, ask)
        found = {name: json.loads(a.value) for name, a in answers.items() if not isinstance(a, PathwaysError)}

        def tell(name: str, number: int) -> m.Message:
            return m.Connect(number, {n: found[n][name] for n in found if n != name})

        for name, answer in (answers | ask_each({name: there[name] for name in found}, tell)).items():
            if isinstance(answer, PathwaysError) and there[name].lost is None:
                raise answer

    def _listen(self) -> None:
        """Loses hosts that have not been heard of for too long: frozen, or away."""
        silence = Silence(host_timeout())
        while not self._closed.wait(LOOK):
            there = {m.island: m for host in self.hosts.values() for m in host.members if m.lost is None}
            heard = {name: member.heard for name, member in there.items()}
            for name, seconds in silence.judge(time.monotonic(), heard).items():
                there[name].lose(f"nothing was heard of it for {seconds:.1f} seconds")

    def _losing(self, host: IslandHost) -> None:
        """Makes the next call wait for the host that comes."""
        with self._changed:
            if not self._closed.is_set():
                self._epochs[host.island].go()

    def _lost(self, host: IslandHost) -> None:
        """Kills what is left of a host, and has the rest done by a thread of its own: another may be frozen, too."""
        if self._closed.is_set():
            return
        for name in self.ranks.names(host.island):
            self.processes[name].kill()
        assert host.lost is not None
        island = self.named(host.island)
        assert island is not None
        self.faults += host.faults
        self.on_lost(island, host.lost)
        threading.Thread(target=self._replace, args=(host,), name="pathways-start", daemon=True).start()

    def fence(self, host: IslandHost) -> None:
        assert host.lost is not None
        cause = write_diagnostic(host.lost)
        for other in self.hosts.values():
            if other.island != host.island:
                other.post(m.Fence(host.island, cause))
        if host is not self.hosts[host.island]:
            self._join()

    def _replace(self, host: IslandHost) -> None:
        """Gives an island new processes; where none can be started, or too often, the old one stays lost."""
        name = host.island
        epoch = self._epochs[name].number
        event = "stay away"
        try:
            self.fence(host)
            self._idle[name] = 0 if host.worked else self._idle[name] + 1
            if self._idle[name] >= MOST_STARTS:
                print(f"note: the host of {name} ends again and again, and is not started any more", file=sys.stderr)
                return
            started = self._started(name)
            for process in started:
                self.processes[process.island].end()
                self.processes[process.island] = process
            self.hosts[name] = self._met(name)
            event = "join"
            self._join()
        except (PathwaysError, OSError) as error:
            print(f"note: {error}", file=sys.stderr)
        finally:
            with self._changed:
                self._epochs[name].settle(epoch, event)
                self._changed.notify_all()
            note("host", name, f"{event}s, number {epoch}")
            for process in (self.processes[n] for n in self.ranks.names(name) if self._closed.is_set()):
                process.kill()
                process.end()

    def _started(self, name: str) -> list[HostProcess]:
        """Starts the processes of an island; again where one ends before it has said hello: killed, say, as the last.

        Raises PWC0910.
        """
        island = [self.topology.island(name)]
        try:
            return start_hosts(island, self.platform, self.ranks)
        except PathwaysError:
            if self._closed.is_set():
                raise
            return start_hosts(island, self.platform, self.ranks)

    def lost_on(self, island: PhysicalIsland) -> tuple[int, ...]:
        """All of an island whose host is gone, until another is there."""
        gone = self.hosts[island.name].lost is not None
        return tuple(range(len(island.devices))) if gone else super().lost_on(island)

    def close(self) -> None:
        """Ends all processes."""
        if self.is_forked:
            return
        with self._changed:
            self._closed.set()
            self._changed.notify_all()
        for host in self.hosts.values():
            host.lose("the cluster has been closed")
        for process in self.processes.values():
            process.end()
