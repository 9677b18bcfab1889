"""Holds the connections of this host process to all other hosts with which it exchanges values. It connects,
disconnects and reconnects them when the controller says so. `host.py` uses it.

Transfers between hosts (`edges.py`) send and receive values through these connections. The call that connects to a host
waits until both ends are ready.
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
from pathways.runtime.host.devices.waits import wait_up_to
from pathways.runtime.host.run.awaited_values import AwaitedValues
from pathways.runtime.wire.addresses import LOOPBACK
from pathways.runtime.wire.loop import Loop


@dataclass(eq=False)
class PeerHosts:
    """The links of this host to its peer hosts. Outbound ends are in `servers`, inbound ends in `sources`."""

    device: pjrt.Device
    loop: Loop
    island: str = ""
    rank: int = 0
    """The rank of this host among the hosts of its island."""
    ranks: RankTable = ONE_EACH
    ip: str = LOOPBACK
    """The address at which peer hosts reach this host."""
    servers: dict[str, Outbound] = field(default_factory=dict[str, Outbound])
    sources: dict[str, Inbound] = field(default_factory=dict[str, Inbound])
    _ended: dict[str, deque[tuple[Inbound | None, Outbound]]] = field(
        default_factory=lambda: defaultdict(deque[tuple[Inbound | None, Outbound]])
    )
    """By host: the links of its lost processes, kept until the runs sent before each loss are enqueued."""
    _changed: threading.Condition = field(default_factory=threading.Condition)
    """Guards the links; notified when a source is lost."""
    _invitations: dict[str, Invitation] = field(default_factory=dict[str, Invitation])
    _anew: dict[str, int] = field(default_factory=dict[str, int])
    """By host: the controller's number of the last reconnection that it ordered for the two hosts."""
    _max_bytes: int = field(default_factory=eager_limit)
    """Maximum bytes of a value that is sent as an eager message."""
    _senders: dict[tuple[pjrt.Device, ...], Sender] = field(default_factory=dict[tuple[pjrt.Device, ...], Sender])
    awaited: AwaitedValues = field(default_factory=AwaitedValues)
    """The values that the run being enqueued waits for."""

    @property
    def in_step(self) -> bool:
        """Whether several hosts share this host's island, so that they must decide each next step together."""
        return self.ranks.are_several(self.island)

    @cached_property
    def sends(self) -> EagerServer:
        return EagerServer(self.ip, self.loop)

    @property
    def open_ports(self) -> int:
        """Counts the listening transfer servers. Garbage sent to the port of one ends this process."""
        with self._changed:
            ended = {server for losses in self._ended.values() for _, server in losses}
            return sum(plane.has_open_port for link in ended.union(self.servers.values()) for plane in link.planes)

    def rank_on(self, island: str) -> int:
        return self.rank if island == self.island else 0

    def has_first(self, plan: Plan, layout: Layout | None) -> bool:
        """Returns whether this host has the first shard of a value on its island."""
        return layout is None or not self.in_step or ranks_of_shards(plan, layout, self.ranks)[0] == self.rank

    def to(self, host: str) -> Outbound:
        with self._changed:
            if host not in self.servers:
                self.servers[host] = self.make_outbound(host)
            return self.servers[host]

    def make_outbound(self, host: str) -> Outbound:
        """Makes the sending end for another host."""
        return Outbound(self.device, self.ip, self.sends, self._max_bytes, self.sender)

    def sender(self, devices: Sequence[pjrt.Device]) -> Sender:
        """Returns the sender of small values that these devices compute.

        Takes no lock: its callers hold the lock of a link, and `lose` takes that lock while it holds `_changed`.
        """
        key = tuple(devices)
        return self._senders.get(key) or self._senders.setdefault(key, Sender())

    def invite(self, host: str) -> str:
        """Returns the invitation that another host needs to `connect_to` this one: the address for eager messages."""
        return str(self.to(host).invite())

    def connect_to(self, invitations: Mapping[str, str]) -> None:
        """Connects to hosts by their invitations. Waits until both ends are ready or one is lost."""
        sources = [self._connected(host, Invitation.read(text)) for host, text in invitations.items()]
        wait_up_to([source.ready for source in sources], MEETING_S)

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
        """Returns the sources of values for the run that is enqueued now, by host.

        For a host that was lost after the run was sent, this is the lost process, since its replacement does not know
        the run.
        """
        with self._changed:
            before = {host: ended[0][0] for host, ended in self._ended.items()}
            found = self.sources | before if before else self.sources
            return {host: source for host, source in found.items() if source is not None}

    def lose(self, island: str, cause: Diagnostic, anew: int = 0) -> None:
        """Fails the inbound values from an island whose hosts are lost or, with `anew`, unreachable.

        `anew`: the number of the reconnection that the controller orders; 0: the hosts are lost.
        """
        for host in self.ranks.names(island):
            with self._changed:
                if anew and host not in self._invitations:
                    continue  # it was lost since then, and its replacement does not know the reconnection
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
        """Returns why the first lost source is lost, after waiting up to `seconds` for a loss; None if none is lost."""
        with self._changed:
            self._changed.wait_for(lambda: any(source.lost is not None for source in sources), seconds)
            return next((source.lost for source in sources if source.lost is not None), None)

    def mend(self, island: str, anew: int) -> None:
        """Reconnects with the hosts of an island that have received nothing offered. Waits until both ends reconnect.

        A value requested before the other end has dropped its offers would be dropped, too.
        """
        met: list[Inbound] = []
        for host in self.ranks.names(island):
            with self._changed:
                invitation = self._invitations.get(host)
                if invitation is None or self._anew.get(host) != anew:
                    continue  # as in `lose`; or a newer reconnection was ordered
            self.to(host).begin_anew(anew)
            met.append(self._connected(host, invitation))
        wait_up_to([source.ready for source in met], MEETING_S)

    def end_loss(self, island: str) -> None:
        """Forgets the first loss of an island, after all runs that were sent before the loss are enqueued."""
        for host in self.ranks.names(island):
            with self._changed:
                _, server = self._ended[host].popleft()
                if not self._ended[host]:
                    del self._ended[host]
            server.end_loss()

    def leave(self, island: str) -> None:
        """Drops the links to an island that was removed. A new island of the same name gets its own links."""
        with self._changed:
            for host in self.ranks.names(island):
                self._invitations.pop(host, None)
                self._anew.pop(host, None)
                self.sources.pop(host, None)
                self.servers.pop(host, None)
