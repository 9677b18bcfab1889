"""A cluster: islands in processes of their own, and the devices that this process has there by name."""

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.ranks import ranks_in
from pathways.dialect.topology import Island, Topology
from pathways.dialect.user_line import caller
from pathways.runtime.client.hosts import HostedIslands, ask_each
from pathways.runtime.client.lost_values import LostValues
from pathways.runtime.client.remote_gang import IslandHost, RemoteGang
from pathways.runtime.client.remote_host import RemoteHost
from pathways.runtime.control.epochs import Epoch
from pathways.runtime.control.island_rules import refused_new, refused_removal
from pathways.runtime.control.silence import Silence, host_timeout
from pathways.runtime.host.devices.islands import PhysicalIsland
from pathways.runtime.journal import note
from pathways.runtime.launch.processes import HostProcess, start_hosts
from pathways.runtime.threads import start_thread
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import HostLost, IslandRemoved, NotOverProcesses

MOST_STARTS = 5
"""So many hosts that end before a run of theirs does are enough."""
GOODBYE = 1.0
"""Seconds that the processes of an island that is removed may take to end; nothing of theirs is wanted any more."""
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
        self._passing: set[str] = set()
        """Islands that come or go: where a host ends there, no other is started."""
        self._one_at_a_time = threading.Lock()
        """Held while an island comes or goes."""
        self._closed = threading.Event()
        self._lost_values = LostValues(lambda: self.hosts, self.telling)
        self.ranks = ranks_in(topology)
        self.processes = {p.island: p for p in start_hosts(topology.islands, platform, self.ranks)}
        """By name of the host: an island of several has one for each."""
        self.hosts.update({i.name: self._met(i.name) for i in topology.islands})
        start_thread("pathways-beats", self._listen)
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

    def _meet(self, island: str, started: Sequence[HostProcess]) -> None:
        """Takes in the processes of an island; who goes over those that there are sees the old ones, or the new."""
        with self._changed:
            self.processes = self.processes | {process.island: process for process in started}
        host = self._met(island)
        with self._changed:
            self.hosts = {**self.hosts, island: host}

    def host(self, name: str) -> IslandHost:
        with self._changed:
            self._changed.wait_for(lambda: self._closed.is_set() or not self._is_starting(name))
            host = self.hosts.get(name)
        if host is None or host.lost is not None:
            cause = self.removed.get(name) if host is None else host.lost
            raise PathwaysError(cause or HostLost(island=name, reason="the cluster has no such island"))
        return host

    def _is_starting(self, name: str) -> bool:
        return name in self._epochs and self._epochs[name].state == "starting"

    def add(self, island: Island) -> None:
        name = island.name
        with self._one_at_a_time:
            if (refused := refused_new(self.topology, island, self.ranks)) is not None:
                raise PathwaysError(replace(refused, where=caller()))
            started = start_hosts([island], self.platform, self.ranks)
            with self._changed:
                self._passing.add(name)
                self._epochs[name] = epoch = Epoch()
                self._idle[name] = 0
            self.bind_hosted(island)
            self._meet(name, started)
            try:
                self._join()
                with self._changed:
                    if self._closed.is_set() or epoch.number:  # it is gone again
                        raise PathwaysError(self.hosts[name].lost or HostLost(island=name, reason="the cluster ends"))
                    epoch.settle(0, "join")
                    self._passing.discard(name)
                    self._changed.notify_all()
            except BaseException:
                self._end_island(name, HostLost(island=name, reason="it did not come"))
                raise
            self.appear(island)

    def remove(self, name: str, drain: Callable[[str], None] | None) -> None:
        with self._one_at_a_time:
            if name not in self.removed or name not in self.hosts:  # else: one that was interrupted goes on
                if (refused := refused_removal(self.topology, name)) is not None:
                    raise PathwaysError(replace(refused, where=caller()))
                self.leave(name, IslandRemoved(island=name))
        if drain is not None:
            drain(name)
            self.wait_for_moves(name)
        with self._one_at_a_time:
            if name in self.removed and name in self.hosts:
                with self._changed:
                    self._passing.add(name)
                    self._changed.wait_for(lambda: self._closed.is_set() or not self._is_starting(name))
                self._end_island(name, self.removed[name], patient=drain is not None)

    def _end_island(self, name: str, cause: Diagnostic, *, patient: bool = False) -> None:
        """Ends the processes of an island, and what lies and runs there. `patient`: they may end by themselves."""
        host, island = self.hosts[name], self.named(name)
        host.lose("", cause)
        assert island is not None and host.lost is not None
        self.on_lost(island, host.lost)
        ending = [self.processes[n] for n in self.ranks.names(name)]
        with self._changed:
            self.hosts = {n: h for n, h in self.hosts.items() if n != name}
            self.processes = {n: p for n, p in self.processes.items() if p not in ending}
        self.fence(host)
        for process in ending:
            if not patient:
                process.kill()
            process.end(GOODBYE)
        self.faults += host.faults
        self.unbind(island)
        with self._changed:
            del self._epochs[name], self._idle[name]
            self._passing.discard(name)
            self._changed.notify_all()
        note("host", name, "was removed")

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
        with self._changed:
            if host.island in self._passing:  # who has it come or go does the rest
                epoch = self._epochs[host.island]
                epoch.settle(epoch.number, "stay away")
                self._changed.notify_all()
                return
        for name in self.ranks.names(host.island):
            self.processes[name].kill()
        assert host.lost is not None
        island = self.named(host.island)
        assert island is not None
        self.faults += host.faults
        self.on_lost(island, host.lost)
        start_thread("pathways-start", self._replace, host)

    def fence(self, host: IslandHost) -> None:
        assert host.lost is not None
        cause = write_diagnostic(host.lost)
        for other in self.hosts.values():
            if other.island != host.island:
                other.post(m.Fence(host.island, cause, leaves=host.island not in self.hosts))
        if host is not self.hosts.get(host.island, host):
            self._join()

    def _replace(self, host: IslandHost) -> None:
        """Gives an island new processes; where none can be started, or too often, the old one stays lost."""
        name = host.island
        epochs = self._epochs[name]
        epoch, event = epochs.number, "stay away"
        try:
            self.fence(host)
            self._idle[name] = 0 if host.worked else self._idle[name] + 1
            if self._idle[name] >= MOST_STARTS:
                print(f"note: the host of {name} ends again and again, and is not started any more", file=sys.stderr)
                return
            island = next((i for i in self.topology.islands if i.name == name), None)
            if island is None:  # it is being removed
                return
            started = self._started(island)
            for process in started:
                self.processes[process.island].end()
            self._meet(name, started)
            event = "join"
            self._join()
        except (PathwaysError, OSError) as error:
            print(f"note: {error}", file=sys.stderr)
        finally:
            if event == "stay away" and name not in self.removed and not self._closed.is_set():
                self.give_up(name, "its host is not started any more", host.lost)
            with self._changed:
                epochs.settle(epoch, event)
                self._changed.notify_all()
            note("host", name, f"{event}s, number {epoch}")
            for process in (
                self.processes[n] for n in self.ranks.names(name) if self._closed.is_set() and n in self.processes
            ):
                process.kill()
                process.end()

    def _started(self, island: Island) -> list[HostProcess]:
        """Starts the processes of an island; again where one ends before it has said hello: killed, say, as the last.

        Raises PWC0910.
        """
        try:
            return start_hosts([island], self.platform, self.ranks)
        except PathwaysError:
            if self._closed.is_set():
                raise
            return start_hosts([island], self.platform, self.ranks)

    def lost_on(self, island: PhysicalIsland) -> tuple[int, ...]:
        """All of an island whose host is gone, until another is there."""
        host = self.hosts.get(island.name)
        gone = host is None or host.lost is not None
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
