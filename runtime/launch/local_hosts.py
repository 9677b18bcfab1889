"""The hosts of a cluster as processes of its controller's machine."""

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
"""In the folder of a cluster: the socket of its controller, and the folder of what its processes print."""


@dataclass(eq=False)
class LocalHosts(Started):
    """The processes of an island's hosts, by rank."""

    processes: "tuple[subprocess.Popen[bytes], ...]"
    logs: tuple[Path, ...]
    meeting: GroupService | None
    gone: threading.Event = field(default_factory=threading.Event)
    """Set when all of them have ended, once killed."""

    @property
    def pids(self) -> Sequence[int]:
        return [process.pid for process in self.processes]

    def ended(self) -> str:
        """Why one of them has ended, with its last words; empty while all run."""
        for process, log in zip(self.processes, self.logs, strict=True):
            if (code := process.poll()) is not None:
                return why_ended(code, log)
        return ""

    @property
    def is_gone(self) -> bool:
        return self.gone.is_set()

    def kill(self) -> None:
        """Ends them now, also where one is frozen; what is left of them goes when they have."""
        for process in self.processes:
            process.kill()
        if self.meeting is not None:
            self.meeting.kill()
        if not started(threading.Thread(target=self._reap, name="pathways-reaper", daemon=True)):
            self._reap()

    def _reap(self) -> None:
        """Waits until they are gone, which takes a while where they had much: the controller does not wait for it."""
        for process in self.processes:
            process.wait()
        if self.meeting is not None:
            self.meeting.end()
        self.gone.set()


class LocalLauncher:
    """Starts hosts as processes of this machine, which are joined by Unix sockets in a folder of this user's."""

    def __init__(
        self, folder: Path, platform: str, ranks: RankTable, ip: str = LOOPBACK, keys: Path | None = None,
        *, is_temporary: bool = False,
    ) -> None:  # fmt: skip
        """With an address and a folder of keys (`wire/certificates.py`), clients from elsewhere reach them, too.

        `is_temporary`: hosts that outlive their controller remove the folder, since no one else will.
        """
        self._folder, self._platform, self._ranks = folder, platform, ranks
        self._ip, self._keys, self._is_temporary = ip, keys, is_temporary
        self._started: list[LocalHosts] = []
        """All that may not have ended."""
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
        self._started = [*(hosts for hosts in self._started if not hosts.is_gone), made]
        return made

    def wait(self, seconds: float) -> None:
        """Waits until all hosts have ended, which were killed before; for so many seconds at the most."""
        until = time.monotonic() + seconds
        for hosts in self._started:
            hosts.gone.wait(max(0.0, until - time.monotonic()))


def sockets_of(folder: Path, island: Island, epoch: int, rank: int) -> list[str]:
    """Where a host of this machine finds its controller, and listens itself; where its last one did goes."""
    listen = [folder / f"{island.name}-{rank}-{number}" for number in (epoch - 1, epoch)]
    listen[0].unlink(missing_ok=True)
    return ["--socket", str(folder / CONTROLLER), "--listen", str(listen[1])]
