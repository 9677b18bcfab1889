"""Waits for host processes that are started by other means (by hand, ssh, Slurm or Kubernetes), on any machine. The
controller uses it in place of a launcher, if the cluster was started with `--join`.

It starts and kills no host. A host proves its identity by its certificate, and exits when its stream to the controller
ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pathways.dialect.topology import Island
from pathways.runtime.launch.group_service import GroupService, start_group_service
from pathways.runtime.launch.launcher import Started
from pathways.runtime.threads import start_thread


@dataclass(eq=False)
class JoiningHosts(Started):
    """The expected or connected hosts of an island."""

    count: int
    log: Path
    ip: str
    _group: GroupService | None = None

    @property
    def pids(self) -> Sequence[int]:
        return [0] * self.count

    @property
    def is_started_externally(self) -> bool:
        return True

    def start_group(self) -> str:
        """Starts a new group service each time; an old service would take a restarted host for its old process."""
        self.kill()
        if self.count > 1:
            self._group = start_group_service(self.count, self.log, self.ip)
        return self._group.address if self._group is not None else ""

    def waits(self) -> str:
        return "its hosts to connect"

    def ended(self) -> str:
        """Returns "": the ends of their streams are the only sign of lost hosts."""
        return ""

    def kill(self) -> None:
        """Kills the group service, which is not reused. The hosts exit when their streams end."""
        if (group := self._group) is not None:
            group.kill()
            start_thread("pathways-reaper", group.end)
        self._group = None


@dataclass(frozen=True)
class JoiningLauncher:
    """Waits for the hosts of a cluster, and for replacements of lost ones. `ip`: address of group services."""

    logs: Path
    ip: str

    def start(self, island: Island, epoch: int, tickets: Sequence[str]) -> JoiningHosts:
        return JoiningHosts(island.hosts, self.logs / f"{island.name}-meeting.log", self.ip)
