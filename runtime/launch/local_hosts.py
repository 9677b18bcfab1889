"""Starts the host processes of an island on the same machine as the controller, watches them and kills them. The
controller calls it when the cluster starts, and again after a host is lost.
"""

import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ranks import RankTable
from pathways.dialect.topology import Island
from pathways.runtime.launch.group_service import GroupService, start_group_service
from pathways.runtime.launch.host_start import HOST, host_arguments, log_of
from pathways.runtime.launch.launcher import Started
from pathways.runtime.launch.spawn import spawn, why_ended
from pathways.runtime.threads import started
from pathways.runtime.wire.addresses import LOOPBACK
from pathways.runtime.wire.certificates import member_folder
from pathways.runtime.wire.credentials import TICKET

CONTROLLER, LOGS = "controller", "logs"
"""Names in a cluster's folder: the socket of its controller, and the folder of its logs."""


@dataclass(eq=False)
class LocalHosts(Started):
    """The processes of an island's hosts, by rank."""

    processes: "tuple[subprocess.Popen[bytes], ...]"
    logs: tuple[Path, ...]
    meeting: GroupService | None
    exited: threading.Event = field(default_factory=threading.Event)
    """Set when all hosts have exited after `kill`."""

    @property
    def pids(self) -> Sequence[int]:
        return [process.pid for process in self.processes]

    def ended(self) -> str:
        """Returns why a host has exited, with the end of its log; empty while all run."""
        for process, log in zip(self.processes, self.logs, strict=True):
            if (code := process.poll()) is not None:
                return why_ended(code, log)
        return ""

    @property
    def is_here(self) -> bool:
        return True

    @property
    def has_exited(self) -> bool:
        return self.exited.is_set()

    def kill(self) -> None:
        """Kills all hosts now, including frozen ones, and releases their resources when they have exited."""
        for process in self.processes:
            process.kill()
        if self.meeting is not None:
            self.meeting.kill()
        if not started(threading.Thread(target=self._reap, name="pathways-reaper", daemon=True)):
            self._reap()

    def _reap(self) -> None:
        """Waits until the hosts have exited. That may take long with much memory, so the controller does not wait."""
        for process in self.processes:
            process.wait()
        if self.meeting is not None:
            self.meeting.end()
        self.exited.set()


class LocalLauncher:
    """Starts hosts as processes on this machine, connected by Unix sockets in a private folder of this user."""

    def __init__(
        self, folder: Path, platform: str, ranks: RankTable, ip: str = LOOPBACK, keys: Path | None = None,
        *, is_temporary: bool = False,
    ) -> None:  # fmt: skip
        """Clients on other machines can reach the hosts if an address and a folder of keys (`wire/certificates.py`) are
        given.

        `is_temporary`: hosts that outlive their controller remove the folder, since nothing else will.
        """
        self._folder, self._platform, self._ranks = folder, platform, ranks
        self._ip, self._keys, self._is_temporary = ip, keys, is_temporary
        self._started: list[LocalHosts] = []
        """Hosts that may not have exited."""
        self._logs = folder / LOGS
        self._logs.mkdir(mode=0o700, exist_ok=True)

    def start(self, island: Island, epoch: int, tickets: Sequence[str]) -> LocalHosts:
        """Starts the hosts of an island. Raises OSError."""
        meeting = None
        processes: list[subprocess.Popen[bytes]] = []
        logs: list[Path] = []
        try:
            if island.hosts > 1:
                meeting = start_group_service(island.hosts, log_of(self._logs, f"{island.name}-meeting"), self._ip)
            group = meeting.address if meeting is not None else ""
            for rank, ticket in enumerate(tickets):
                logs.append(log_of(self._logs, self._ranks.names(island.name)[rank]))
                arguments = sockets_of(self._folder, island, epoch, rank)
                arguments += host_arguments(self._platform, self._ranks, island, rank, group)
                if self._is_temporary:
                    arguments.append("--remove-folder")
                if self._keys is not None:
                    folder = member_folder(self._keys, "host", self._ranks.names(island.name)[rank])
                    arguments += ["--ip", self._ip, "--keys", str(folder)]
                processes.append(spawn(HOST, arguments, logs[-1], environment={TICKET: ticket}))
        except (OSError, PathwaysError):
            LocalHosts(tuple(processes), tuple(logs), meeting).kill()
            raise
        made = LocalHosts(tuple(processes), tuple(logs), meeting)
        self._started = [*(hosts for hosts in self._started if not hosts.has_exited), made]
        return made

    def wait(self, seconds: float) -> None:
        """Waits until all killed hosts have exited, for at most `seconds`."""
        until = time.monotonic() + seconds
        for hosts in self._started:
            hosts.exited.wait(max(0.0, until - time.monotonic()))


def sockets_of(folder: Path, island: Island, epoch: int, rank: int) -> list[str]:
    """Returns socket arguments of a host: its controller's, and its own. Removes the previous epoch's socket."""
    listen = [folder / f"{island.name}-{rank}-{number}" for number in (epoch - 1, epoch)]
    listen[0].unlink(missing_ok=True)
    return ["--socket", str(folder / CONTROLLER), "--listen", str(listen[1])]
