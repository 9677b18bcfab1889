"""Holds the controller's records of the clients of a cluster: their plans, their runs, and the messages to islands that
must be sent in order. The only client of a `pw.cluster` has such a record, too. The controller and the dispatcher use
them.

A client's runs are sent to an island in the order of submission. Messages that must follow a run (for example, a freed
array) wait for it. No client waits for another client's messages.
"""

import secrets
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.control.client_parcels import IslandParcel
from pathways.runtime.control.member import Rank
from pathways.runtime.control.relay import Relay
from pathways.runtime.control.scheduling import Cost, Request
from pathways.runtime.states import RUN, SESSION, Life
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import BadMessage
from pathways.runtime.wire.ids import MAX_CLIENTS
from pathways.runtime.wire.load_proofs import new_key

MAX_INTRODUCED = 1 << 16
"""Maximum number of plans and named clients of a client process."""
MAX_INTRODUCED_BYTES = 1 << 23
"""Maximum bytes of the messages that introduce a client's plans. Decoded, they take about 25 times as much memory."""
UNNAMED = -1
"""The number of no client. Its label stands for closed clients whose arrays are not all freed."""


class ClientPeer(Protocol):
    """The connection to a client: a stream of the loop, or `OwnClient` in this process."""

    def send(self, message: m.Message) -> None: ...

    def pass_on(self, island: int, epoch: int, rank: int, outcome: m.Done | m.Failed) -> None:
        """Forwards a message that a host has sent to the controller for the client."""
        ...


class FrameAfterRuns(NamedTuple):
    """A frame sent to an island's hosts, of one epoch, after the runs that were submitted before it."""

    epoch: int
    frame: bytes


class InsideClient(NamedTuple):
    """A client inside of a client's process, and the bytes of the message that introduced it."""

    name: str
    size: int


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
    holds: list[tuple[str, m.Hold]] = field(default_factory=list[tuple[str, m.Hold]])
    """Reports of bytes of the run's arrays, with the label of their client. They count when the run begins."""


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
    lines: dict[int, "deque[ClusterRun | FrameAfterRuns]"] = field(
        default_factory=lambda: defaultdict(deque[ClusterRun | FrameAfterRuns])
    )
    """Runs and frames that were not sent yet, by island number."""
    inside: dict[int, InsideClient] = field(default_factory=dict[int, InsideClient])
    """Clients inside the process, by number."""
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
    total: Counter[int] = field(default_factory=Counter[int])
    """Bytes by device that all clients of the process report as held."""
    counted: Counter[int] = field(default_factory=Counter[int])
    """Bytes on each device that the scheduler counts for this client."""
    had: dict[str, Had] = field(default_factory=lambda: defaultdict(Had))
    """Usage by label; removed with the client."""

    runs_of: Counter[str] = field(default_factory=Counter[str])
    """Incomplete runs by label. Without it, each closed client would cost a search of all runs of the cluster."""
    retired: set[str] = field(default_factory=set[str])
    """Labels of clients inside the process that were closed before all of their runs completed."""

    def introduce(self, message: m.Introduce, size: int, cost_of: Callable[[str], Cost]) -> None:
        """Adds a plan, or a client inside the process; the message has `size` bytes. Raises PWC0911 for too many."""
        self.introduced_bytes += size
        many = len(self.plans) + len(self.inside) >= MAX_INTRODUCED
        if (many or self.introduced_bytes > MAX_INTRODUCED_BYTES) and self.number:
            have = f"{len(self.plans):,} plans and {len(self.inside):,} clients of {self.label(0)}, "
            have += f"{self.introduced_bytes:,} bytes"
            raise PathwaysError(BadMessage(have_=have, rule="fewer: delete unused programs"))
        if message.plan < 0:
            before = self.inside.get(message.number)
            self.introduced_bytes -= 0 if before is None else before.size
            self.inside[message.number] = InsideClient(message.name, size)
        elif message.plan <= self.last_plan:
            have = f"plan {message.plan} of {self.label(0)} after {self.last_plan}"
            raise PathwaysError(BadMessage(have_=have, rule="plan numbers that increase"))
        else:
            self.last_plan = message.plan
            cost = cost_of(message.digest)
            self.plans[message.plan] = KnownPlan(message.name, message.branches, cost, size=size)

    def retire(self, number: int) -> None:
        """Removes a client inside the process after its last run. An unknown number is ignored."""
        label = self.label(number)
        if (found := self.inside.pop(number, None)) is None:
            return
        self.introduced_bytes -= found.size
        if self.runs_of[label]:
            self.retired.add(label)
        else:
            self._forget(label)

    def count_run(self, label: str, more: int) -> None:
        """Counts a run that was submitted (1) or has completed (-1)."""
        self.runs += more
        self.runs_of[label] += more
        if not self.runs_of[label]:
            del self.runs_of[label]
            if label in self.retired:
                self._forget(label)

    def _forget(self, label: str) -> None:
        """Removes the usage of a client inside the process. Bytes that it still holds count for unnamed clients."""
        self.retired.discard(label)
        self.had.pop(label, None)
        held = self.held.pop(label, None)
        if held is not None and any(held.values()):
            self.held[self.label(UNNAMED)].update(held)

    def label(self, inside: int) -> str:
        """Returns the label of a client inside the process. It is unique among all client processes."""
        if not self.number:  # the only client process of its cluster
            return self.inside[inside].name if inside in self.inside else "main"
        name = self.inside[inside].name if inside in self.inside else "client"
        return f"{name} of {self.name} {self.number}"

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

    def __init__(self, limit: int = MAX_CLIENTS) -> None:
        self._limit = limit
        self._following = 1
        self._free: deque[int] = deque()

    def take(self) -> int | None:
        """Returns a number, None if all are in use."""
        if self._following < self._limit:
            self._following += 1
            return self._following - 1
        return self._free.popleft() if self._free else None

    def give_back(self, number: int) -> None:
        """Frees a number that no host and no run uses any more."""
        self._free.append(number)
