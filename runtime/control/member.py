"""An island of a cluster and its hosts, as their controller knows them: which are there, and where."""

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
    """Which host of an island this is, and whether it is there (runtime/states.py)."""

    number: int = 0
    life: Life = field(default_factory=lambda: Life(ISLAND))

    @property
    def state(self) -> str:
        return self.life.state

    def go(self) -> None:
        """The host is gone: the next one is that of another epoch."""
        self.life.turn("go")
        self.number += 1

    def settle(self, number: int, event: str) -> None:
        """Says what has become of the host of an epoch; that one may be gone again by then."""
        if number == self.number:
            self.life.turn(event)


@dataclass(eq=False)
class Rank:
    """One host of an island, one after another."""

    number: int
    """Among all hosts of the cluster."""
    rank: int
    name: str
    """That of its island, where it is alone."""
    member: "Member"
    ticket: str = ""
    """What the process shows that is this host."""
    peer: Peer | None = None
    """Where it is heard, once it has said hello."""
    coming: "tuple[Peer, Callable[[dict[str, Any]], None]] | None" = None
    """Who has asked what this host must know, where it comes by itself, and what tells it that."""
    address: str = ""
    """Where clients reach it."""
    arrays: int = 0
    """How many arrays it had when it last said so."""
    key: bytes = b""
    """From which the process has the keys that prove what it has loaded; another process has another."""
    open_ports: int = 0
    """The number of open ports of JAX's transfer server when it last said so."""
    asked: dict[int, Callable[[m.Answer | Diagnostic], None]] = field(
        default_factory=dict[int, "Callable[[m.Answer | Diagnostic], None]"]
    )

    def post(self, message: m.Message) -> None:
        """Sends a message; nothing where it is not there."""
        if self.peer is not None:
            self.peer.send(message)


@dataclass(eq=False)
class Member:
    """An island and its hosts, which come and go together: they are one gang."""

    number: int
    island: Island
    ranks: tuple[Rank, ...] = ()
    first: int = 0
    """The number of its first device among those of the cluster."""
    epoch: Epoch = field(default_factory=Epoch)
    process: Started | None = None
    ending: Started | None = None
    """The hosts that were killed when the island was removed, which may take a moment to end."""
    lost: Diagnostic | None = None
    """Why the last hosts are gone; None while they are there, or come for the first time."""
    began: float = 0.0
    worked: bool = False
    """Whether any run has ended there."""
    leaves: Diagnostic | None = None
    """Why it is there no more, or will not be in a moment: it was removed."""
    idle: int = 0
    """How many in a row have ended before any run of theirs did."""

    @property
    def name(self) -> str:
        return self.island.name

    @property
    def is_up(self) -> bool:
        return self.epoch.state == "up"

    @property
    def is_met(self) -> bool:
        """Whether all of its hosts have said hello."""
        return all(rank.peer is not None for rank in self.ranks)

    @property
    def arrays(self) -> int:
        return max(rank.arrays for rank in self.ranks)

    @property
    def addresses(self) -> dict[str, str]:
        """Where clients reach its hosts, by name; nothing while they are not there."""
        return {rank.name: rank.address for rank in self.ranks} if self.is_up else {}

    def post(self, message: m.Message) -> None:
        """Sends a message to all of its hosts: they see all messages in one order."""
        for rank in self.ranks:
            rank.post(message)

    def send(self, data: bytes) -> None:
        """As `post`, of a frame."""
        for rank in self.ranks:
            if rank.peer is not None:
                rank.peer.write(data)

    def give_tickets(self) -> list[str]:
        """Makes new tickets for the hosts that are about to be started."""
        for rank in self.ranks:
            rank.ticket = secrets.token_hex(16)
        return [rank.ticket for rank in self.ranks]


class EpochOfRank:
    """The way to a host while its island is in one epoch; later messages are dropped."""

    def __init__(self, rank: Rank) -> None:
        self._rank, self._epoch = rank, rank.member.epoch.number

    def tell(self, message: m.Decided | m.Undecided) -> None:
        if self._rank.member.epoch.number == self._epoch:
            self._rank.post(message)


def members_of(islands: Iterable[Island]) -> list[Member]:
    """The islands of a cluster, with their hosts numbered over all of them."""
    found: list[Member] = []
    for island in islands:
        found.append(member_after(found, island))
    return found


def member_after(members: Sequence[Member], island: Island) -> Member:
    """One more island, behind those that there are."""
    member, following = Member(len(members), island), sum(len(each.ranks) for each in members)
    names = RankTable({island.name: island.hosts}).names(island.name)
    member.ranks = tuple(Rank(following + rank, rank, name, member) for rank, name in enumerate(names))
    return member


def all_ranks(members: Iterable[Member]) -> Iterator[Rank]:
    """All hosts of a cluster, by number."""
    for member in members:
        yield from member.ranks


def spec_of(members: Iterable[Member]) -> dict[str, str]:
    """What a client must know of each island: its epoch, where its hosts are, why none will come, and the number of its
    first device; for `Welcome`."""
    found: dict[str, str] = {}
    for each in members:
        gone = write_diagnostic(each.lost) if each.epoch.state == "away" and each.lost is not None else ""
        found[each.name] = json.dumps([each.epoch.number, each.addresses, gone, each.first])
    return found


def relay_of(run: int, members: Iterable[Member], branches: Mapping[int, tuple[str, frozenset[str]]]) -> Relay:
    """Makes what tells the hosts of a run what one of them has decided."""
    members = list(members)
    told = {rank.name: EpochOfRank(rank) for member in members for rank in member.ranks}
    islands = {rank.name: member.name for member in members if len(member.ranks) > 1 for rank in member.ranks}
    return Relay(run, told, branches, islands)
