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
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.part import Edge
from pathways.dialect.reshard import Piece, ReshardPlan, plan_reshard
from pathways.runtime.errors import ComputationFailed
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.layouts import Shards, Side
from pathways.runtime.host.devices.transfer_server import Incoming, TransferServer, TransferSource, error_array
from pathways.runtime.host.devices.transfers import Compile, prepare_cut, prepare_join
from pathways.runtime.host.run.frame import Frame
from pathways.runtime.host.run.progress import Enqueuer, Pulled, Work
from pathways.runtime.host.run.store import Poison
from pathways.runtime.journal import note
from pathways.runtime.states import RECEIVED, SENT


@dataclass(eq=False)
class Neighbors:
    """This host's transfer servers, one for each other island, and its connections to theirs."""

    device: pjrt.Device
    servers: dict[str, TransferServer] = field(default_factory=dict[str, TransferServer])
    sources: dict[str, TransferSource] = field(default_factory=dict[str, TransferSource])
    _changed: threading.Condition = field(default_factory=threading.Condition)
    """Guards those; notified when one of the sources is lost."""
    _addresses: dict[str, str] = field(default_factory=dict[str, str])

    def server_for(self, island: str) -> TransferServer:
        with self._changed:
            if island not in self.servers:
                self.servers[island] = TransferServer(self.device)
            return self.servers[island]

    def connect(self, island: str, address: str) -> None:
        """Takes what comes from an island from this address, from now on."""
        if self._addresses.get(island) != address:
            self._addresses[island] = address
            self.sources[island] = self.server_for(island).connect(address)

    def reached(self) -> Mapping[str, TransferSource]:
        """Where values come from now."""
        return dict(self.sources)

    def lose(self, island: str, cause: Diagnostic) -> None:
        """Ends what is on its way from an island, whose host is gone."""
        self._addresses.pop(island, None)
        source = self.sources.get(island)
        if source is not None:
            with self._changed:
                source.lost = cause
                self._changed.notify_all()
            source.close()

    def cause(self, edge: Edge, frame: Frame, error: Exception, where: Where | None) -> Diagnostic:
        """The first cause of what did not arrive: as the source said it, or why its host is gone."""
        source = frame.sources.get(edge.source)
        if source is None:
            return _failure(edge, error, where)
        told = _MARKED.search(str(error)) is not None  # else the controller may know more, in a moment
        with self._changed:
            self._changed.wait_for(lambda: told or source.lost is not None, AFTERWARDS)
            return source.lost or _failure(edge, error, where)


@dataclass(frozen=True, eq=False)
class Edges:
    """Prepares both ends of edges: `plan` is the whole one, which names meshes of other hosts."""

    plan: Plan
    sent: Mapping[int, Edge]
    received: Mapping[int, Edge]
    neighbors: Neighbors
    _known: dict[int, ReshardPlan] = field(default_factory=dict[int, ReshardPlan])

    def offer(self, edge: Edge, slot: int, side: Side, compile_on: Compile) -> Callable[[Frame], None]:
        """Offers the pieces of the array in a slot; where that is poison, arrays that say why."""
        pieces, boxes = self._pieces(edge), self._reshard(edge).source_boxes
        if not pieces:  # of an array without elements; nothing is pulled, so that an offer would stay for ever
            return _nothing
        cut = prepare_cut(edge.type, side, pieces, boxes, compile_on)
        devices = [side.devices[p.source] for p in pieces]
        types = _types(edge.type, pieces)
        server, number, copies = self.neighbors.server_for(edge.target), edge.number, edge.may_be_overwritten

        def enqueue(frame: Frame) -> None:
            frame.turn_edge(SENT, number, "be offered")
            name = frame.transfers + number
            value = frame.values[slot]
            try:
                if not isinstance(value, Poison):
                    arrays = cut(value)
                    server.offer(name, pjrt.copy_shards(arrays, devices) if copies else arrays)
                    return
                why = _MARK.format(write_diagnostic(value.cause))
            except Exception as error:  # the other end must hear of any error
                why = str(error)
            server.offer(name, [error_array(t, d, why) for t, d in zip(types, devices, strict=True)])

        return enqueue

    def pull(self, edge: Edge, slot: int, side: Side) -> Callable[[Frame], None]:
        """Asks for the pieces of an array; the slot holds them until they are there."""
        pieces = self._pieces(edge)
        wanted = Incoming.of(_types(edge.type, pieces), [side.devices[p.target] for p in pieces])
        neighbors, number, island = self.neighbors, edge.number, edge.source

        def enqueue(frame: Frame) -> None:
            frame.turn_edge(RECEIVED, number, "be pulled")
            try:
                source: TransferSource = frame.sources[island]
                frame.values[slot] = Shards(source.pull(frame.transfers + number, wanted) if pieces else [])
            except (KeyError, *pjrt.FAILURES) as error:
                frame.values[slot] = Poison(neighbors.cause(edge, frame, error, None))

        return enqueue

    def arrival(self, edge: Edge, slot: int, side: Side, where: Where | None, compile_on: Compile) -> "Arrival":
        boxes = self._reshard(edge).target_boxes
        join = prepare_join(edge.type, side, self._pieces(edge), boxes, compile_on)
        return Arrival(edge, slot, join, where, self.neighbors)

    def _pieces(self, edge: Edge) -> Sequence[Piece]:
        return self._reshard(edge).pieces

    def _reshard(self, edge: Edge) -> ReshardPlan:
        """The pieces of an edge, ordered by target, found once; its two ends have no device in common."""
        if edge.number not in self._known:
            here, there = self.plan.sharding(edge.here), self.plan.sharding(edge.there)
            first = here.mesh.size
            ids = range(first), range(first, first + there.mesh.size)
            self._known[edge.number] = plan_reshard(edge.type.shape, here, there, *ids)
        return self._known[edge.number]


@dataclass(frozen=True, eq=False)
class Arrival:
    """The task that waits for the pieces of a value, and joins them."""

    edge: Edge
    slot: int
    join: Callable[[Sequence[Any]], Any]
    where: Where | None
    neighbors: Neighbors

    def start(self, frame: Frame, run: Enqueuer) -> Work:
        pulled, number = frame.values[self.slot], self.edge.number
        if isinstance(pulled, Poison):
            frame.turn_edge(RECEIVED, number, "fail")
            return
        yield (Pulled(pulled),)
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
