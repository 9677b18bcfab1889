"""The hosts that execute the islands of a machine, whichever processes they are in."""

import abc
import itertools
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ranks import ONE_EACH
from pathways.runtime.client.remote_gang import IslandHost
from pathways.runtime.host.devices.islands import Machine
from pathways.runtime.wire import messages as m


class Hosts(Machine, abc.ABC):
    """A machine whose islands hosts have, which are told of runs by messages."""

    is_local: ClassVar[bool] = False

    def __init__(self, platform: str) -> None:
        super().__init__(platform)
        self.plans = itertools.count()
        """Numbers of plans."""
        self.moves = itertools.count(1)
        """Numbers of moves of arrays between programs; as runs they have these, negative."""
        self.hosts: dict[str, IslandHost] = {}
        """By name; a host that is gone stays until another has taken its place."""
        self.ranks = ONE_EACH
        """How many processes the host of an island is."""
        self.faults = 0
        """Faults that happened on hosts that are gone."""

    @abc.abstractmethod
    def host_of(self, island: str) -> str:
        """The name of the host that has an island."""

    @abc.abstractmethod
    def host(self, name: str) -> IslandHost:
        """A host by name; waits while it is started anew. Raises PWC0910 where it cannot be."""

    @abc.abstractmethod
    def fence(self, host: IslandHost) -> None:
        """Tells all other hosts that one is gone, so that nothing waits for it, and who is there instead."""

    def inject(self, fault: str) -> int:
        """Brings a fault (JSON) to runs on all hosts; without one, ends it, and gives how often it has happened."""
        answers = ask_all({name: self.host(name) for name in self.hosts}, lambda _, number: m.Inject(number, fault))
        happened = sum(int(answer.value) for answer in answers.values()) + self.faults
        self.faults = 0
        return happened


def ask_each(
    hosts: Mapping[str, IslandHost], make: Callable[[str, int], m.Message]
) -> dict[str, m.Answer | PathwaysError]:
    """Asks hosts, by name, at once; gives the error of each that does not answer. `make` makes the request of one."""

    def ask(name: str) -> m.Answer | PathwaysError:
        try:
            return hosts[name].ask(lambda number: make(name, number))
        except PathwaysError as error:
            return error

    with ThreadPoolExecutor(max(1, len(hosts)), "pathways-ask") as pool:
        return dict(zip(hosts, pool.map(ask, hosts), strict=True))


def ask_all(hosts: Mapping[str, IslandHost], make: Callable[[str, int], m.Message]) -> dict[str, m.Answer]:
    """As `ask_each`; raises the error of a host that does not answer."""
    answers: dict[str, m.Answer] = {}
    for name, answer in ask_each(hosts, make).items():
        if isinstance(answer, PathwaysError):
            raise answer
        answers[name] = answer
    return answers
