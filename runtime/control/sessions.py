"""The controller's records of a cluster's clients, their plans, and their ordered queues of messages to islands.

Used by the controller and the dispatcher. A client's runs are sent to an island in the order of submission. Messages
that must follow a run (for example, a freed array) wait for it. No client waits for another client's messages.
"""

import secrets
from collections import Counter, defaultdict, deque
from collections.abc import Container
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pathways.runtime.control.client_parcels import IslandParcel
from pathways.runtime.control.member import Rank
from pathways.runtime.control.relay import Relay
from pathways.runtime.control.scheduling import Request
from pathways.runtime.states import RUN, SESSION, Life
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.ids import MAX_CLIENTS
from pathways.runtime.wire.load_proofs import new_key


class ClientPeer(Protocol):
    """The connection to a client: a stream of the loop, or `OwnClient` in this process."""

    def send(self, message: m.Message) -> None: ...

    def pass_on(self, island: int, epoch: int, rank: int, said: m.Done | m.Failed) -> None:
        """Forwards a message that a host has sent to the controller for the client."""
        ...


class Behind(NamedTuple):
    """A frame sent to an island's hosts, of one epoch, after the runs that were submitted before it."""

    epoch: int
    frame: bytes


@dataclass(eq=False, slots=True)
class Cost:
    """The seconds that a run of a plan takes: a moving average over all clients that have the same plan."""

    seconds: float = 1e-3


@dataclass(eq=False, slots=True)
class Had:
    """The usage of a client: its completed runs, and the seconds of islands that they used."""

    weight: float = 1.0
    """Weight of its last run."""
    runs: int = 0
    seconds: float = 0.0

    def count(self, run: "ClusterRun") -> None:
        """Adds a run that is complete on all of its islands."""
        self.weight = run.request.weight
        self.runs += 1
        self.seconds += run.seconds * len(run.parcels)


@dataclass(eq=False, slots=True)
class KnownPlan:
    """The controller's record of a client's plan.

    `branches` are those in which several hosts take part. None: the plan has no branches, and its runs end by
    themselves.
    """

    name: str
    branches: dict[int, tuple[str, frozenset[str]]] | None
    cost: Cost
    loaded: dict[int, tuple[int, str]] = field(default_factory=dict[int, tuple[int, str]])
    """The epoch in which an island's hosts loaded the plan, and the plan that they proved to have loaded, by island."""
    size: int = 0
    """Bytes of the message that introduced the plan."""
    fits: frozenset[str] | None = None
    """The islands of the plan, after a proof has shown them, so that proof and `branches` are compared only once."""


@dataclass(eq=False, slots=True)
class ClusterRun:
    """A run of a client: its messages to each island, and the hosts that have not completed it."""

    request: Request
    session: "ClientSession"
    parcels: dict[int, IslandParcel]
    """Parcels by island number."""
    plan: KnownPlan
    refusal: tuple[int, int]
    """The plan, and the first id of the results. Hosts receive both if the run is refused."""
    seconds: float = 0.0
    """Seconds on the slowest host."""
    left: set[int] = field(default_factory=set[int])
    """Numbers of the hosts that have not completed the run."""
    relay: Relay | None = None
    life: Life = field(default_factory=lambda: Life(RUN))
    holds: list[m.Hold] = field(default_factory=list[m.Hold])
    """Reports of bytes of the run's arrays, counted when the run begins."""


@dataclass(eq=False)
class ClientSession:
    """A connected client process."""

    number: int
    name: str
    pid: int
    peer: ClientPeer
    member: str = ""
    """The name in the client's certificate, if it has one."""
    ticket: str = field(default_factory=lambda: secrets.token_hex(16))
    life: Life = field(default_factory=lambda: Life(SESSION))
    lines: dict[int, "deque[ClusterRun | Behind]"] = field(
        default_factory=lambda: defaultdict(deque[ClusterRun | Behind])
    )
    """Runs and frames that were not sent yet, by island number."""
    inside: dict[int, str] = field(default_factory=dict[int, str])
    """Names of the clients inside the process, by number."""
    plans: dict[int, KnownPlan] = field(default_factory=dict[int, KnownPlan])
    last_plan: int = -1
    """Number of the last plan. Numbers must rise: if one was reused after an unload, old proofs would be valid."""
    introduced_bytes: int = 0
    """Bytes of the messages that introduced the client's plans."""
    runs: int = 0
    """Number of incomplete runs."""
    waiting_bytes: int = 0
    """Bytes of all queued messages."""
    held: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter[int]))
    """Bytes on devices, by label and device, as the client reports them."""
    counted: Counter[int] = field(default_factory=Counter[int])
    """Bytes on each device that the scheduler counts for this client."""
    had: dict[str, Had] = field(default_factory=lambda: defaultdict(Had))
    """Usage by label; removed with the client."""

    retired: set[str] = field(default_factory=set[str])
    """Labels of clients inside the process that were closed before all of their runs completed."""

    def retire(self, number: int, in_use: Container[str]) -> None:
        """Removes a client inside the process. `in_use` are the labels of incomplete runs."""
        label = self.label(number)
        if self.inside.pop(number, None) is not None:
            if label in in_use:
                self.retired.add(label)
            else:
                self.forget(label)

    def forget(self, label: str) -> None:
        """Removes the usage of a client inside the process."""
        self.retired.discard(label)
        self.had.pop(label, None)
        if label in self.held and not any(self.held[label].values()):
            del self.held[label]

    def label(self, inside: int) -> str:
        """Returns the label of a client inside the process. It is unique among all client processes."""
        if not self.number:  # the only client process of its cluster
            return self.inside.get(inside, "main")
        return f"{self.inside.get(inside, 'client')} of {self.name} {self.number}"

    def expected_by(self, rank: Rank) -> m.Expect:
        """Creates the message that announces this client to a host."""
        return m.Expect(self.number, self.ticket, self.member, self.key_of(rank))

    def key_of(self, rank: Rank) -> str:
        """Derives the key with which a host proves what it has loaded for this client."""
        return new_key(rank.key, self.ticket)

    def unload(self, plan: int) -> None:
        """Removes a plan that will not run again."""
        known = self.plans.pop(plan, None)
        self.introduced_bytes -= known.size if known is not None else 0

    def is_next(self, run: ClusterRun) -> bool:
        """Whether no earlier message of this client is queued for any of the run's islands."""
        return all(self.lines[island][0] is run for island in run.parcels)


class ClientNumbers:
    """Allocates client numbers: each once, then freed numbers, the oldest first.

    Number 0 is reserved for the only client of a single-client cluster.
    """

    def __init__(self, most: int = MAX_CLIENTS) -> None:
        self._most = most
        self._following = 1
        self._free: deque[int] = deque()

    def take(self) -> int | None:
        """Returns a number, None if all are in use."""
        if self._following < self._most:
            self._following += 1
            return self._following - 1
        return self._free.popleft() if self._free else None

    def give_back(self, number: int) -> None:
        """Frees a number that no host and no run uses any more."""
        self._free.append(number)
