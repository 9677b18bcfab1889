"""Defines the interface of a machine whose devices belong to hosts in other processes. Engines, recorders and the API
start runs and reach hosts through it. `Attached` implements it.
"""

import abc
import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.plan.nouns import Plan
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
from pathways.runtime.wire.ids import MAX_RUNS, ClientIds
from pathways.runtime.wire.load_proofs import Branches


@dataclass(frozen=True)
class RemoteDevice:
    """A device of an island in another process."""

    island: str
    position: int
    platform: str
    device_kind: str
    number: int = 0
    """Number among all devices of the cluster. An island that is re-added with another size gets new numbers."""
    has_memory_limit: bool = False
    """Whether the topology of the cluster states the memory of the island's devices."""

    def __str__(self) -> str:
        return f"{self.island}[{self.position}]"


MAX_CARRIED_IN_LINE_BYTES = 1 << 24
"""Limit on the argument bytes in all queued runs of a client: a quarter of the controller's MAX_WAITING_BYTES."""


class RunParcel(NamedTuple):
    """The messages that start a run on one island. `before` contains its small arguments."""

    host: RemoteIsland
    before: Sequence[m.Message]
    message: m.RunPlan


@dataclass(frozen=True)
class StartedRun:
    """A run that is about to start: its number, its plan's number, and the data that a controller needs.

    `branches` are those that several hosts decide together, None if the plan has no data-dependent branch. `has_loops`:
    the run can be cancelled while it executes. `memory`: bytes by device, if the topology states memory limits.
    """

    number: int
    plan: int
    branches: Branches | None
    has_loops: bool
    memory: "Mapping[RemoteDevice, int]"
    request: Request | None


class Hosts(Machine, abc.ABC):
    """A machine whose islands run on hosts, which receive runs as messages."""

    is_local: ClassVar[bool] = False
    carried_bytes: ClassVar[int] = MAX_CARRIED_BYTES
    """Maximum bytes of arguments that the controller accepts with a run."""

    def __init__(self, platform: str, client: int = 0) -> None:
        """`client` is this client's number in a cluster of several clients."""
        super().__init__(platform)
        self.client = client
        self.numbers = ClientIds(client)
        """Ids of arrays, plans, and moves of arrays between programs."""
        self.hosts: dict[str, RemoteIsland] = {}
        """Islands by name. A lost island stays here until another replaces it."""
        self.ranks = ONE_EACH
        """The number of host processes of each island."""
        self.faults = 0
        """Number of injected faults that occurred on hosts that are now lost."""
        self.telling = threading.Lock()
        """Held while several hosts or a controller are notified of one event, so that all get messages in one order."""

    @abc.abstractmethod
    def host_of(self, island: str) -> str:
        """Returns the name of the host that runs an island."""

    @abc.abstractmethod
    def host(self, name: str) -> RemoteIsland:
        """Returns a host by name; waits while it is being restarted. Raises PWC0910 if it cannot be restarted."""

    @property
    def max_carried_bytes(self) -> int:
        """Returns the maximum argument bytes sent together with a run. Larger arguments are sent directly to the host
        first.

        The controller disconnects a client whose queued messages exceed its MAX_WAITING_BYTES.
        """
        return min(self.carried_bytes, MAX_CARRIED_IN_LINE_BYTES // (MAX_RUNS_PER_ISLAND * max(1, len(self.hosts))))

    def next_move(self) -> int:
        """Returns a run number for a move of an array between programs. No other run has this number."""
        return MAX_RUNS + self.numbers.take()

    def prepare(self, plan: Plan) -> None:
        """Prepares the machine for a plan that hosts will load."""

    def introduce(self, plan: int, name: str, raw: bytes, branches: Branches | None) -> None:
        """Sends a plan's description to a shared controller before the plan's first run."""

    def report_loaded(self, host: RemoteIsland, plan: int, proofs: Sequence[bytes]) -> None:
        """Notifies a shared controller that an island has loaded a plan, with proofs of its hosts."""

    def known(self) -> Sequence[str]:
        """Returns the names of hosts that are connected, or that were connected and may return."""
        return list(self.hosts)

    def get_ready(self, hosts: Iterable[RemoteIsland], client: str) -> None:
        """Waits for what a run of a client on these hosts needs in addition to its scheduler slot."""

    @abc.abstractmethod
    def start(self, run: StartedRun, parcels: Sequence[RunParcel]) -> list[RemoteRun]:
        """Starts a run on its hosts; never blocks. Returns one future per parcel, in their order."""

    def inject(self, fault: str) -> int:
        """Injects a fault (JSON) into this client's runs on all hosts. With "", removes it and returns its count."""
        hosts = {name: self.host(name) for name in self.known() if name not in self.lost_islands}
        answers = ask_all(hosts, lambda _, number: m.Inject(number, self.client, fault))
        happened = sum(int(answer.value) for answer in answers.values()) + self.faults
        self.faults = 0
        return happened


class HostedIslands(Hosts):
    """A machine whose islands are exactly those of a topology, each with hosts in its own processes."""

    def __init__(
        self, topology: Topology, platform: str, client: int = 0, first: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        """`first` has the number of each island's first device."""
        super().__init__(platform, client)
        self.topology = topology
        self.on_lost: Callable[[PhysicalIsland, Diagnostic], None] = lambda island, cause: None
        """Called when an island's hosts, and all arrays there, are lost."""
        self.is_forked = False
        """Whether this is a copy in a forked process. The connections belong to the parent process."""
        self._next = itertools.count()
        """Numbers of automatically chosen island names."""
        self.has_limits = False
        """Whether any island has or had a memory limit."""
        self.removed: dict[str, Diagnostic] = {}
        """Removed islands, and the causes of their removal."""
        for island in topology.islands:
            self.bind_hosted(island, first.get(island.name, 0))

    def bind_hosted(self, island: Island, first: int) -> None:
        """Binds the devices of an island on hosts. `first` is the number of the first device."""
        self.has_limits |= island.memory is not None
        kind = self.platform if island.kind == "any" else island.kind
        limited = island.memory is not None
        devices = [RemoteDevice(island.name, at, self.platform, kind, first + at, limited) for at in range(island.size)]
        self.bind(island.name, devices)

    @property
    def lost_islands(self) -> frozenset[str]:
        return super().lost_islands.union(self.removed)

    @abc.abstractmethod
    def add(self, island: Island) -> None:
        """Starts the processes of a new island and connects them with the other hosts.

        Raises PWC0910 if they do not start, PWC0912 if the island cannot be added, PWC0923 if the name is taken.
        """

    @abc.abstractmethod
    def remove(self, name: str, *, now: bool) -> None:
        """Removes an island, after its runs complete or `now`. Using arrays there then raises PWC0922.

        Raises PWC0923 for an unknown name, and for the last island.
        """

    def new_name(self) -> str:
        """Returns an island name that was never used and that will not be returned again."""
        return next(n for i in self._next if (n := f"island{i}") not in {*self.topology.names, *self.removed})

    def appear(self, island: Island) -> None:
        """Adds an island to the topology, so that programs may be placed on its devices."""
        self.removed.pop(island.name, None)
        others = tuple(i for i in self.topology.islands if i.name != island.name)
        self.topology = replace(self.topology, islands=(*others, island))

    def leave(self, name: str, cause: Diagnostic) -> None:
        """Removes an island from the topology: no program is placed there. Using arrays there then raises `cause`."""
        left = tuple(i for i in self.topology.islands if i.name != name)
        self.topology = replace(self.topology, islands=left)
        self.removed[name] = cause
        self.give_up(name, "it was removed", cause)

    def give_up(self, name: str, reason: str, cause: Diagnostic | None) -> None:
        """Marks all devices of an island as lost. Programs placed there are placed again at their next call."""
        if (island := self.named(name)) is not None:
            for position in range(len(island.devices)):
                self.lose(island, position, reason, cause)

    def host_of(self, island: str) -> str:
        return island

    def _pool(self, program: str, wanted: Sequence[Island]) -> dict[str, list[RemoteDevice]]:
        """Raises PWC0503 if a program wants islands that the cluster lacks, since no other devices exist."""
        if wanted:
            needs = ", ".join(f"{i.name} of {i.size} devices" for i in wanted)
            raise PathwaysError(NotEnoughDevices(program=program, have_=f"a cluster of {self.topology}", needs=needs))
        return {}

    def keep_for_ever(self) -> None:
        """Marks this copy in a forked process: the hosts belong to the parent process, and no device must be kept."""
        self.is_forked = True

    @abc.abstractmethod
    def close(self) -> None:
        """Disconnects from the hosts or terminates them. Does nothing in a forked process."""


def ask_each(
    hosts: Mapping[str, RemoteHost] | Mapping[str, RemoteIsland], make: Callable[[str, int], m.Message]
) -> dict[str, m.Answer | PathwaysError]:
    """Sends requests to hosts in parallel; returns each answer or error, by name. `make` creates a host's request."""

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
    """Sends requests like `ask_each`; raises the error of a host that does not answer."""
    answers: dict[str, m.Answer] = {}
    for name, answer in ask_each(hosts, make).items():
        if isinstance(answer, PathwaysError):
            raise answer
        answers[name] = answer
    return answers
