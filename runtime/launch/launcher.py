"""What a controller asks of a launcher, which starts hosts here, or has an engine start them."""

import abc
from collections.abc import Sequence
from typing import Protocol

from pathways.dialect.topology import Island


class Started(abc.ABC):
    """The hosts of an island, or what stands for them where other machines have them: they start and end together."""

    @property
    @abc.abstractmethod
    def pids(self) -> Sequence[int]:
        """Their processes, by rank; 0 where one is not known."""

    @property
    def comes_by_itself(self) -> bool:
        """Whether they were not started here: each may come at any time, and as often as it likes."""
        return False

    def meet(self) -> str:
        """Begins a place where those that come by themselves meet, now that all are there; nothing for one alone.

        Others were told where when they were started. Raises OSError.
        """
        return ""

    def waits(self) -> str:
        """What their start waits for, which may be for long; empty where for nothing but the processes themselves."""
        return ""

    @abc.abstractmethod
    def ended(self) -> str:
        """Why one of them has ended, with its last words; empty while all run, or have yet to be started."""

    @property
    def is_gone(self) -> bool:
        """Whether they have ended, once killed; True where that is not known."""
        return True

    @abc.abstractmethod
    def kill(self) -> None:
        """Ends all of them now, also where one is frozen."""


class HostLauncher(Protocol):
    """Starts hosts."""

    def start(self, island: Island, epoch: int, tickets: Sequence[str]) -> Started:
        """Starts the hosts of an island, of which each finds its ticket, by rank, in its environment.

        They come by themselves, and show it. Raises OSError where they cannot be started.
        """
        ...
