"""Prepares the transfers of a plan between host processes. The source host slices and offers pieces of an array. The
target host pulls and joins them. `steps.py` calls it when a plan is loaded.

Neither end waits for the other: values are offered and pulled before they exist. Steps that depend on a value are
enqueued after it has arrived (`load/waves.py`). So a host that is slow, frozen or lost cannot hang a device.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

from pathways.dialect.diagnostic_json import read_diagnostic, write_diagnostic
from pathways.dialect.diagnostics import Diagnostic, Where
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.inbound_values import UNORDERED, InboundValue, bits, inbound_values_of
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.part import Edge, ranks_of_shards, vote_number
from pathways.dialect.ranks import pieces_by_pair
from pathways.dialect.reshard import Piece, ReshardPlan, plan_reshard
from pathways.runtime.errors import failed_because
from pathways.runtime.host.between.data_plane import ArrayGroup
from pathways.runtime.host.between.eager_values import landed
from pathways.runtime.host.between.link import Inbound, Outbound
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.layouts import Shards, Side
from pathways.runtime.host.devices.transfers import Compile, prepare_cut, prepare_join
from pathways.runtime.host.load.peer_hosts import PeerHosts
from pathways.runtime.host.run.decisions import Deciding, RunDecisions, iteration_name
from pathways.runtime.host.run.enqueuer import Enqueuer
from pathways.runtime.host.run.frame import Frame
from pathways.runtime.host.run.poison import Poison
from pathways.runtime.host.run.progress import Pulled, Work
from pathways.runtime.journal import note
from pathways.runtime.states import RECEIVED, SENT


@dataclass(frozen=True, eq=False)
class Edges:
    """Prepares the sending or receiving end of each edge of this host. `plan` is the whole plan, with all meshes."""

    plan: Plan
    sent: Mapping[int, Edge]
    received: Mapping[int, Edge]
    peer_hosts: PeerHosts
    _known: dict[int, "_Pieces"] = field(default_factory=dict[int, "_Pieces"])

    @cached_property
    def _inbound(self) -> Mapping[int, InboundValue]:
        return inbound_values_of(self.plan, self.received, self.sent)

    @cached_property
    def _leaving(self) -> Mapping[int, int]:
        return bits(self.sent)

    def offer(
        self, edge: Edge, slot: int, side: Side, compile_on: Compile, kept_slot: int = -1, *, is_last: bool = False
    ) -> Callable[[Frame], None]:
        """Prepares the step that offers the pieces of the array in a slot. For poison, it sends the cause.

        `is_last`: nothing is launched between this step and the next wait. If a copy stays inside an island of several
        hosts, the pieces for devices of this host go to the slot `kept_slot`.
        """
        found = self._pieces(edge)
        mine = self.peer_hosts.rank_on(edge.source)
        own = [i for i, p in enumerate(found.pieces) if found.sources[p.source] == mine]
        if not own and kept_slot < 0:  # e.g. an array without elements: nothing pulls it, so an offer would never end
            return _nothing
        pieces = [found.pieces[i] for i in own]
        place = {index: at for at, index in enumerate(own)}
        number, copies = edge.number, edge.may_be_overwritten
        if found.is_whole:
            cut, again = _as_it_is, _copied
            types, shardings, place = [edge.type], [side.real], dict.fromkeys(own, 0)
        else:
            devices = [side.devices[p.source] for p in pieces]
            cut = prepare_cut(edge.type, side, pieces, found.plan.source_boxes, compile_on)
            again = partial(pjrt.copy_shards, targets=devices)
            types, shardings = _types(edge.type, pieces), [pjrt.on_device(device) for device in devices]
        names, ranks = self.peer_hosts.ranks.names(edge.target), self.peer_hosts.ranks
        kept: list[int] = []
        bit = self._leaving[edge.channel]
        state = number if kept_slot < 0 else ~number  # an inner copy is also received here
        offers: list[_Offer] = []
        for (source, target), indices in found.by_pair.items():
            if source == mine and edge.source == edge.target and target == mine:
                kept = [place[i] for i in indices]
            elif source == mine:
                which = _once(place[i] for i in indices)
                values = ArrayGroup([types[i] for i in which], [shardings[i] for i in which])
                to = self.peer_hosts.to(names[target])
                offers.append(_Offer(to, to.prepare(values), ranks.pair(number, source, target), which, values))

        def enqueue(frame: Frame) -> None:
            frame.transition_edge(SENT, state, "be offered")
            value, offered = frame.values[slot], 0
            try:
                if not isinstance(value, Poison):
                    arrays = cut(value)
                    arrays = again(arrays) if copies and arrays else arrays
                    for to, transport, pair, which, _ in offers:
                        there = [arrays[i] for i in which]
                        unsent = to.offer(transport, frame.transfers + pair, there, side.devices)
                        if unsent is not None and is_last:
                            frame.unsent.append((bit, unsent))
                        elif unsent is not None:
                            unsent.leave()
                        offered += 1
                    if kept_slot >= 0:
                        frame.values[kept_slot] = [arrays[i] for i in kept]
                    return
                why, poison = _MARK.format(write_diagnostic(value.cause)), value
            except Exception as error:  # the other end must be notified of any error
                why, poison = str(error), Poison(_failure(edge, error, None))
            for to, transport, pair, _, values in offers[offered:]:
                to.fail(transport, frame.transfers + pair, why, values)
            if kept_slot >= 0:
                frame.values[kept_slot] = poison

        return enqueue

    def pull(self, edge: Edge, slot: int, side: Side, kept_slot: int = -1) -> Callable[[Frame], None]:
        """Prepares the step that pulls the pieces of an array. The slot holds the pending pieces until they arrive.

        `kept_slot`: the same slot as in `offer`.
        """
        found = self._pieces(edge)
        mine = self.peer_hosts.rank_on(edge.target)
        own = [i for i, p in enumerate(found.pieces) if found.targets[p.target] == mine]
        place = {index: at for at, index in enumerate(own)}
        names, ranks = self.peer_hosts.ranks.names(edge.source), self.peer_hosts.ranks
        pulls: list[tuple[str, int, ArrayGroup, list[int]]] = []
        kept: list[int] = []
        for (source, target), indices in found.by_pair.items():
            if target == mine and edge.source == edge.target and source == mine:
                kept = [place[i] for i in indices]
            elif target == mine:
                pieces = [found.pieces[i] for i in indices]
                shardings = [pjrt.on_device(side.devices[p.target]) for p in pieces]
                types, pair = _types(edge.type, pieces), ranks.pair(edge.number, source, target)
                if found.is_whole:
                    types, shardings, place = [edge.type], [side.real], dict.fromkeys(indices, 0)
                pulls.append((names[source], pair, ArrayGroup(types, shardings), _once(place[i] for i in indices)))
        devices = [side.devices[found.pieces[own[at]].target] for at in kept]
        peer_hosts, number, count = self.peer_hosts, edge.number, len(set(place.values()))

        def enqueue(frame: Frame) -> None:
            frame.transition_edge(RECEIVED, number, "be pulled")
            arrays: list[Any] = [None] * count
            bad: Poison | None = None
            for name, pair, wanted, places in pulls:  # even after an error, or some offers would stay
                try:
                    source: Inbound = frame.sources[name]
                    for at, array in zip(places, source.fetch(frame.transfers + pair, wanted), strict=True):
                        arrays[at] = array
                except (KeyError, *pjrt.FAILURES) as error:
                    bad = bad or Poison(_cause(peer_hosts, edge, frame, error, None))
            if kept_slot >= 0:
                kept_pieces, frame.values[kept_slot] = frame.values[kept_slot], None
                if isinstance(kept_pieces, Poison):
                    bad = bad or kept_pieces
                else:
                    for at, array in zip(kept, pjrt.copy_shards(kept_pieces, devices) if kept else (), strict=True):
                        arrays[at] = array
            frame.values[slot] = bad or Shards(arrays)

        return enqueue

    def arrival(self, edge: Edge, slot: int, side: Side, where: Where | None, compile_on: Compile) -> "Arrival":
        found = self._pieces(edge)
        mine = self.peer_hosts.rank_on(edge.target)
        own = [p for p in found.pieces if found.targets[p.target] == mine]
        join = _whole if found.is_whole else prepare_join(edge.type, side, own, found.plan.target_boxes, compile_on)
        votes = vote_number(self.plan, edge.target) if self.peer_hosts.in_step else 0
        return Arrival(edge, slot, join, where, self.peer_hosts, self._inbound.get(edge.channel, UNORDERED), votes)

    def _pieces(self, edge: Edge) -> "_Pieces":
        """Computes the pieces of an edge, ordered by target, once. Two different islands share no device."""
        if edge.number not in self._known:
            here, there = self.plan.sharding(edge.here), self.plan.sharding(edge.there)
            ids: tuple[Sequence[int], Sequence[int]] = here.mesh.devices, there.mesh.devices
            if edge.source != edge.target:
                ids = range(here.mesh.size), range(here.mesh.size, here.mesh.size + there.mesh.size)
            plan, ranks = plan_reshard(edge.type.shape, here, there, *ids), self.peer_hosts.ranks
            sources, targets = (ranks_of_shards(self.plan, layout, ranks) for layout in (edge.here, edge.there))
            by_pair = pieces_by_pair(plan.pieces, sources, targets)
            is_simple = edge.source != edge.target and not any(map(ranks.are_several, (edge.source, edge.target)))
            whole = is_simple and bool(plan.pieces) and plan.pieces == _position_by_position(plan)
            self._known[edge.number] = _Pieces(plan, plan.pieces, sources, targets, by_pair, whole)
        return self._known[edge.number]


class _Offer(NamedTuple):
    """The values offered to one host: the transport, the pair number, and the indices of the arrays."""

    to: Outbound
    transport: int
    pair: int
    which: list[int]
    values: ArrayGroup


@dataclass(frozen=True)
class _Pieces:
    """The shards sent along one edge, and the ranks that own them."""

    plan: ReshardPlan
    pieces: Sequence[Piece]
    sources: Sequence[int]
    targets: Sequence[int]
    by_pair: Mapping[tuple[int, int], list[int]]
    is_whole: bool
    """Whether every shard goes unchanged to the same position, from one host to another.

    The array is then offered and pulled as one. Pulling four small shards separately takes a fifth of a hop longer.
    """


@dataclass(frozen=True, eq=False)
class Arrival:
    """The task that waits for the pieces of a value and joins them.

    If several hosts share the island (`votes` is not 0), each host reports whether its pieces have arrived. All hosts
    then act on the common decision: a collective would wait forever if one device had no input.
    """

    edge: Edge
    slot: int
    join: Callable[[Sequence[Any]], Any]
    where: Where | None
    peer_hosts: PeerHosts
    inbound: InboundValue
    votes: int = 0

    def start(self, frame: Frame, run: Enqueuer) -> Work:
        if self.votes and frame.decisions is not None:
            return self._voted(frame, frame.decisions)
        return self._unvoted(frame)

    def _unvoted(self, frame: Frame) -> Work:
        pulled = frame.values[self.slot]
        if isinstance(pulled, Poison):
            frame.transition_edge(RECEIVED, self.edge.number, "fail")
            return
        yield from self._awaited(Pulled(pulled, frame, self.inbound))
        self._join(frame, pulled)

    def _awaited(self, pulled: Pulled) -> Work:
        awaited = self.peer_hosts.awaited
        number = awaited.begin(self.edge.source)
        try:
            yield (pulled,)
        finally:
            awaited.end(number)

    def _voted(self, frame: Frame, decisions: RunDecisions) -> Work:
        pulled = found = frame.values[self.slot]
        name = iteration_name(frame.transfers, self.edge.number, -1)
        decisions.expect(name, name)
        if not isinstance(pulled, Poison):
            yield from self._awaited(Pulled(pulled))
            try:
                pulled.block_until_ready()
                pulled = Shards(landed(pulled))  # may fail, so it is done before the vote
            except Exception as error:  # any error is voted on, too
                found = Poison(_cause(self.peer_hosts, self.edge, frame, error, self.where))
        decisions.report(self.votes, name, name, found if isinstance(found, Poison) else 1)
        yield (Deciding(decisions, name),)
        offered = decisions.take(name)
        if isinstance(offered, Poison) or isinstance(pulled, Poison):
            frame.values[self.slot] = offered if isinstance(offered, Poison) else pulled
            frame.transition_edge(RECEIVED, self.edge.number, "fail")
        else:
            self._join(frame, pulled)

    def _join(self, frame: Frame, pulled: Shards) -> None:
        number = self.edge.number
        try:
            pulled.block_until_ready()
            frame.values[self.slot] = self.join(landed(pulled))
            frame.transition_edge(RECEIVED, number, "arrive")
        except Exception as error:  # any error must reach dependents; other values go on
            frame.transition_edge(RECEIVED, number, "fail")
            note("a value from", self.edge.source, "was not received")
            frame.values[self.slot] = Poison(_cause(self.peer_hosts, self.edge, frame, error, self.where))


LOSS_NOTICE_TIMEOUT_S = 3.0
"""Time that a failed transfer waits for the controller's notice that its source host is lost or hangs."""
_MARK = "<<pathways {} pathways>>"
_MARKED = re.compile(r"<<pathways (.*?) pathways>>", re.DOTALL)


def _cause(peer_hosts: PeerHosts, edge: Edge, frame: Frame, error: Exception, where: Where | None) -> Diagnostic:
    """Finds the first cause of a missing value: the one sent by the source, or the reason for its host's loss."""
    sources = [frame.sources[host] for host in peer_hosts.ranks.names(edge.source) if host in frame.sources]
    if not sources:
        return _failure(edge, error, where)
    offered = _MARKED.search(str(error)) is not None  # else the controller may soon send the cause
    return peer_hosts.first_loss(sources, 0.0 if offered else LOSS_NOTICE_TIMEOUT_S) or _failure(edge, error, where)


def _failure(edge: Edge, error: Exception, where: Where | None) -> Diagnostic:
    """Returns the first cause if the source sent it; else the error of the transfer itself."""
    text = str(error)
    if found := _MARKED.search(text):
        try:
            return read_diagnostic(found[1])
        except ValueError:
            pass
    name = f"a transfer from {edge.source}"
    return failed_because(name, island=edge.target, cause=text, where=where)


def _nothing(frame: Frame) -> None:
    """Offers nothing: the step of an edge without pieces."""


def _position_by_position(plan: ReshardPlan) -> tuple[Piece, ...] | None:
    """Returns one piece per shard if every shard goes unchanged to its position; else None."""
    if not plan.is_copy:
        return None
    return tuple([Piece(position, position, box) for position, box in enumerate(plan.source_boxes)])


def _as_it_is(array: pjrt.DeviceArray) -> list[pjrt.DeviceArray]:
    return [array]


def _whole(arrays: Sequence[pjrt.DeviceArray]) -> pjrt.DeviceArray:
    return arrays[0]


def _copied(arrays: Sequence[pjrt.DeviceArray]) -> list[pjrt.DeviceArray]:
    return [pjrt.copy_again(array) for array in arrays]


def _once(places: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(places))


def _types(type_: ArrayType, pieces: Sequence[Piece]) -> list[ArrayType]:
    return [ArrayType(tuple(stop - start for start, stop in p.box), type_.dtype) for p in pieces]
