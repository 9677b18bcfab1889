"""A dispatcher with clients and hosts that are recorders of messages: no process, no socket, no time."""

import os
from collections.abc import Callable, Sequence
from typing import Any

from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.dialect.topology import Island
from pathways.runtime.control.dispatcher import Dispatcher
from pathways.runtime.control.member import Member, members_of
from pathways.runtime.control.scheduling import SCHEDULING_POLICIES, STRIDE
from pathways.runtime.control.sessions import ClientSession, KnownPlan
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.client_messages import WEIGHT
from pathways.runtime.wire.encoding import frame_bytes, pack_parcels, read_frames
from pathways.runtime.wire.errors import HostLost
from pathways.runtime.wire.ids import first_id
from pathways.runtime.wire.load_proofs import loaded_as, prove

PLAN = first_id(1) + 6
"""The plan of the first client; each other client has one at the same distance from its first id."""


def plan_of(session: ClientSession) -> int:
    return first_id(session.number) - first_id(1) + PLAN


class FakePeer:
    """Records the messages sent to the other end of a stream."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def write(self, data: bytes) -> None:
        self.got += read_frames(data)

    def send(self, message: m.Message) -> None:
        self.write(frame_bytes(message))


class Timers:
    """A loop whose timers expire when a test says so."""

    def __init__(self) -> None:
        self.set: list[tuple[float, Callable[[], None]]] = []
        """The seconds and the work of each timer that has not expired."""
        self.has_ended = False

    def every(self, seconds: float, work: Callable[[], None]) -> None:
        self.poll = work

    def after(self, seconds: float, work: Callable[[], None]) -> None:
        self.set.append((seconds, work))

    def soon(self, work: Callable[[], None]) -> None:
        self.after(0.0, work)

    def end(self) -> None:
        self.has_ended = True

    def wait(self) -> list[float]:
        """Calls the timers that are set; returns their seconds."""
        timers, self.set = self.set, []
        for _, work in timers:
            work()
        return [seconds for seconds, _ in timers]


class FakeCluster:
    """Clients, and hosts whose runs end when a test calls `end`."""

    def __init__(self, hosts: int, memory: int | None = None) -> None:
        self.members = members_of(Island(f"island{n}", devices=1, memory=memory) for n in range(hosts))
        for member in self.members:
            self.join_host(member)
        self.dispatcher = Dispatcher(self.members, SCHEDULING_POLICIES[STRIDE]())
        self.sessions: list[ClientSession] = []
        self.pending: list[list[int]] = [[] for _ in self.members]
        """The unfinished runs of each host, in the order received."""
        self.seen: list[list[int]] = [[] for _ in self.members]

    def join_host(self, member: Member) -> None:
        peer: Any = FakePeer()
        member.ranks[0].peer, member.ranks[0].key = peer, os.urandom(32)
        member.epoch.settle(member.epoch.number, "join")

    def client(self, *, loops: bool = False) -> ClientSession:
        peer: Any = FakePeer()
        session = ClientSession(len(self.sessions) + 1, "test", 0, peer)
        session.plans[plan_of(session)] = KnownPlan("work", {} if loops else None, self.dispatcher.cost_of("work"))
        self.sessions.append(session)
        return session

    def load(
        self, session: ClientSession, host: int, hosts: Sequence[int], text: bytes = b"", number: int | None = None,
        *, sequential: bool = False,
    ) -> None:  # fmt: skip
        """Proves to the dispatcher that a host has loaded a plan of the islands of `hosts`."""
        number = plan_of(session) if number is None else number
        islands, known = {self.members[each].name for each in hosts}, session.plans[number]
        loaded = loaded_as(text, islands, known.branches, sequential=sequential)
        keys = map(session.key_of, self.members[host].ranks)
        proofs = " ".join(prove(key, number, loaded) for key in keys)
        self.dispatcher.loaded(session, m.Loaded(number, host, proofs))

    def submit(
        self,
        session: ClientSession,
        number: int,
        hosts: Sequence[int],
        weight: float = 1,
        memory: int = 0,
        *,
        loads: bool = True,
        before: Sequence[m.Message] = (),
    ) -> int:
        """Submits a run, of a plan that its hosts load before, unless `loads` is false; returns its number."""
        known = session.plans[plan_of(session)]
        plan = plan_of(session) + sum(1 << host for host in hosts) * loads
        session.plans.setdefault(plan, KnownPlan(known.name, known.branches, known.cost))
        for host in hosts if loads else ():
            self.load(session, host, hosts, number=plan)
        run = first_id(session.number) + number
        parcels = [(h, self.members[h].epoch.number, [*before, m.RunPlan(plan, run, 0, run, ())]) for h in hosts]
        pairs = tuple(n for h in hosts for n in (h, memory)) if memory else ()
        self.dispatcher.submit(session, m.Submit(run, plan, 0, int(weight * WEIGHT), pairs, pack_parcels(parcels)))
        return run

    def free_array(self, session: ClientSession, host: int, array: int) -> None:
        frame = frame_bytes(m.FreeArrays((first_id(session.number) + array,)))
        self.dispatcher.pass_on(session, m.Relayed(host, self.members[host].epoch.number, 0, frame))

    def collect_messages(self) -> None:
        """Takes the messages sent to hosts, and records the runs among them."""
        for number, member in enumerate(self.members):
            peer: Any = member.ranks[0].peer
            if peer is None:
                continue
            for message in peer.got:
                if isinstance(message, m.RunPlan):
                    self.pending[number].append(message.run)
                    self.seen[number].append(message.run)
            peer.got.clear()

    def end(self, host: int) -> int:
        """Ends the oldest unfinished run of a host."""
        run = self.pending[host].pop(0)
        self.dispatcher.ended(self.members[host].ranks[0], run, 1_000_000)
        return run

    def replace_host(self, host: int) -> None:
        """Loses a host and joins its replacement."""
        member = self.members[host]
        cause = HostLost(island=member.name, reason="killed")
        member.epoch.go()
        member.ranks[0].peer, member.lost = None, cause
        self.pending[host].clear()
        self.dispatcher.island_lost(member, cause)
        self.join_host(member)

    def is_empty(self) -> bool:
        scheduler = self.dispatcher.scheduler
        return not (
            self.dispatcher.runs
            or scheduler.waiting
            or scheduler.running
            or scheduler.entries
            or any(any(counts.values()) for counts in scheduler.in_flight.values())
            or any(self.dispatcher.ledger.reserved.values())
            or any(line for session in self.sessions for line in session.lines.values())
        )


def refused(session: ClientSession) -> dict[int, str]:
    peer: Any = session.peer
    return {x.run: read_diagnostic(x.cause).code for x in peer.got if isinstance(x, m.RunRefused)}
