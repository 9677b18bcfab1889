"""Hosts that come by themselves: started by a person, by ssh, Slurm or Kubernetes, on whatever machine.

Nothing is started or killed here: a host says by its certificate which one it is, and ends when its stream does.
"""

from dataclasses import dataclass

from pathways.dialect.topology import Island
from pathways.runtime.wire.credentials import Caller


@dataclass(frozen=True)
class JoiningHost:
    """A host that is waited for, or that has come."""

    name: str

    @property
    def pid(self) -> int:
        return 0

    @property
    def comes_by_itself(self) -> bool:
        return True

    def is_it(self, caller: Caller) -> bool:
        """Whether a process has the certificate of this host."""
        return caller.is_host(self.name)

    def ended(self) -> str:
        """It has not, for all that is known: its stream says it."""
        return ""

    def kill(self) -> None:
        """It ends with its stream."""


class JoiningLauncher:
    """Waits for the hosts of a cluster; when one is gone, for another in its place."""

    def start(self, island: Island, epoch: int) -> JoiningHost:
        return JoiningHost(island.name)
