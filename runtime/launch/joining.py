"""Hosts that come by themselves: started by a person, by ssh, Slurm or Kubernetes, on whatever machine.

None is started or killed here: a host says by its certificate which one it is, and ends when its stream does.
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
    """The hosts of an island that are waited for, or that have come."""

    count: int
    log: Path
    ip: str
    _meeting: GroupService | None = None

    @property
    def pids(self) -> Sequence[int]:
        return [0] * self.count

    @property
    def comes_by_itself(self) -> bool:
        return True

    def meet(self) -> str:
        """Begins another service each time: who has met at the last, and ended, would be taken for itself."""
        self.kill()
        if self.count > 1:
            self._meeting = start_group_service(self.count, self.log, self.ip)
        return self._meeting.address if self._meeting is not None else ""

    def waits(self) -> str:
        return "to be joined"

    def ended(self) -> str:
        """They have not, for all that is known: their streams say it."""
        return ""

    def kill(self) -> None:
        """They end with their streams; where they met is not used again."""
        if (meeting := self._meeting) is not None:
            meeting.kill()
            start_thread("pathways-reaper", meeting.end)
        self._meeting = None


@dataclass(frozen=True)
class JoiningLauncher:
    """Waits for the hosts of a cluster; when one is gone, for others in their place. `ip`: where they meet."""

    logs: Path
    ip: str

    def start(self, island: Island, epoch: int, tickets: Sequence[str]) -> JoiningHosts:
        return JoiningHosts(island.hosts, self.logs / f"{island.name}-meeting.log", self.ip)
