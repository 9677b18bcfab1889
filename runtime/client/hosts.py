"""The hosts that execute the islands of a machine, whichever processes they are in."""

import abc
import itertools
from typing import ClassVar

from pathways.runtime.client.remote_host import RemoteHost
from pathways.runtime.host.devices.islands import Machine


class Hosts(Machine, abc.ABC):
    """A machine whose islands hosts have, which are told of runs by messages."""

    is_local: ClassVar[bool] = False

    def __init__(self, platform: str) -> None:
        super().__init__(platform)
        self.plans = itertools.count()
        """Numbers of plans."""
        self.moves = itertools.count(1)
        """Numbers of moves of arrays between programs; as runs they have these, negative."""
        self.hosts: dict[str, RemoteHost] = {}
        """By name; a host that is gone stays until another has taken its place."""

    @abc.abstractmethod
    def host_of(self, island: str) -> str:
        """The name of the host that has an island."""

    @abc.abstractmethod
    def host(self, name: str) -> RemoteHost:
        """A host by name; waits while it is started anew. Raises PWC0910 where it cannot be."""

    @abc.abstractmethod
    def fence(self, host: RemoteHost) -> None:
        """Tells all other hosts that one is gone, so that nothing waits for it, and who is there instead."""
