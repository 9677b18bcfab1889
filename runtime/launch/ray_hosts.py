"""The hosts of a cluster, started by Ray: places for a gang, an actor in each, a process in each of these.

Ray allocates, starts, watches and kills; all that hosts and their controller say to each other goes over their own
sockets. A gang has a thread of its own, since calls of Ray may wait for long, and the controller's loop must not.
"""

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pathways.dialect.platforms import platform_named
from pathways.dialect.ranks import RankTable
from pathways.dialect.topology import Island
from pathways.runtime.launch.group_service import start_group_service
from pathways.runtime.launch.host_start import HOST, host_arguments, log_of
from pathways.runtime.launch.launcher import Started
from pathways.runtime.launch.local_hosts import LOGS, sockets_of
from pathways.runtime.launch.ray_api import (
    environment_of_hosts,
    group_of,
    has_places,
    keepers_in,
    last_line,
    leave_group,
    start_in,
    start_member_in,
)
from pathways.runtime.launch.ray_nodes import Labels, gang_of
from pathways.runtime.threads import started
from pathways.runtime.wire.addresses import LOOPBACK
from pathways.runtime.wire.certificates import member_folder
from pathways.runtime.wire.credentials import TICKET

LOOK = 0.1
"""Seconds between two looks at what Ray says, and at whether the hosts are to be killed."""
SOON = 1.0
"""Seconds in which places are found, where they are free: only then a gang is said to wait."""
ENDS = 5.0
"""Seconds in which gangs that were killed are gone."""


class RayHosts(Started):
    """The hosts of an island in one epoch."""

    def __init__(self, launcher: "RayLauncher", island: Island, epoch: int, tickets: Sequence[str]) -> None:
        self._launcher, self._island, self._epoch, self._tickets = launcher, island, epoch, tickets
        self._gang = gang_of(island, platform_named(launcher.platform), launcher.labels)
        self._pids: list[int] = []
        self._waits = self._ended = ""
        self._killed = threading.Event()
        name = f"pathways-gang-{island.name}-{epoch}"
        self.thread = threading.Thread(target=self._live, name=name, daemon=True)
        if not started(self.thread):
            raise OSError("no thread can be started")

    @property
    def pids(self) -> Sequence[int]:
        return self._pids

    def waits(self) -> str:
        return self._waits

    def ended(self) -> str:
        return self._ended

    def kill(self) -> None:
        """Has Ray end the actors, and with them, by the kernel, their processes; a frozen one, too."""
        self._killed.set()

    def _live(self) -> None:
        """Starts the hosts, waits until one ends or all are to be killed, and leaves nothing of them."""
        group: Any = None
        actors: list[Any] = []
        with contextlib.ExitStack() as stack:
            try:
                name = f"{self._launcher.name} {self._island.name} {self._epoch}"
                group = group_of(self._launcher.ray, self._gang, name)
                if self._is_placed(group):
                    actors += keepers_in(self._launcher.ray, group, self._gang)
                    self._run(group, actors, stack)
            except Exception as error:  # of many classes
                self._ended = last_line(error)
            self._killed.wait()
            self._end(group, actors)

    def _is_placed(self, group: Any) -> bool:
        """Waits for the places; until the hosts are to be killed."""
        since = time.monotonic()
        while not self._killed.is_set():
            if group.wait(LOOK):
                self._waits = ""
                return True
            if time.monotonic() - since > SOON:
                self._waits = str(self._gang)
        return False

    def _run(self, group: Any, actors: Sequence[Any], stack: contextlib.ExitStack) -> None:
        """Starts the processes, and waits until one ends.

        A node may be lost before Ray knows it: then a gang that had places waits for others.
        """
        launcher, island, ray = self._launcher, self._island, self._launcher.ray
        address, logs = "", launcher.folder / LOGS
        if island.hosts > 1:
            ip = launcher.port[0].rpartition(":")[0].strip("[]") if launcher.port is not None else LOOPBACK
            meeting = start_group_service(island.hosts, log_of(logs, f"{island.name}-meeting"), ip)
            stack.callback(meeting.end)
            address = meeting.address
        names = launcher.ranks.names(island.name)
        numbers: list[Any] = []
        for rank, (actor, ticket) in enumerate(zip(actors, self._tickets, strict=True)):
            environment = environment_of_hosts() | {TICKET: ticket}
            arguments = host_arguments(launcher.platform, launcher.ranks, island, rank, address)
            if launcher.port is not None:
                to, keys = launcher.port
                folder = member_folder(keys, "host", names[rank])
                numbers.append(start_member_in(actor, HOST, ["--connect", to, *arguments], folder, environment))
                continue
            arguments += sockets_of(launcher.folder, island, self._epoch, rank)
            numbers.append(start_in(actor, HOST, arguments, log_of(logs, names[rank]), environment))
        while not self._killed.is_set():
            ready, _ = ray.wait(numbers, num_returns=len(numbers), timeout=LOOK)
            ray.get(ready)  # raises what has become of those that will not start
            self._waits = "" if has_places(group) else str(self._gang)
            if len(ready) == len(numbers):
                self._waits, self._pids = "", list(ray.get(numbers))
                break
        ends = [actor.wait.remote() for actor in actors]
        while not self._killed.is_set():
            ready, _ = ray.wait(ends, timeout=LOOK)
            if ready:
                self._ended = str(ray.get(ready[0]))
                return

    def _end(self, group: Any, actors: Sequence[Any]) -> None:
        for actor in actors:
            with contextlib.suppress(Exception):  # it is gone, or Ray is
                self._launcher.ray.kill(actor)
        if group is not None:
            with contextlib.suppress(Exception):
                leave_group(group)


class RayLauncher:
    """Starts hosts by Ray, to which this process is connected. Those of one machine come by Unix sockets in a folder;
    those of any under TLS, to a `port`: HOST:PORT of the controller, and the folder of the cluster's keys."""

    def __init__(
        self,
        ray: Any,
        folder: Path,
        platform: str,
        ranks: RankTable,
        labels: Labels,
        port: tuple[str, Path] | None = None,
    ) -> None:
        self.ray, self.folder, self.platform, self.ranks, self.labels = ray, folder, platform, ranks, labels
        self.port = port
        self.name = f"pathways {folder} {os.getpid()}"
        """No two gangs of one Ray may be called the same."""
        self._gangs: list[RayHosts] = []

    def start(self, island: Island, epoch: int, tickets: Sequence[str]) -> RayHosts:
        """Starts the hosts of an island, soon: where Ray has no places for them, they wait."""
        self._gangs = [gang for gang in self._gangs if gang.thread.is_alive()]
        self._gangs.append(RayHosts(self, island, epoch, tickets))
        return self._gangs[-1]

    def close(self) -> None:
        """Ends all hosts."""
        for gang in self._gangs:
            gang.kill()
        until = time.monotonic() + ENDS
        for gang in self._gangs:
            gang.thread.join(max(0.0, until - time.monotonic()))
        self.ray.shutdown()
