"""Defines the interface of a launcher: it starts the host processes of an island, watches and kills them. The
controller of a cluster calls it. There are launchers for this machine and for Ray.
"""

import abc
from collections.abc import Sequence
from typing import Protocol

from pathways.dialect.topology import Island


class Started(abc.ABC):
    """The hosts of an island, or a proxy for hosts on other machines. They start and end together."""

    @property
    @abc.abstractmethod
    def pids(self) -> Sequence[int]:
        """Returns their process ids by rank; 0 for an unknown process."""

    @property
    def is_here(self) -> bool:
        """Whether the hosts are processes of the controller's machine."""
        return False

    @property
    def is_started_externally(self) -> bool:
        """Whether the hosts are started externally. Each may then connect at any time and repeatedly."""
        return False

    def start_group(self) -> str:
        """Starts the group service of externally started hosts after all have connected; returns "" for a single host.

        Other hosts received the address of their service at start. Raises OSError.
        """
        return ""

    def waits(self) -> str:
        """Returns what their start waits for, if that may take long; empty if only the processes themselves start."""
        return ""

    @abc.abstractmethod
    def ended(self) -> str:
        """Returns why a host has exited, with the end of its log; empty while all run or have yet to be started."""

    @property
    def has_exited(self) -> bool:
        """Whether the hosts have exited after `kill`; True if unknown."""
        return True

    @abc.abstractmethod
    def kill(self) -> None:
        """Kills all hosts now, including frozen ones."""


class HostLauncher(Protocol):
    """Starts the hosts of islands."""

    def start(self, island: Island, epoch: int, tickets: Sequence[str]) -> Started:
        """Starts the hosts of an island. Each finds its ticket, by rank, in its environment.

        The hosts connect by themselves and present the ticket. Raises OSError if they cannot be started.
        """
        ...
