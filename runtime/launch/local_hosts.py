"""The hosts of a cluster whose controller is a process of its own: processes of its machine."""

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pathways.dialect.ranks import RankTable
from pathways.dialect.topology import Island
from pathways.runtime.launch.group_service import GroupService, start_group_service
from pathways.runtime.launch.spawn import last_words, spawn
from pathways.runtime.wire.credentials import TICKET

CONTROLLER, LOGS = "controller", "logs"
"""In the folder of a cluster: the socket of its controller, and the folder of what its processes print."""
ENDS = 1.0
"""Seconds in which processes that were killed are gone."""


@dataclass(eq=False)
class LocalHosts:
    """The processes of an island's hosts, by rank."""

    processes: "tuple[subprocess.Popen[bytes], ...]"
    logs: tuple[Path, ...]
    meeting: GroupService | None

    @property
    def pids(self) -> Sequence[int]:
        return [process.pid for process in self.processes]

    def ended(self) -> str:
        """Why one of them has ended, with its last words; empty while all run."""
        for process, log in zip(self.processes, self.logs, strict=True):
            if (code := process.poll()) is not None:
                why = f"it was killed by {signal.Signals(-code).name}" if code < 0 else f"it ended with {code}"
                words = last_words(log)
                return f"{why}: {words}" if words else why
        return ""

    def kill(self) -> None:
        """Ends them now, also where one is frozen; what is left of them goes when they have."""
        for process in self.processes:
            process.kill()
        until = time.monotonic() + ENDS
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
        if self.meeting is not None:
            self.meeting.end()


class LocalLauncher:
    """Starts hosts as processes of this machine, which are joined by Unix sockets in a folder of this user's."""

    def __init__(self, folder: Path, platform: str, ranks: RankTable) -> None:
        self._folder, self._platform, self._ranks = folder, platform, ranks
        (folder / LOGS).mkdir(mode=0o700, exist_ok=True)

    def start(self, island: Island, epoch: int, tickets: Sequence[str]) -> LocalHosts:
        """Starts the hosts of an island. Raises OSError."""
        meeting = None
        processes: list[subprocess.Popen[bytes]] = []
        logs: list[Path] = []
        try:
            if island.hosts > 1:
                meeting = start_group_service(island.hosts, self._log(f"{island.name}-meeting"))
            for rank, ticket in enumerate(tickets):
                logs.append(self._log(self._ranks.names(island.name)[rank]))
                arguments = self._arguments(island, epoch, rank, meeting)
                process = spawn("pathways.runtime.host.serve", arguments, logs[-1], environment={TICKET: ticket})
                processes.append(process)
        except OSError:
            LocalHosts(tuple(processes), tuple(logs), meeting).kill()
            raise
        return LocalHosts(tuple(processes), tuple(logs), meeting)

    def _log(self, host: str) -> Path:
        return self._folder / LOGS / f"{host.replace('/', '.')}.log"

    def _arguments(self, island: Island, epoch: int, rank: int, meeting: GroupService | None) -> list[str]:
        """What a host is started with. Where its last one listened, nothing is left."""
        listen = [self._folder / f"{island.name}-{rank}-{number}" for number in (epoch - 1, epoch)]
        listen[0].unlink(missing_ok=True)
        arguments = [
            "--socket", str(self._folder / CONTROLLER), "--listen", str(listen[1]), "--island", island.name,
            "--devices", str(island.size // island.hosts), "--platform", self._platform, "--rank", str(rank),
            "--hosts", json.dumps(dict(self._ranks.hosts)),
        ]  # fmt: skip
        return arguments if meeting is None else [*arguments, "--group", meeting.address]
