"""The other hosts of a cluster, as one of them has them: what it offers to each, and where their values come from.

A host that meets another waits until both ends are ready.
"""

import threading
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pathways.dialect.diagnostics import Diagnostic
from pathways.dialect.plan.nouns import Layout, Plan
from pathways.dialect.plan.part import ranks_of_shards
from pathways.dialect.ranks import ONE_EACH, RankTable
from pathways.runtime.host.between.eager_server import EagerServer
from pathways.runtime.host.between.eager_values import Sender
from pathways.runtime.host.between.link import Inbound, Invitation, Outbound, eager_limit
from pathways.runtime.host.between.transfer_server import MEETING_S
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.waits import wait_at_most
from pathways.runtime.host.run.awaited_values import AwaitedValues
from pathways.runtime.wire.addresses import LOOPBACK
from pathways.runtime.wire.loop import Loop


@dataclass(eq=False)
class Neighbors:
    """Links from this host to each other host, and the inbound ends of theirs."""

    device: pjrt.Device
    loop: Loop
    island: str = ""
    rank: int = 0
    """Which host of its island this is."""
    ranks: RankTable = ONE_EACH
    ip: str = LOOPBACK
    """Where others reach this host."""
    servers: dict[str, Outbound] = field(default_factory=dict[str, Outbound])
    sources: dict[str, Inbound] = field(default_factory=dict[str, Inbound])
    _ended: dict[str, deque[tuple[Inbound | None, Outbound]]] = field(
        default_factory=lambda: defaultdict(deque[tuple[Inbound | None, Outbound]])
    )
    """By host: what came from and went to processes that are lost, until the runs sent before that are enqueued."""
    _changed: threading.Condition = field(default_factory=threading.Condition)
    """Guards those; notified when one of the sources is lost."""
    _invitations: dict[str, Invitation] = field(default_factory=dict[str, Invitation])
    _anew: dict[str, int] = field(default_factory=dict[str, int])
    """At which time this host and another were told last to connect anew, as their controller counts."""
    _most: int = field(default_factory=eager_limit)
    """The bytes of the largest value that is sent unasked."""
    _senders: dict[tuple[pjrt.Device, ...], Sender] = field(default_factory=dict[tuple[pjrt.Device, ...], Sender])
    awaited: AwaitedValues = field(default_factory=AwaitedValues)
    """What the run that is being enqueued waits for."""

    @property
    def in_step(self) -> bool:
        """Whether others have a part of the same island: what this host does next is decided for all of them."""
        return self.ranks.are_several(self.island)

    @cached_property
    def _sends(self) -> EagerServer:
        return EagerServer(self.ip, self.loop)

    @property
    def open_ports(self) -> int:
        """Counts the transfer servers that listen, each at a port which ends this process if it is sent garbage."""
        with self._changed:
            ended = {server for losses in self._ended.values() for _, server in losses}
            return sum(plane.has_open_port for link in ended.union(self.servers.values()) for plane in link.planes)

    def rank_on(self, island: str) -> int:
        return self.rank if island == self.island else 0

    def has_first(self, plan: Plan, layout: Layout | None) -> bool:
        """Whether this host, of those of an island, has the first shard of a value there."""
        return layout is None or not self.in_step or ranks_of_shards(plan, layout, self.ranks)[0] == self.rank

    def to(self, host: str) -> Outbound:
        with self._changed:
            if host not in self.servers:
                self.servers[host] = Outbound(self.device, self.ip, self._sends, self._most, self.sender)
            return self.servers[host]

    def sender(self, devices: Sequence[pjrt.Device]) -> Sender:
        """Finds the sender of small values that these devices make.

        Takes no lock: its callers have that of the link to a host, which `lose` takes under `_changed`.
        """
        key = tuple(devices)
        return self._senders.get(key) or self._senders.setdefault(key, Sender())

    def invite(self, host: str) -> str:
        """Returns what another host must know to `meet` this one: where it sends small values."""
        return str(self.to(host).invite())

    def meet(self, invitations: Mapping[str, str]) -> None:
        """Takes what comes from hosts from there, from now on. Waits until both ends are ready, or one is lost."""
        sources = [self._connected(host, Invitation.read(said)) for host, said in invitations.items()]
        wait_at_most([source.ready for source in sources], MEETING_S)

    def _connected(self, host: str, invitation: Invitation) -> Inbound:
        with self._changed:
            known = self.sources.get(host)
            if known is None or known.lost is not None or self._invitations.get(host) != invitation:
                if known is not None:
                    known.close()
                self._invitations[host] = invitation
                known = self.to(host).connect(invitation, self._anew.get(host, 0))
                self.sources[host] = known
            return known

    def reached(self) -> Mapping[str, Inbound]:
        """Lists where the values of the run that is enqueued now come from, by host.

        Nothing comes from a host that has ended since the run was sent: the one in its place knows nothing of the run.
        """
        with self._changed:
            before = {host: ended[0][0] for host, ended in self._ended.items()}
            found = self.sources | before if before else self.sources
            return {host: source for host, source in found.items() if source is not None}

    def lose(self, island: str, cause: Diagnostic, anew: int = 0) -> None:
        """Ends what is on its way from an island, whose hosts are gone, or, with `anew`, are not reached.

        `anew`: how often the two were told to connect anew.
        """
        for host in self.ranks.names(island):
            with self._changed:
                if anew and host not in self._invitations:
                    continue  # it is gone meanwhile, and another in its place knows nothing of this
                self._anew[host] = anew
                source = self.sources.get(host)
                if not anew:
                    self._invitations.pop(host, None)
                    server = self.to(host)
                    server.lose()
                    self._ended[host].append((source, server))
                if source is None:
                    continue
                source.lost = cause
                self._changed.notify_all()
            source.close()

    def first_loss(self, sources: Sequence[Inbound], seconds: float) -> Diagnostic | None:
        """Why the first of these is lost, which may become known within so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: any(source.lost is not None for source in sources), seconds)
            return next((source.lost for source in sources if source.lost is not None), None)

    def mend(self, island: str, anew: int) -> None:
        """Connects anew with the hosts of an island, to which nothing that was offered has come. Waits until both ends
        have: what one asks for before the other has dropped what was offered would be dropped, too."""
        met: list[Inbound] = []
        for host in self.ranks.names(island):
            with self._changed:
                invitation = self._invitations.get(host)
                if invitation is None or self._anew.get(host) != anew:
                    continue  # as above; or both are told once more already
            self.to(host).begin_anew(anew)
            met.append(self._connected(host, invitation))
        wait_at_most([source.ready for source in met], MEETING_S)

    def end_loss(self, island: str) -> None:
        """Ends the first loss of an island: all runs that were sent before it are enqueued."""
        for host in self.ranks.names(island):
            with self._changed:
                _, server = self._ended[host].popleft()
                if not self._ended[host]:
                    del self._ended[host]
            server.end_loss()

    def leave(self, island: str) -> None:
        """Gives up what there is for an island that was removed: one of the same name has servers of its own."""
        with self._changed:
            for host in self.ranks.names(island):
                self._invitations.pop(host, None)
                self._anew.pop(host, None)
                self.sources.pop(host, None)
                self.servers.pop(host, None)
