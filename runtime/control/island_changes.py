"""Adds islands to a running cluster and removes them, while clients use the cluster. The controller calls it on its
event-loop thread when a client requests such a change.

A removed island keeps its number: an island re-added under its name gets the same number.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.ranks import ranks_in
from pathways.dialect.topology import Topology, topology_of, write_topology
from pathways.runtime.control.dispatcher import Dispatcher
from pathways.runtime.control.island_rules import new_names, refused_new, refused_removal
from pathways.runtime.control.member import Member
from pathways.runtime.control.members import Members
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import IslandRemoved, WrongIslands
from pathways.runtime.wire.loop import Loop

POLL_INTERVAL_S = 0.05
"""Interval of checks of islands that are being added or removed."""

Answer: TypeAlias = Callable[[str, Diagnostic | None], None]
"""Called with an island's name when it is added or removed, or with an error."""


@dataclass(frozen=True, eq=False)
class _Change:
    member: Member
    answer: Answer
    now: bool = False
    cause: Diagnostic | None = None
    """The reason why the addition of an island failed."""


class IslandChanges:
    """The additions and removals in progress. `tell` sends a message to all clients."""

    def __init__(
        self,
        loop: Loop,
        topology: Topology,
        members: Members,
        dispatcher: Dispatcher,
        send: Callable[[m.Message], None],
    ) -> None:
        self._members, self._dispatcher, self._broadcast = members, dispatcher, send
        self._rates = replace(topology, islands=())
        self._ranks = ranks_in(topology)
        self._additions: list[_Change] = []
        self._leaving: list[_Change] = []
        loop.every(POLL_INTERVAL_S, self._poll)

    @property
    def topology(self) -> Topology:
        """Returns the current islands and those being added, without removed islands."""
        return replace(self._rates, islands=tuple(x.island for x in self._members.all if x.removal is None))

    @property
    def numbered(self) -> Topology:
        """Returns all islands, including removed ones, in the order of their numbers."""
        return replace(self._rates, islands=tuple(x.island for x in self._members.all))

    @property
    def leaving(self) -> list[m.IslandDraining]:
        """Returns the messages about islands that are being removed, for newly connected clients."""
        going = [change.member for change in self._leaving if change.member.epoch.state != "away"]
        return [m.IslandDraining(x.name, write_diagnostic(x.removal)) for x in going if x.removal is not None]

    def change(self, message: m.ChangeIslands, answer: Answer) -> None:
        """Adds or removes an island. A refused request is answered at once."""
        try:
            if message.topology:
                self._add(message, answer)
            else:
                self._remove(message, answer)
        except PathwaysError as error:
            answer("", error.diagnostic)

    def _add(self, message: m.ChangeIslands, answer: Answer) -> None:
        (island,) = topology_of(message.topology, "an island").islands[:1]
        if not message.named:
            island = replace(island, name=next(new_names({x.name for x in self._members.all})))
        if (refused := refused_new(self.topology, island, self._ranks)) is not None:
            raise PathwaysError(refused)
        before = next((x for x in self._members.all if x.name == island.name), None)
        if before is not None and (before.epoch.state != "away" or before.ending is not None):
            have, rule = f"{before.name}, which is being removed", "another name, or the same after its removal"
            raise PathwaysError(WrongIslands(problem="the name is in use", have_=have, rule=rule))
        member = self._members.add(island)
        first = self._dispatcher.add(member)
        self._broadcast(m.IslandAdded(member.number, first, write_topology(replace(self._rates, islands=(island,)))))
        self._members.start(member)
        self._additions.append(_Change(member, answer))

    def _remove(self, message: m.ChangeIslands, answer: Answer) -> None:
        member = next((x for x in self._members.all if x.name == message.island), None)
        if member is None or member.removal is None:  # otherwise its removal is in progress, and may be wanted sooner
            if (refused := refused_removal(self.topology, message.island)) is not None:
                raise PathwaysError(refused)
            assert member is not None
            member.removal = IslandRemoved(island=member.name)
            self._broadcast(m.IslandDraining(member.name, write_diagnostic(member.removal)))
        elif not any(change.member is member for change in self._leaving):
            refused = refused_removal(self.topology, message.island)
            assert refused is not None
            raise PathwaysError(refused)
        self._leaving.append(_Change(member, answer, message.now))
        self._poll()

    def _may_end(self, change: _Change) -> bool:
        return not self._members.are_meeting and (change.now or not self._dispatcher.is_used(change.member))

    def _poll(self) -> None:
        """Terminates removed islands after their last runs, and answers completed requests."""
        for change in list(self._additions):
            member = change.member
            has_ended = member.lost is not None and not (
                member.process is not None and member.process.is_started_externally
            )
            if member.is_up or member.epoch.state == "away" or member.removal is not None or has_ended:
                self._additions.remove(change)
                self._answer_addition(change)
        for change in list(self._leaving):
            member = change.member
            if member.epoch.state != "away" and self._may_end(change):
                self._members.end(member)
            if member.epoch.state == "away" and (member.ending is None or member.ending.has_exited):
                self._leaving.remove(change)
                member.ending = None
                change.answer(member.name, change.cause)

    def _answer_addition(self, change: _Change) -> None:
        """Answers a request to add an island. If its hosts exited before they joined, frees its name."""
        member = change.member
        cause = None if member.is_up else member.removal or member.lost
        if cause is None or member.removal is not None:
            change.answer(member.name, cause)
            return
        member.removal = cause
        self._broadcast(m.IslandDraining(member.name, write_diagnostic(cause)))
        self._leaving.append(replace(change, now=True, cause=cause))
