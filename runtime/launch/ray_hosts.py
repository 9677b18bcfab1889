"""Starts the host processes of islands through Ray: one placement group for each island, and one actor for each host.
The controller of a cluster on Ray calls it.

Ray only allocates, starts, watches and kills: hosts and controllers communicate through their own sockets. Each gang
has its own thread, since Ray calls may block for long and the controller's loop must not.
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

POLL_INTERVAL_S = 0.1
"""Interval of checks of Ray's state, and of requests to kill the hosts."""
UNPLACED_NOTE_DELAY_S = 1.0
"""Seconds after which a gang without a placement group is reported as waiting. Ray places it sooner on free nodes."""
EXIT_TIMEOUT_S = 5.0
"""Time limit for killed gangs to exit."""


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
        """Makes Ray kill the actors. The kernel then kills their processes, including frozen ones."""
        self._killed.set()

    def _live(self) -> None:
        """Starts the hosts, waits until one exits or all are to be killed, and removes all their resources."""
        group: Any = None
        actors: list[Any] = []
        with contextlib.ExitStack() as stack:
            try:
                name = f"{self._launcher.name} {self._island.name} {self._epoch}"
                group = group_of(self._launcher.ray, self._gang, name)
                if self._is_placed(group):
                    actors += keepers_in(self._launcher.ray, group, self._gang)
                    self._run(group, actors, stack)
            except Exception as error:  # Ray raises many classes
                self._ended = last_line(error)
            self._killed.wait()
            self._end(group, actors)

    def _is_placed(self, group: Any) -> bool:
        """Waits for the placement group; returns False if the hosts are to be killed."""
        since = time.monotonic()
        while not self._killed.is_set():
            if group.wait(POLL_INTERVAL_S):
                self._waits = ""
                return True
            if time.monotonic() - since > UNPLACED_NOTE_DELAY_S:
                self._waits = str(self._gang)
        return False

    def _run(self, group: Any, actors: Sequence[Any], stack: contextlib.ExitStack) -> None:
        """Starts the processes, and waits until one exits.

        A node may be lost before Ray detects it. A gang that had a placement group then waits for another.
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
            ready, _ = ray.wait(numbers, num_returns=len(numbers), timeout=POLL_INTERVAL_S)
            ray.get(ready)  # raises the errors of failed starts
            self._waits = "" if has_places(group) else str(self._gang)
            if len(ready) == len(numbers):
                self._waits, self._pids = "", list(ray.get(numbers))
                break
        ends = [actor.wait.remote() for actor in actors]
        while not self._killed.is_set():
            ready, _ = ray.wait(ends, timeout=POLL_INTERVAL_S)
            if ready:
                self._ended = str(ray.get(ready[0]))
                return

    def _end(self, group: Any, actors: Sequence[Any]) -> None:
        for actor in actors:
            with contextlib.suppress(Exception):  # the actor or Ray is lost
                self._launcher.ray.kill(actor)
        if group is not None:
            with contextlib.suppress(Exception):
                leave_group(group)


class RayLauncher:
    """Starts hosts through Ray, to which this process is connected.

    Hosts on this machine connect by Unix sockets in a folder. Hosts on any machine connect under TLS to `port`:
    HOST:PORT of the controller, and the folder of the cluster's keys.
    """

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
        """Prefix of gang names, which must be unique within one Ray."""
        self._gangs: list[RayHosts] = []

    def start(self, island: Island, epoch: int, tickets: Sequence[str]) -> RayHosts:
        """Starts the hosts of an island asynchronously. They wait if Ray has no free nodes."""
        self._gangs = [gang for gang in self._gangs if gang.thread.is_alive()]
        self._gangs.append(RayHosts(self, island, epoch, tickets))
        return self._gangs[-1]

    def close(self) -> None:
        """Terminates all hosts."""
        for gang in self._gangs:
            gang.kill()
        until = time.monotonic() + EXIT_TIMEOUT_S
        for gang in self._gangs:
            gang.thread.join(max(0.0, until - time.monotonic()))
        self.ray.shutdown()
