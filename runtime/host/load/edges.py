"""What goes between the islands of different hosts: cut and offered by the source, pulled and joined by the target.

Neither waits for the other: values are offered and pulled before they exist. What depends on one is enqueued when it
has arrived (load/waves.py), so that no host that is slow, frozen or gone can hang a device.
"""

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pathways.dialect.diagnostic_json import read_diagnostic, write_diagnostic
from pathways.dialect.diagnostics import Diagnostic, Where
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.nouns import Layout, Plan
from pathways.dialect.plan.part import Edge, ranks_of_shards, vote_number
from pathways.dialect.ranks import ONE_EACH, RankTable, pieces_by_pair
from pathways.dialect.reshard import Piece, ReshardPlan, plan_reshard
from pathways.runtime.errors import ComputationFailed
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.layouts import Shards, Side
from pathways.runtime.host.devices.transfer_server import Incoming, TransferServer, TransferSource, error_array
from pathways.runtime.host.devices.transfers import Compile, prepare_cut, prepare_join
from pathways.runtime.host.run.awaited_values import AwaitedValues
from pathways.runtime.host.run.decisions import Deciding, RunDecisions, name_of_turn
from pathways.runtime.host.run.frame import Frame
from pathways.runtime.host.run.progress import Enqueuer, Pulled, Work
from pathways.runtime.host.run.store import Poison
from pathways.runtime.journal import note
from pathways.runtime.states import RECEIVED, SENT
from pathways.runtime.wire.addresses import LOOPBACK


@dataclass(eq=False)
class Neighbors:
    """This host's transfer servers, one for each other host, and its connections to theirs."""

    device: pjrt.Device
    island: str = ""
    rank: int = 0
    """Which host of its island this is."""
    ranks: RankTable = ONE_EACH
    ip: str = LOOPBACK
    """Where others reach this host."""
    servers: dict[str, TransferServer] = field(default_factory=dict[str, TransferServer])
    sources: dict[str, TransferSource] = field(default_factory=dict[str, TransferSource])
    _changed: threading.Condition = field(default_factory=threading.Condition)
    """Guards those; notified when one of the sources is lost."""
    _addresses: dict[str, str] = field(default_factory=dict[str, str])
    awaited: AwaitedValues = field(default_factory=AwaitedValues)
    """What the run that is being enqueued waits for."""
    _left: list[TransferServer] = field(default_factory=list[TransferServer])
    """Those for hosts that left, until the runs that may still offer there are enqueued."""

    @property
    def in_step(self) -> bool:
        """Whether others have a part of the same island: what this host does next is decided for all of them."""
        return self.ranks.are_several(self.island)

    def rank_on(self, island: str) -> int:
        return self.rank if island == self.island else 0

    def has_first(self, plan: Plan, layout: Layout | None) -> bool:
        """Whether this host, of those of an island, has the first shard of a value there."""
        return layout is None or not self.in_step or ranks_of_shards(plan, layout, self.ranks)[0] == self.rank

    def server_for(self, host: str) -> TransferServer:
        with self._changed:
            if host not in self.servers:
                self.servers[host] = TransferServer(self.device, self.ip)
            return self.servers[host]

    def connect(self, host: str, address: str) -> None:
        """Takes what comes from a host from this address, from now on."""
        with self._changed:
            known = self.sources.get(host)
            if self._addresses.get(host) != address or (known is not None and known.lost is not None):
                self._addresses[host] = address
                self.sources[host] = self.server_for(host).connect(address)

    def reached(self) -> Mapping[str, TransferSource]:
        """Where values come from now."""
        return dict(self.sources)

    def lose(self, island: str, cause: Diagnostic, *, gone: bool = True) -> None:
        """Ends what is on its way from an island, whose hosts are gone, or are not reached."""
        for host in self.ranks.names(island):
            if gone:
                self._addresses.pop(host, None)
            source = self.sources.get(host)
            if source is not None:
                with self._changed:
                    source.lost = cause
                    self._changed.notify_all()
                source.close()

    def mend(self, island: str) -> None:
        """Connects anew with the hosts of an island, to which nothing that was offered has come."""
        self.forget(island)
        for host in self.ranks.names(island):
            if (address := self._addresses.get(host)) is not None:
                self.connect(host, address)

    def forget(self, island: str) -> None:
        """Drops what was offered to an island, whose hosts are gone."""
        for host in self.ranks.names(island):
            self.server_for(host).forget()

    def leave(self, island: str) -> None:
        """Gives up what there is for an island that was removed: one of the same name has servers of its own."""
        with self._changed:
            for host in self.ranks.names(island):
                self._addresses.pop(host, None)
                self.sources.pop(host, None)
                if host in self.servers:
                    self._left.append(self.servers.pop(host))

    def forget_left(self) -> None:
        """Drops what was offered to islands that were removed."""
        with self._changed:
            left, self._left = self._left, []
        for server in left:
            server.forget()

    def cause(self, edge: Edge, frame: Frame, error: Exception, where: Where | None) -> Diagnostic:
        """The first cause of what did not arrive: as the source said it, or why its host is gone."""
        sources = [frame.sources[host] for host in self.ranks.names(edge.source) if host in frame.sources]
        if not sources:
            return _failure(edge, error, where)
        told = _MARKED.search(str(error)) is not None  # else the controller may know more, in a moment
        with self._changed:
            self._changed.wait_for(lambda: told or any(s.lost is not None for s in sources), AFTERWARDS)
            return next((s.lost for s in sources if s.lost is not None), None) or _failure(edge, error, where)


@dataclass(frozen=True, eq=False)
class Edges:
    """Prepares both ends of edges: `plan` is the whole one, which names meshes of other hosts."""

    plan: Plan
    sent: Mapping[int, Edge]
    received: Mapping[int, Edge]
    neighbors: Neighbors
    _known: dict[int, "_Pieces"] = field(default_factory=dict[int, "_Pieces"])

    def offer(self, edge: Edge, slot: int, side: Side, compile_on: Compile, stays: int = -1) -> Callable[[Frame], None]:
        """Offers the pieces of the array in a slot; where that is poison, arrays that say why.

        Of a copy inside of an island of several hosts, pieces for devices of this one go to the slot `stays`.
        """
        found = self._pieces(edge)
        mine = self.neighbors.rank_on(edge.source)
        own = [i for i, p in enumerate(found.pieces) if found.sources[p.source] == mine]
        if not own and stays < 0:  # of an array without elements, say; nothing is pulled: an offer would stay for ever
            return _nothing
        pieces = [found.pieces[i] for i in own]
        place = {index: at for at, index in enumerate(own)}
        cut = prepare_cut(edge.type, side, pieces, found.plan.source_boxes, compile_on)
        devices = [side.devices[p.source] for p in pieces]
        types, number, copies = _types(edge.type, pieces), edge.number, edge.may_be_overwritten
        names, ranks = self.neighbors.ranks.names(edge.target), self.neighbors.ranks
        kept: list[int] = []
        state = number if stays < 0 else ~number  # what stays is also received here
        offers: list[tuple[TransferServer, int, list[int]]] = []
        for (source, target), indices in found.by_pair.items():
            if source == mine and edge.source == edge.target and target == mine:
                kept = [place[i] for i in indices]
            elif source == mine:
                server = self.neighbors.server_for(names[target])
                offers.append((server, ranks.pair(number, source, target), [place[i] for i in indices]))

        def enqueue(frame: Frame) -> None:
            frame.turn_edge(SENT, state, "be offered")
            value = frame.values[slot]
            try:
                if not isinstance(value, Poison):
                    arrays = cut(value)
                    arrays = pjrt.copy_shards(arrays, devices) if copies and arrays else arrays
                    for server, pair, which in offers:
                        server.offer(frame.transfers + pair, [arrays[i] for i in which])
                    if stays >= 0:
                        frame.values[stays] = [arrays[i] for i in kept]
                    return
                why, poison = _MARK.format(write_diagnostic(value.cause)), value
            except Exception as error:  # the other end must hear of any error
                why, poison = str(error), Poison(_failure(edge, error, None))
            for server, pair, which in offers:
                server.offer(frame.transfers + pair, [error_array(types[i], devices[i], why) for i in which])
            if stays >= 0:
                frame.values[stays] = poison

        return enqueue

    def pull(self, edge: Edge, slot: int, side: Side, stays: int = -1) -> Callable[[Frame], None]:
        """Asks for the pieces of an array; the slot holds them until they are there. `stays`: as of the offer."""
        found = self._pieces(edge)
        mine = self.neighbors.rank_on(edge.target)
        own = [i for i, p in enumerate(found.pieces) if found.targets[p.target] == mine]
        place = {index: at for at, index in enumerate(own)}
        names, ranks = self.neighbors.ranks.names(edge.source), self.neighbors.ranks
        asked: list[tuple[str, int, Incoming, list[int]]] = []
        kept: list[int] = []
        for (source, target), indices in found.by_pair.items():
            if target == mine and edge.source == edge.target and source == mine:
                kept = [place[i] for i in indices]
            elif target == mine:
                pieces = [found.pieces[i] for i in indices]
                wanted = Incoming.of(_types(edge.type, pieces), [side.devices[p.target] for p in pieces])
                pair = ranks.pair(edge.number, source, target)
                asked.append((names[source], pair, wanted, [place[i] for i in indices]))
        devices = [side.devices[found.pieces[own[at]].target] for at in kept]
        neighbors, number = self.neighbors, edge.number

        def enqueue(frame: Frame) -> None:
            frame.turn_edge(RECEIVED, number, "be pulled")
            arrays: list[Any] = [None] * len(own)
            bad: Poison | None = None
            for name, pair, wanted, places in asked:  # all of them, or some offers would stay
                try:
                    source: TransferSource = frame.sources[name]
                    for at, array in zip(places, source.pull(frame.transfers + pair, wanted), strict=True):
                        arrays[at] = array
                except (KeyError, *pjrt.FAILURES) as error:
                    bad = bad or Poison(neighbors.cause(edge, frame, error, None))
            if stays >= 0:
                stayed, frame.values[stays] = frame.values[stays], None
                if isinstance(stayed, Poison):
                    bad = bad or stayed
                else:
                    for at, array in zip(kept, pjrt.copy_shards(stayed, devices) if kept else (), strict=True):
                        arrays[at] = array
            frame.values[slot] = bad or Shards(arrays)

        return enqueue

    def arrival(self, edge: Edge, slot: int, side: Side, where: Where | None, compile_on: Compile) -> "Arrival":
        found = self._pieces(edge)
        mine = self.neighbors.rank_on(edge.target)
        own = [p for p in found.pieces if found.targets[p.target] == mine]
        join = prepare_join(edge.type, side, own, found.plan.target_boxes, compile_on)
        votes = vote_number(self.plan, edge.target) if self.neighbors.in_step else 0
        return Arrival(edge, slot, join, where, self.neighbors, votes)

    def _pieces(self, edge: Edge) -> "_Pieces":
        """The pieces of an edge, ordered by target, found once. Ends on two islands have no device in common."""
        if edge.number not in self._known:
            here, there = self.plan.sharding(edge.here), self.plan.sharding(edge.there)
            ids: tuple[Sequence[int], Sequence[int]] = here.mesh.devices, there.mesh.devices
            if edge.source != edge.target:
                ids = range(here.mesh.size), range(here.mesh.size, here.mesh.size + there.mesh.size)
            plan, ranks = plan_reshard(edge.type.shape, here, there, *ids), self.neighbors.ranks
            sources, targets = (ranks_of_shards(self.plan, layout, ranks) for layout in (edge.here, edge.there))
            by_pair = pieces_by_pair(plan.pieces, sources, targets)
            self._known[edge.number] = _Pieces(plan, plan.pieces, sources, targets, by_pair)
        return self._known[edge.number]


@dataclass(frozen=True)
class _Pieces:
    """What goes over an edge: its pieces, and the ranks that have them."""

    plan: ReshardPlan
    pieces: Sequence[Piece]
    sources: Sequence[int]
    targets: Sequence[int]
    by_pair: Mapping[tuple[int, int], list[int]]


@dataclass(frozen=True, eq=False)
class Arrival:
    """The task that waits for the pieces of a value, and joins them.

    Where several hosts have the island (`votes` is not 0), each says whether its own are there, and all go by what they
    are told: a collective of which one device has nothing to read would wait for ever.
    """

    edge: Edge
    slot: int
    join: Callable[[Sequence[Any]], Any]
    where: Where | None
    neighbors: Neighbors
    votes: int = 0

    def start(self, frame: Frame, run: Enqueuer) -> Work:
        if self.votes and frame.decisions is not None:
            return self._voted(frame, frame.decisions)
        return self._alone(frame)

    def _alone(self, frame: Frame) -> Work:
        pulled = frame.values[self.slot]
        if isinstance(pulled, Poison):
            frame.turn_edge(RECEIVED, self.edge.number, "fail")
            return
        with self.neighbors.awaited.of(self.edge.source):
            yield (Pulled(pulled),)
        self._join(frame, pulled)

    def _voted(self, frame: Frame, decisions: RunDecisions) -> Work:
        pulled = found = frame.values[self.slot]
        name = name_of_turn(frame.transfers, self.edge.number, -1)
        decisions.expect(name, name)
        if not isinstance(pulled, Poison):
            with self.neighbors.awaited.of(self.edge.source):
                yield (Pulled(pulled),)
            try:
                pulled.block_until_ready()
            except Exception as error:  # as below
                found = Poison(self.neighbors.cause(self.edge, frame, error, self.where))
        decisions.say(self.votes, name, name, found if isinstance(found, Poison) else 1)
        yield (Deciding(decisions, name),)
        told = decisions.take(name)
        if isinstance(told, Poison) or isinstance(pulled, Poison):
            frame.values[self.slot] = told if isinstance(told, Poison) else pulled
            frame.turn_edge(RECEIVED, self.edge.number, "fail")
        else:
            self._join(frame, pulled)

    def _join(self, frame: Frame, pulled: Shards) -> None:
        number = self.edge.number
        try:
            pulled.block_until_ready()
            frame.values[self.slot] = self.join(pulled)
            frame.turn_edge(RECEIVED, number, "arrive")
        except Exception as error:  # any error must reach dependents, and the others go on
            frame.turn_edge(RECEIVED, number, "fail")
            note("a value from", self.edge.source, "did not come")
            frame.values[self.slot] = Poison(self.neighbors.cause(self.edge, frame, error, self.where))


AFTERWARDS = 3.0
"""Seconds in which a controller tells all hosts that one of them is gone, or hangs."""
_MARK = "<<pathways {} pathways>>"
_MARKED = re.compile(r"<<pathways (.*?) pathways>>", re.DOTALL)


def _failure(edge: Edge, error: Exception, where: Where | None) -> Diagnostic:
    """The first cause, where the source said it; else what the transfer itself met."""
    text = str(error)
    if found := _MARKED.search(text):
        try:
            return read_diagnostic(found[1])
        except ValueError:
            pass
    name = f"a transfer from {edge.source}"
    return ComputationFailed(computation=name, island=edge.target, cause=text, where=where)


def _nothing(frame: Frame) -> None:
    """Offers nothing."""


def _types(type_: ArrayType, pieces: Sequence[Piece]) -> list[ArrayType]:
    return [ArrayType(tuple(stop - start for start, stop in p.box), type_.dtype) for p in pieces]
