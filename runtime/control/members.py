"""Starts the host processes of a cluster, connects them to each other, monitors them, and replaces lost ones. The
controller of the cluster calls it.

The hosts of an island are a gang: if one is lost, all are replaced, since the others have threads in collectives that
never end. Runs entirely on the controller's event-loop thread; replies of hosts are delivered to callbacks.
"""

import hmac
import itertools
import json
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pathways.dialect.diagnostic_json import read_diagnostic, write_diagnostic
from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.topology import Island
from pathways.runtime.control.health import HeartbeatMonitor, Partitions, hangs, host_timeout, roll_of
from pathways.runtime.control.member import Epoch, Member, Rank, all_ranks, member_after, members_of
from pathways.runtime.errors import Hang
from pathways.runtime.journal import note
from pathways.runtime.launch.launcher import HostLauncher
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.credentials import Caller
from pathways.runtime.wire.errors import HostLost
from pathways.runtime.wire.loop import Loop
from pathways.runtime.wire.message import difference
from pathways.runtime.wire.peer import Peer

MAX_STARTS = 5
"""An island is given up after this many consecutive hosts exit before completing a run."""
POLL_INTERVAL_S = 0.2
"""Interval of checks of host processes and their heartbeats."""
JOIN_RETRY_DELAY_S = 1.0
"""Delay before hosts are connected again after a failed attempt."""
JOIN_DELAY_S = 0.1
"""Delay in which more starting hosts may register before all are connected with each other."""
HOST_START_TIMEOUT_S = 120.0
"""Time limit in seconds for the start of hosts."""


def print_note(line: str) -> None:
    """Prints a note to the cluster's log."""
    print(f"note: {line}", file=sys.stderr, flush=True)


class Members:
    """The hosts of a cluster. `on_connected` and `on_lost` are called when an island's hosts connect or are lost."""

    def __init__(
        self,
        loop: Loop,
        launcher: HostLauncher,
        islands: Sequence[Island],
        on_connected: Callable[[Member], None],
        on_lost: Callable[[Member, int, Diagnostic], None],
        log: Callable[[str], None] = print_note,
    ) -> None:
        self._loop, self._launcher = loop, launcher
        self._on_connected, self._on_lost, self._log = on_connected, on_lost, log
        self.all = members_of(islands)
        self.by_name = {rank.name: rank for rank in all_ranks(self.all)}
        """The hosts by name."""
        self._requests = itertools.count()
        self._joining = 0
        self.are_meeting = False
        """Whether hosts are connecting with each other. A host that exits then makes others exit
        (host/load/peer_hosts.py)."""
        self._heartbeats = HeartbeatMonitor(host_timeout())
        self._closed = False
        self._partitions = Partitions()

    def begin(self) -> None:
        """Starts all hosts and their monitoring."""
        self._loop.every(POLL_INTERVAL_S, self._poll)
        for member in self.all:
            self.start(member)

    def add(self, island: Island) -> Member:
        """Adds an island. An island re-added under its old name keeps its number."""
        member = next((each for each in self.all if each.name == island.name), None)
        if member is None:
            member = member_after(self.all, island)
            self.by_name |= {rank.name: rank for rank in member.ranks}
            self.all.append(member)
        else:
            member.island, member.epoch = island, Epoch(member.epoch.number + 1)
            member.lost = member.removal = None
            member.idle = 0
        return member

    def end(self, member: Member) -> None:
        """Terminates the hosts of a removed island and starts no others."""
        assert member.removal is not None
        if member.epoch.state != "away":
            member.ending = member.process
            self.lose(member, member.removal)
        member.lost = member.removal

    def start(self, member: Member) -> None:
        """Starts the hosts of an island. They connect by themselves."""
        member.began = time.monotonic()
        member.worked = False
        try:
            member.process = self._launcher.start(member.island, member.epoch.number, member.give_tickets())
        except PathwaysError as error:
            self._give_up(member, error.diagnostic)
        except OSError as error:
            self._give_up(member, HostLost(island=member.name, reason=str(error)))

    def send_spec(self, name: str, peer: Peer, send: Callable[[dict[str, Any]], None]) -> None:
        """Sends an externally started host its configuration, once all hosts of its island have requested it.

        Raises PWC0910 if the cluster expects no such host.
        """
        rank = self.by_name.get(name)
        if rank is None or rank.member.process is None or not rank.member.process.is_started_externally:
            raise PathwaysError(HostLost(island=name, reason="the cluster expects no host of this name"))
        if rank.peer is not None:
            raise PathwaysError(HostLost(island=name, reason="this host is already connected"))
        if rank.requester is not None:
            rank.requester[0].end("another process has connected as this host")
        if any(each.peer is not None for each in rank.member.ranks):  # it exited after its island was configured
            self.lose(rank.member, HostLost(island=name, reason="it connected again after its island had started"))
        rank.requester = peer, send
        member, hosts = rank.member, {each.name: each.island.hosts for each in self.all if each.island.hosts > 1}
        if any(each.requester is None or each.requester[0].ended for each in member.ranks):
            return
        try:
            group = rank.member.process.start_group()
        except OSError as error:
            raise PathwaysError(HostLost(island=name, reason=f"its group service did not start: {error}")) from None
        for each, ticket in zip(member.ranks, member.give_tickets(), strict=True):
            assert each.requester is not None
            devices = member.island.size // member.island.hosts
            each.requester[1]({"devices": devices, "rank": each.rank, "hosts": hosts, "group": group, "ticket": ticket})
            each.requester = None

    def hello(self, peer: Peer, hello: m.Hello, caller: Caller) -> Rank:
        """Registers a process as the host that it claims to be. Raises PWC0910 for another process or version."""
        rank = self.by_name.get(hello.island)
        if rank is None or rank.member.process is None or not self._is_it(rank, hello, caller):
            raise PathwaysError(HostLost(island=hello.island, reason=f"{caller} is not the expected host"))
        if rank.peer is not None:
            raise PathwaysError(HostLost(island=hello.island, reason="this host is already connected"))
        if other := difference(hello.versions):
            cause = HostLost(island=rank.name, reason=f"the versions differ: {other}")
            if not rank.member.process.is_started_externally:
                self.lose(rank.member, cause)
            raise PathwaysError(cause)
        rank.peer, rank.address, rank.key = peer, hello.address, secrets.token_bytes(32)
        if rank.member.is_met:
            self._join_soon()
        return rank

    @staticmethod
    def _is_it(rank: Rank, hello: m.Hello, caller: Caller) -> bool:
        """Whether a process is the host: it presents the host's ticket, and no certificate of another member."""
        is_other = caller.member is not None and not caller.is_host(rank.name)
        return bool(rank.ticket) and hmac.compare_digest(rank.ticket, hello.ticket) and not is_other

    def ask(
        self, rank: Rank, make: Callable[[int], m.Message], answered: Callable[[m.Answer | Diagnostic], None]
    ) -> None:
        """Sends a request. `answered` receives the answer, or the reason why there is none."""
        number = next(self._requests)
        rank.callbacks[number] = answered
        rank.post(make(number))

    def _join_soon(self) -> None:
        """Schedules a join after a short delay without new hosts, since each join exchanges messages with all hosts."""
        self._joining += 1
        joining = self._joining
        waits = any(not member.is_met and member.process is not None for member in self.all)
        self._loop.after(JOIN_DELAY_S if waits else 0.0, lambda: self._join() if joining == self._joining else None)

    def _join(self) -> None:
        """Connects all registered hosts with each other: exchanges their addresses, then admits new hosts."""
        joining, met = self._joining, [member for member in self.all if member.is_met]
        self.are_meeting = bool(met)
        there = {rank.name: rank for rank in all_ranks(met)}
        given: dict[str, Mapping[str, str]] = {}
        connected: set[str] = set()

        def found(name: str, answer: m.Answer | Diagnostic) -> None:
            if joining != self._joining or self._must_ask_again(answer):
                return  # another host has registered or was lost: a new join follows
            assert isinstance(answer, m.Answer)
            given[name] = json.loads(answer.value)
            if len(given) == len(there):
                for target in there:
                    invitations = {source: given[source][target] for source in there if source != target}
                    self.ask(
                        there[target],
                        lambda n, invitations=invitations: m.Connect(n, invitations),
                        lambda a, target=target: done(target, a),
                    )

        def done(name: str, answer: m.Answer | Diagnostic) -> None:
            if joining != self._joining or self._must_ask_again(answer):
                return
            connected.add(name)
            if len(connected) == len(there):
                self.are_meeting = False
                for member in met:
                    if not member.is_up:
                        self._mark_connected(member)

        for name, rank in there.items():
            wanted = {other: "" for other in there if other != name}
            self.ask(rank, lambda n, wanted=wanted: m.Connect(n, wanted), lambda a, name=name: found(name, a))

    def _must_ask_again(self, answer: m.Answer | Diagnostic) -> bool:
        """Whether a host failed to provide its addresses or to connect. On an error, schedules another join."""
        if isinstance(answer, m.Answer) and answer.error:
            print_note(str(read_diagnostic(answer.error)))
            self.are_meeting = False  # the failed host may be removed
            self._loop.after(JOIN_RETRY_DELAY_S, self._join_soon)
        return not isinstance(answer, m.Answer) or bool(answer.error)

    def _mark_connected(self, member: Member) -> None:
        member.epoch.settle(member.epoch.number, "join")
        member.lost = None
        note("host", member.name, f"connected, epoch {member.epoch.number}")
        self._on_connected(member)

    def deliver(self, rank: Rank, answer: m.Answer) -> None:
        """Delivers a host's answer to its callback."""
        if (answered := rank.callbacks.pop(answer.request, None)) is not None:
            answered(answer)

    def ended(self, rank: Rank, peer: Peer, reason: str) -> None:
        """Handles the end of a host's stream."""
        if rank.peer is peer:
            process = rank.member.process
            ended = process.ended() if process is not None else ""
            self.lose(rank.member, HostLost(island=rank.name, reason=f"its connection has ended: {ended or reason}"))

    def unusable(self, rank: Rank, message: m.Unusable) -> None:
        """Handles a host's report of a hang or a lost device.

        If one of several hosts reports a hang, another one may be the cause, so all are queried.
        """
        member, cause = rank.member, read_diagnostic(message.cause)
        if len(member.ranks) == 1 or not isinstance(cause, Hang):
            self.lose(member, cause)
            return
        received: dict[str, m.Answer] = {}

        def receive(name: str, answer: m.Answer | Diagnostic) -> None:
            if not isinstance(answer, m.Answer) or answer.error:
                return  # one host is lost, and so is the island
            received[name] = answer
            if len(received) == len(member.ranks):
                answers = {r.name: json.loads(received[r.name].value) for r in member.ranks}
                if hangs(float(cause.seconds), [a["idle"] for a in answers.values()]):
                    calls = roll_of({name: a["calls"] for name, a in answers.items()})
                    self.lose(member, replace(cause, calls=calls))

        for each in member.ranks:
            self.ask(each, m.CallRoll, lambda a, name=each.name: receive(name, a))

    def missing(self, rank: Rank, message: m.Missing, hosts: Sequence[Rank]) -> None:
        """Handles a report that values do not reach a host. Asks the run's hosts whether they still compute them."""
        named, idle = {each.name: each for each in self.all}, dict[str, float]()

        def receive(name: str, answer: m.Answer | Diagnostic) -> None:
            if message.island not in named or not isinstance(answer, m.Answer) or answer.error:
                return
            idle[name] = json.loads(answer.value)["idle"]
            if len(idle) < len(hosts):
                return
            cause = self._partitions.found(message, rank.member.name, list(idle.values()))
            if cause is not None:
                print_note(cause.brief)
                for island, mend in self._partitions.mends(cause).items():
                    named[island].post(mend)

        for each in hosts:
            self.ask(each, m.CallRoll, lambda a, name=each.name: receive(name, a))

    def lose(self, member: Member, cause: Diagnostic) -> None:
        """Kills the remaining hosts of an island, notifies all other hosts, and starts new hosts."""
        if self._closed:
            return
        epoch, was_met = member.epoch.number, any(rank.peer is not None for rank in member.ranks)
        member.epoch.go()
        member.lost = cause
        note("host", member.name, f"was lost: {cause.text(cause.have)}")
        self._log(cause.brief)
        callbacks: list[Callable[[m.Answer | Diagnostic], None]] = []
        for rank in member.ranks:
            rank.post(m.RunRefused(0, write_diagnostic(cause)))  # if it still receives messages
            peer, rank.peer, rank.address, rank.ticket, rank.arrays = rank.peer, None, "", "", 0
            rank.open_ports = 0
            if peer is not None:
                peer.end("the host is lost")
            callbacks += rank.callbacks.values()
            rank.callbacks = {}
        if member.process is not None:
            member.process.kill()
        for answered in callbacks:
            answered(cause)
        self.fence(member, cause)
        self._on_lost(member, epoch, cause)
        member.idle = 0 if member.worked else member.idle + 1
        if member.removal is not None:
            member.epoch.settle(member.epoch.number, "stay away")
            member.lost, member.process = member.removal, None
            self._on_lost(member, member.epoch.number, member.removal)
        elif member.idle >= MAX_STARTS and (member.process is None or not member.process.is_started_externally):
            self._give_up(member, cause)
        else:
            self.start(member)
        if was_met:
            self._join_soon()  # hosts that were being connected with it are connected without it

    def fence(self, member: Member, cause: Diagnostic) -> None:
        """Notifies all other hosts that an island's hosts are lost, so that nothing waits for them."""
        for other in self.all:
            if other is not member:
                other.post(m.Fence(member.name, write_diagnostic(cause), is_removed=member.removal is not None))

    def _give_up(self, member: Member, cause: Diagnostic) -> None:
        member.epoch.settle(member.epoch.number, "stay away")
        member.lost, member.process = cause, None
        print_note(f"no more hosts are started for {member.name}: {cause.text(cause.have)}")
        self._on_lost(member, member.epoch.number, cause)

    def _poll(self) -> None:
        """Marks hosts as lost that exited before registration, start too slowly, or have a heartbeat timeout."""
        now = time.monotonic()
        for member in self.all:
            if not member.is_met and member.process is not None:
                if reason := member.process.ended():
                    self.lose(member, HostLost(island=member.name, reason=f"it did not start: {reason}"))
                elif member.process.waits():
                    member.began = now
                elif now - member.began > HOST_START_TIMEOUT_S and not member.process.is_started_externally:
                    missing = ", ".join(rank.name for rank in member.ranks if rank.peer is None)
                    reason = f"{missing} did not start in {HOST_START_TIMEOUT_S:g} seconds"
                    self.lose(member, HostLost(island=member.name, reason=reason))
        last_received = {name: rank.peer.last_received for name, rank in self.by_name.items() if rank.peer is not None}
        for name, seconds in self._heartbeats.judge(now, last_received).items():
            if (rank := self.by_name[name]).peer is not None:  # otherwise its island was lost in this loop
                reason = f"heartbeat timeout: no message for {seconds:.1f} seconds"
                self.lose(rank.member, HostLost(island=name, reason=reason))

    def close(self) -> None:
        """Terminates all hosts."""
        self._closed = True
        for member in self.all:
            for rank in member.ranks:
                if rank.peer is not None:
                    rank.peer.end("the cluster is stopped")
            if member.process is not None:
                member.process.kill()
