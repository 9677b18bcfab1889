"""The hosts that execute the islands of a machine, whichever processes they are in."""

import abc
import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.ranks import ONE_EACH
from pathways.dialect.topology import Island, Topology
from pathways.runtime.client.remote.remote_host import RemoteHost
from pathways.runtime.client.remote.remote_island import RemoteIsland
from pathways.runtime.client.remote.run_window import MAX_RUNS_PER_ISLAND
from pathways.runtime.client.remote_array import RemoteRun
from pathways.runtime.control.scheduling import Request
from pathways.runtime.errors import NotEnoughDevices
from pathways.runtime.host.devices.islands import Machine, PhysicalIsland
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.client_messages import MAX_CARRIED_BYTES
from pathways.runtime.wire.ids import MOST_RUNS, ClientIds
from pathways.runtime.wire.load_proofs import Branches


@dataclass(frozen=True)
class RemoteDevice:
    """A device of an island in another process."""

    island: str
    position: int
    platform: str
    device_kind: str
    number: int = 0
    """Among all devices of the cluster. An island that comes again with another size has others."""

    def __str__(self) -> str:
        return f"{self.island}[{self.position}]"


MAX_CARRIED_IN_LINE_BYTES = 1 << 24
"""Limit on the argument bytes carried by all queued runs of a client: a quarter of the controller's MOST_WAITING."""


class RunParcel(NamedTuple):
    """The messages that start a run on one island: `before` are its small arguments."""

    host: RemoteIsland
    before: Sequence[m.Message]
    message: m.RunPlan


@dataclass(frozen=True)
class StartedRun:
    """A run that is about to be started: its number and its plan's, and what a controller must know of it.

    `branches` are what several hosts decide together, None where nothing is decided at all; `has_loops`: it may be
    cancelled while it runs; `memory` is bytes by device, where the topology states how many there are.
    """

    number: int
    plan: int
    branches: Branches | None
    has_loops: bool
    memory: "Mapping[RemoteDevice, int]"
    request: Request | None


class Hosts(Machine, abc.ABC):
    """A machine whose islands hosts have, which are told of runs by messages."""

    is_local: ClassVar[bool] = False
    carried_bytes: ClassVar[int] = MAX_CARRIED_BYTES
    """The most bytes of arguments that its controller takes with a run."""

    def __init__(self, platform: str, client: int = 0) -> None:
        """`client` is the number of this one, where a cluster has several."""
        super().__init__(platform)
        self.client = client
        self.numbers = ClientIds(client)
        """Of arrays, plans, and moves of arrays between programs."""
        self.hosts: dict[str, RemoteIsland] = {}
        """By name; a host that is gone stays until another has taken its place."""
        self.ranks = ONE_EACH
        """How many processes the host of an island is."""
        self.faults = 0
        """Faults that happened on hosts that are gone."""
        self.telling = threading.Lock()
        """Held while several hosts, or a controller, are told of one thing: they hear of such things in one order."""

    @abc.abstractmethod
    def host_of(self, island: str) -> str:
        """The name of the host that has an island."""

    @abc.abstractmethod
    def host(self, name: str) -> RemoteIsland:
        """A host by name; waits while it is started anew. Raises PWC0910 where it cannot be."""

    @property
    def max_carried_bytes(self) -> int:
        """Maximum argument bytes sent together with a run; larger arguments are sent directly to the host first.

        The controller disconnects a client whose queued messages exceed its MOST_WAITING.
        """
        return min(self.carried_bytes, MAX_CARRIED_IN_LINE_BYTES // (MAX_RUNS_PER_ISLAND * max(1, len(self.hosts))))

    def next_move(self) -> int:
        """The number that a move of an array between programs has as a run: no other run has it."""
        return MOST_RUNS + self.numbers.take()

    def introduce(self, plan: int, name: str, raw: bytes, branches: Branches | None) -> None:
        """Tells a controller that several clients have of a plan (its bytes), before its first run."""

    def tell_loaded(self, host: RemoteIsland, plan: int, proofs: Sequence[bytes]) -> None:
        """Tells such a controller that an island has loaded a plan, as its hosts prove."""

    def known(self) -> Sequence[str]:
        """The names of the hosts that are there, or were and come again; others may never come."""
        return list(self.hosts)

    def get_ready(self, hosts: Iterable[RemoteIsland]) -> None:
        """Waits for what a run on these hosts needs beside its turn."""

    @abc.abstractmethod
    def start(self, run: StartedRun, parcels: Sequence[RunParcel]) -> list[RemoteRun]:
        """Starts a run on its hosts; never waits. Returns the futures of its parts, in their order."""

    def inject(self, fault: str) -> int:
        """Brings a fault (JSON) to this client's runs on all hosts; without one, ends it and gives how often it was."""
        hosts = {name: self.host(name) for name in self.known() if name not in self.lost_islands}
        answers = ask_all(hosts, lambda _, number: m.Inject(number, self.client, fault))
        happened = sum(int(answer.value) for answer in answers.values()) + self.faults
        self.faults = 0
        return happened


class HostedIslands(Hosts):
    """A machine whose islands are those of a topology, each with hosts in processes of its own, and no others."""

    def __init__(
        self, topology: Topology, platform: str, client: int = 0, first: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        """`first` has the number of the first device of each island."""
        super().__init__(platform, client)
        self.topology = topology
        self.on_lost: Callable[[PhysicalIsland, Diagnostic], None] = lambda island, cause: None
        """Called when a host is gone: whatever lay there is."""
        self.is_forked = False
        """Whether this is a copy, in a process that was forked: the connections are those of the one that made them."""
        self._next = itertools.count()
        """Of names that are not chosen."""
        self.has_limits = False
        """Whether any island has had a limit of memory."""
        self.removed: dict[str, Diagnostic] = {}
        """Islands that were there, and why they are not any more."""
        for island in topology.islands:
            self.bind_hosted(island, first.get(island.name, 0))

    def bind_hosted(self, island: Island, first: int) -> None:
        """Names the devices of an island that hosts have; `first` is the number of the first."""
        self.has_limits |= island.memory is not None
        kind = self.platform if island.kind == "any" else island.kind
        devices = [RemoteDevice(island.name, at, self.platform, kind, first + at) for at in range(island.size)]
        self.bind(island.name, devices)

    @property
    def lost_islands(self) -> frozenset[str]:
        return super().lost_islands.union(self.removed)

    @abc.abstractmethod
    def add(self, island: Island) -> None:
        """Starts the processes of one more island, and joins them with the others.

        Raises PWC0910 where they do not start, PWC0912 for what cannot be added, PWC0923 for a name that is taken.
        """

    @abc.abstractmethod
    def remove(self, name: str, *, now: bool) -> None:
        """Ends an island, when what runs there has ended or `now`: what lies there raises PWC0922.

        Raises PWC0923 for a name that is none, and for the last island.
        """

    def new_name(self) -> str:
        """A name that no island has or had, and that is given only once."""
        return next(n for i in self._next if (n := f"island{i}") not in {*self.topology.names, *self.removed})

    def appear(self, island: Island) -> None:
        """Makes known that an island is there, and has devices: programs may be placed there from now on."""
        self.removed.pop(island.name, None)
        others = tuple(i for i in self.topology.islands if i.name != island.name)
        self.topology = replace(self.topology, islands=(*others, island))

    def leave(self, name: str, cause: Diagnostic) -> None:
        """Makes known that an island goes: nothing is placed there from now on. Arrays there will raise the cause."""
        left = tuple(i for i in self.topology.islands if i.name != name)
        self.topology = replace(self.topology, islands=left)
        self.removed[name] = cause
        self.give_up(name, "it was removed", cause)

    def give_up(self, name: str, reason: str, cause: Diagnostic | None) -> None:
        """Loses all devices of an island: programs that are placed there are placed anew when next called."""
        if (island := self.named(name)) is not None:
            for position in range(len(island.devices)):
                self.lose(island, position, reason, cause)

    def host_of(self, island: str) -> str:
        return island

    def _pool(self, program: str, wanted: Sequence[Island]) -> dict[str, list[RemoteDevice]]:
        """There are no devices but those of the hosts. Raises PWC0503."""
        if wanted:
            needs = ", ".join(f"{i.name} of {i.size} devices" for i in wanted)
            raise PathwaysError(NotEnoughDevices(program=program, have_=f"a cluster of {self.topology}", needs=needs))
        return {}

    def keep_for_ever(self) -> None:
        """A forked process has no device that must be kept, and leaves the hosts to the one that has forked it."""
        self.is_forked = True

    @abc.abstractmethod
    def close(self) -> None:
        """Leaves the hosts, or ends them; does nothing in a forked process."""


def ask_each(
    hosts: Mapping[str, RemoteHost] | Mapping[str, RemoteIsland], make: Callable[[str, int], m.Message]
) -> dict[str, m.Answer | PathwaysError]:
    """Asks hosts, by name, at once; gives the error of each that does not answer. `make` makes the request of one."""

    found: dict[str, m.Answer | PathwaysError] = {}
    waits: dict[str, Callable[[], m.Answer]] = {}
    for name, host in hosts.items():
        try:
            waits[name] = host.request(partial(make, name))
        except PathwaysError as error:
            found[name] = error
    for name, wait in waits.items():
        try:
            found[name] = wait()
        except PathwaysError as error:
            found[name] = error
    return {name: found[name] for name in hosts}


def ask_all(
    hosts: Mapping[str, RemoteHost] | Mapping[str, RemoteIsland], make: Callable[[str, int], m.Message]
) -> dict[str, m.Answer]:
    """As `ask_each`; raises the error of a host that does not answer."""
    answers: dict[str, m.Answer] = {}
    for name, answer in ask_each(hosts, make).items():
        if isinstance(answer, PathwaysError):
            raise answer
        answers[name] = answer
    return answers
