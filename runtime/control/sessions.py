"""The clients of a cluster, and the order of what each of them sends to hosts.

A client's runs go to an island in the order in which they were submitted, and what is to go behind one (the end of an
array, say) waits for it; nothing of one client waits for another's.
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
from pathways.runtime.wire.ids import MOST_CLIENTS
from pathways.runtime.wire.load_proofs import new_key


class ClientPeer(Protocol):
    """The way to a client: a stream of the loop, or the queue of a client in this process."""

    def send(self, message: m.Message) -> None: ...

    def pass_on(self, island: int, epoch: int, rank: int, said: m.Done | m.Failed) -> None:
        """Tells the client what one of its hosts has said to the controller."""
        ...


class Behind(NamedTuple):
    """What goes to an island behind the runs that were submitted before it: a frame, for the hosts of an epoch."""

    epoch: int
    frame: bytes


@dataclass(eq=False, slots=True)
class Cost:
    """How many seconds a run of a plan takes: a moving average, over all clients that have the same plan."""

    seconds: float = 1e-3


@dataclass(eq=False, slots=True)
class Had:
    """What a client has had so far: runs that have ended, and seconds of islands that they took."""

    weight: float = 1.0
    """Of its last run."""
    runs: int = 0
    seconds: float = 0.0

    def count(self, run: "ClusterRun") -> None:
        """Counts a run that has ended on all of its islands."""
        self.weight = run.request.weight
        self.runs += 1
        self.seconds += run.seconds * len(run.parcels)


@dataclass(eq=False, slots=True)
class KnownPlan:
    """What the controller knows of a client's plan.

    `branches` are those that several hosts have a part of; None where it has none at all, and runs end by themselves.
    """

    name: str
    branches: dict[int, tuple[str, frozenset[str]]] | None
    cost: Cost
    loaded: dict[int, tuple[int, str]] = field(default_factory=dict[int, tuple[int, str]])
    """By the number of an island: the epoch in which its hosts have loaded the plan, and what they have loaded."""
    size: int = 0
    """The bytes of the message that introduced it."""
    fits: frozenset[str] | None = None
    """The islands of the plan, once a proof has shown them: with `branches`, it is compared once."""


@dataclass(eq=False, slots=True)
class ClusterRun:
    """A run of a client: what goes to each island, and which hosts have not ended it."""

    request: Request
    session: "ClientSession"
    parcels: dict[int, IslandParcel]
    """By the number of an island."""
    plan: KnownPlan
    refusal: tuple[int, int]
    """The plan and the first id of the results: hosts are told both if the run is refused."""
    seconds: float = 0.0
    """Of the host that was longest at it."""
    left: set[int] = field(default_factory=set[int])
    """The numbers of hosts that have not ended it."""
    relay: Relay | None = None
    life: Life = field(default_factory=lambda: Life(RUN))
    holds: list[m.Hold] = field(default_factory=list[m.Hold])
    """Bytes of the arrays of the run, counted when the run begins."""


@dataclass(eq=False)
class ClientSession:
    """A client process that has come in."""

    number: int
    name: str
    pid: int
    peer: ClientPeer
    member: str = ""
    """The name in its certificate, where it has one."""
    ticket: str = field(default_factory=lambda: secrets.token_hex(16))
    life: Life = field(default_factory=lambda: Life(SESSION))
    lines: dict[int, "deque[ClusterRun | Behind]"] = field(
        default_factory=lambda: defaultdict(deque[ClusterRun | Behind])
    )
    """By the number of an island: what has not been sent there."""
    inside: dict[int, str] = field(default_factory=dict[int, str])
    """Names of the clients inside of the process, by number."""
    plans: dict[int, KnownPlan] = field(default_factory=dict[int, KnownPlan])
    last_plan: int = -1
    """The number of the last plan. Numbers rise: if one came again after its plan was unloaded, old proofs would do."""
    introduced_bytes: int = 0
    """The bytes of the messages that introduced its plans."""
    runs: int = 0
    """Counts the runs that have not ended."""
    waiting_bytes: int = 0
    """The bytes of all that is in those lines."""
    held: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter[int]))
    """Bytes on devices, by label and device, as the client says."""
    counted: Counter[int] = field(default_factory=Counter[int])
    """The bytes on each device that the scheduler counts as this client's."""
    had: dict[str, Had] = field(default_factory=lambda: defaultdict(Had))
    """By label: it goes when the client does."""

    retired: set[str] = field(default_factory=set[str])
    """Labels of clients inside of the process that were closed while runs of theirs had not ended."""

    def retire(self, number: int, in_use: Container[str]) -> None:
        """Forgets a client inside of the process. `in_use` are the labels of runs that have not ended."""
        label = self.label(number)
        if self.inside.pop(number, None) is not None:
            if label in in_use:
                self.retired.add(label)
            else:
                self.forget(label)

    def forget(self, label: str) -> None:
        """Forgets what a client inside of the process has had."""
        self.retired.discard(label)
        self.had.pop(label, None)
        if label in self.held and not any(self.held[label].values()):
            del self.held[label]

    def label(self, inside: int) -> str:
        """What a client inside of the process is called everywhere: no other process has a client of this name."""
        if not self.number:  # the only process of a cluster of its own
            return self.inside.get(inside, "main")
        return f"{self.inside.get(inside, 'client')} of {self.name} {self.number}"

    def expected_by(self, rank: Rank) -> m.Expect:
        """Makes the message that tells a host of this client."""
        return m.Expect(self.number, self.ticket, self.member, self.key_of(rank))

    def key_of(self, rank: Rank) -> str:
        """Derives the key by which a host proves what it has loaded for this client."""
        return new_key(rank.key, self.ticket)

    def unload(self, plan: int) -> None:
        """Forgets a plan of which no run will come."""
        known = self.plans.pop(plan, None)
        self.introduced_bytes -= known.size if known is not None else 0

    def is_next(self, run: ClusterRun) -> bool:
        """Whether nothing that this client has sent before waits for any of the run's islands."""
        return all(self.lines[island][0] is run for island in run.parcels)


class ClientNumbers:
    """Gives out numbers: each once, then those that were given back, the oldest first. 0 is for the only client of a
    cluster that has no other."""

    def __init__(self, most: int = MOST_CLIENTS) -> None:
        self._most = most
        self._following = 1
        self._free: deque[int] = deque()

    def take(self) -> int | None:
        """Gives a number; None while all are in use."""
        if self._following < self._most:
            self._following += 1
            return self._following - 1
        return self._free.popleft() if self._free else None

    def give_back(self, number: int) -> None:
        """Frees a number that no host and no run uses any more."""
        self._free.append(number)
