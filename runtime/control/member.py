"""Holds the controller's records of the islands in a cluster and of their host processes: state, connection, addresses.
All of `control/` uses them.
"""

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.dialect.diagnostics import Diagnostic
from pathways.dialect.ranks import RankTable
from pathways.dialect.topology import Island
from pathways.runtime.control.relay import Relay
from pathways.runtime.launch.launcher import Started
from pathways.runtime.states import ISLAND, Life
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.peer import Peer


@dataclass(eq=False)
class Epoch:
    """The incarnation of an island's hosts, and its state (runtime/states.py)."""

    number: int = 0
    life: Life = field(default_factory=lambda: Life(ISLAND))

    @property
    def state(self) -> str:
        return self.life.state

    def go(self) -> None:
        """Records that the hosts are lost. Their replacements belong to the next epoch."""
        self.life.transition("go")
        self.number += 1

    def settle(self, number: int, event: str) -> None:
        """Applies an event to an epoch. Ignores the event if the epoch has already ended."""
        if number == self.number:
            self.life.transition(event)


@dataclass(eq=False)
class Rank:
    """One host of an island. Its process may be replaced."""

    number: int
    """Number among all hosts of the cluster."""
    rank: int
    name: str
    """The island's name, if the island has a single host."""
    member: "Member"
    ticket: str = ""
    """The secret by which a process proves that it is this host."""
    peer: Peer | None = None
    """The connection to the host, after its `Hello`."""
    requester: "tuple[Peer, Callable[[dict[str, Any]], None]] | None" = None
    """For an externally started host: the connection that requested its configuration, and a function to send it."""
    address: str = ""
    """The address at which clients reach the host."""
    arrays: int = 0
    """Number of arrays on the host, as last reported."""
    key: bytes = b""
    """The secret from which the keys of the process's load proofs are derived. Each process has its own secret."""
    open_ports: int = 0
    """Number of open ports of JAX's transfer server, as last reported."""
    callbacks: dict[int, Callable[[m.Answer | Diagnostic], None]] = field(
        default_factory=dict[int, "Callable[[m.Answer | Diagnostic], None]"]
    )

    def post(self, message: m.Message) -> None:
        """Sends a message; does nothing if the host is not connected."""
        if self.peer is not None:
            self.peer.send(message)


@dataclass(eq=False)
class Member:
    """An island and its hosts, which start and end together as one gang."""

    number: int
    island: Island
    ranks: tuple[Rank, ...] = ()
    first: int = 0
    """Number of the island's first device in the cluster."""
    epoch: Epoch = field(default_factory=Epoch)
    process: Started | None = None
    ending: Started | None = None
    """Hosts killed at the removal of the island, which may need a moment to exit."""
    lost: Diagnostic | None = None
    """The reason why the last hosts are lost. None while hosts are connected or start for the first time."""
    began: float = 0.0
    worked: bool = False
    """Whether any run has completed on the current hosts."""
    removal: Diagnostic | None = None
    """The reason for the island's removal, from its request on; None otherwise."""
    idle: int = 0
    """Number of consecutive hosts that exited before completing a run."""

    @property
    def name(self) -> str:
        return self.island.name

    @property
    def is_up(self) -> bool:
        return self.epoch.state == "up"

    @property
    def is_met(self) -> bool:
        """Whether all of its hosts have sent `Hello`."""
        return all(rank.peer is not None for rank in self.ranks)

    @property
    def arrays(self) -> int:
        return max(rank.arrays for rank in self.ranks)

    @property
    def addresses(self) -> dict[str, str]:
        """Returns the addresses for clients by host name; empty if the hosts are not connected."""
        return {rank.name: rank.address for rank in self.ranks} if self.is_up else {}

    def post(self, message: m.Message) -> None:
        """Sends a message to all hosts of the island, which receive all messages in the same order."""
        for rank in self.ranks:
            rank.post(message)

    def send(self, data: bytes) -> None:
        """Sends an encoded frame to all hosts of the island."""
        for rank in self.ranks:
            if rank.peer is not None:
                rank.peer.write(data)

    def give_tickets(self) -> list[str]:
        """Creates and returns new tickets for hosts that are about to start."""
        for rank in self.ranks:
            rank.ticket = secrets.token_hex(16)
        return [rank.ticket for rank in self.ranks]


class EpochOfRank:
    """Sends messages to a host while its island is in one epoch; drops later messages."""

    def __init__(self, rank: Rank) -> None:
        self._rank, self._epoch = rank, rank.member.epoch.number

    def send(self, message: m.Decided | m.Undecided) -> None:
        if self._rank.member.epoch.number == self._epoch:
            self._rank.post(message)


def members_of(islands: Iterable[Island]) -> list[Member]:
    """Returns the records of islands, with their hosts numbered across the cluster."""
    found: list[Member] = []
    for island in islands:
        found.append(member_after(found, island))
    return found


def member_after(members: Sequence[Member], island: Island) -> Member:
    """Returns the record of a new island, numbered after the existing ones."""
    member, following = Member(len(members), island), sum(len(each.ranks) for each in members)
    names = RankTable({island.name: island.hosts}).names(island.name)
    member.ranks = tuple(Rank(following + rank, rank, name, member) for rank, name in enumerate(names))
    return member


def all_ranks(members: Iterable[Member]) -> Iterator[Rank]:
    """Yields all hosts of a cluster in the order of their numbers."""
    for member in members:
        yield from member.ranks


def spec_of(members: Iterable[Member]) -> dict[str, str]:
    """Returns the description of each island for `Welcome`.

    It has the epoch, the host addresses, the error if no host will be started, and the number of the first device.
    """
    found: dict[str, str] = {}
    for each in members:
        cause = write_diagnostic(each.lost) if each.epoch.state == "away" and each.lost is not None else ""
        found[each.name] = json.dumps([each.epoch.number, each.addresses, cause, each.first])
    return found


def relay_of(run: int, members: Iterable[Member], branches: Mapping[int, tuple[str, frozenset[str]]]) -> Relay:
    """Creates the relay that forwards one host's decisions to all hosts of a run."""
    members = list(members)
    recipients = {rank.name: EpochOfRank(rank) for member in members for rank in member.ranks}
    islands = {rank.name: member.name for member in members if len(member.ranks) > 1 for rank in member.ranks}
    return Relay(run, recipients, branches, islands)
