"""The hosts of a cluster: started, joined, looked after, fenced when they are gone, and started anew.

The hosts of an island are a gang: when one is gone all are, since the others have threads in collectives that will
never end. All of it in the thread of the controller's loop: what is asked of a host is answered to a function.
"""

import hmac
import itertools
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pathways.dialect.diagnostic_json import read_diagnostic, write_diagnostic
from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.topology import Island
from pathways.runtime.control.gang_roll import hangs, roll_of
from pathways.runtime.control.launcher import HostLauncher
from pathways.runtime.control.loop import Loop, Peer
from pathways.runtime.control.member import Member, Rank, all_ranks, members_of
from pathways.runtime.control.silence import Silence, host_timeout
from pathways.runtime.errors import Hang
from pathways.runtime.journal import note
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import HostLost
from pathways.runtime.wire.versions import difference

MOST_STARTS = 5
"""So many hosts that end before a run of theirs does are enough."""
LOOK = 0.2
"""Seconds between two looks at processes, and at when hosts were last heard of."""
AGAIN = 1.0
"""Seconds after which hosts that could not be joined are joined once more."""
TOGETHER = 0.1
"""Seconds for which hosts that have come wait for others that come, too."""
START = 120.0
"""Seconds that hosts may take to start."""


class Members:
    """All hosts of a cluster. `on_came` and `on_gone` hear of islands whose hosts are there, or are not any more."""

    def __init__(
        self,
        loop: Loop,
        launcher: HostLauncher,
        islands: Sequence[Island],
        on_came: Callable[[Member], None],
        on_gone: Callable[[Member, int, Diagnostic], None],
    ) -> None:
        self._loop, self._launcher = loop, launcher
        self._on_came, self._on_gone = on_came, on_gone
        self.all = members_of(islands)
        self.by_name = {rank.name: rank for rank in all_ranks(self.all)}
        """All hosts."""
        self._requests = itertools.count()
        self._joining = 0
        self._silence = Silence(host_timeout())
        self._closed = False

    def begin(self) -> None:
        """Starts all hosts."""
        self._loop.every(LOOK, self._look)
        for member in self.all:
            self._start(member)

    def _start(self, member: Member) -> None:
        member.began = time.monotonic()
        member.worked = False
        try:
            member.process = self._launcher.start(member.island, member.epoch.number, member.give_tickets())
        except OSError as error:
            self._give_up(member, HostLost(island=member.name, reason=str(error)))

    def hello(self, peer: Peer, hello: m.Hello) -> Rank:
        """Takes the process that says it is a host. Raises PWC0910 where it is none of ours, or of another version."""
        rank = self.by_name.get(hello.island)
        is_ours = rank is not None and bool(rank.ticket) and hmac.compare_digest(rank.ticket, hello.ticket)
        if rank is None or not is_ours or rank.member.process is None or rank.peer is not None:
            raise PathwaysError(HostLost(island=hello.island, reason=f"process {hello.pid} is not its host"))
        if other := difference(hello.versions):
            cause = HostLost(island=rank.name, reason=f"it is of another version: {other}")
            self.lose(rank.member, cause)
            raise PathwaysError(cause)
        rank.peer, rank.address = peer, hello.address
        if rank.member.is_met:
            self._join_soon()
        return rank

    def ask(
        self, rank: Rank, make: Callable[[int], m.Message], answered: Callable[[m.Answer | Diagnostic], None]
    ) -> None:
        """Sends a request; `answered` gets the answer, or why there is none."""
        number = next(self._requests)
        rank.asked[number] = answered
        rank.post(make(number))

    def _join_soon(self) -> None:
        """Joins when no other host has come for a moment: each time all of them are asked and told."""
        self._joining += 1
        joining = self._joining
        waits = any(not member.is_met and member.process is not None for member in self.all)
        self._loop.after(TOGETHER if waits else 0.0, lambda: self._join() if joining == self._joining else None)

    def _join(self) -> None:
        """Tells all hosts that are there where the data of the others comes from, then lets new ones in."""
        self._joining += 1
        joining, met = self._joining, [member for member in self.all if member.is_met]
        there = {rank.name: rank for rank in all_ranks(met)}
        servers: dict[str, Mapping[str, str]] = {}
        told: set[str] = set()

        def found(name: str, answer: m.Answer | Diagnostic) -> None:
            if joining != self._joining or self._must_ask_again(answer):
                return  # another has come or gone, and all are asked again
            assert isinstance(answer, m.Answer)
            servers[name] = json.loads(answer.value)
            if len(servers) == len(there):
                for target in there:
                    addresses = {source: servers[source][target] for source in there if source != target}
                    self.ask(
                        there[target],
                        lambda n, addresses=addresses: m.Connect(n, addresses),
                        lambda a, target=target: done(target, a),
                    )

        def done(name: str, answer: m.Answer | Diagnostic) -> None:
            if joining != self._joining or self._must_ask_again(answer):
                return
            told.add(name)
            if len(told) == len(there):
                for member in met:
                    if not member.is_up:
                        self._came(member)

        for name, rank in there.items():
            wanted = {other: "" for other in there if other != name}
            self.ask(rank, lambda n, wanted=wanted: m.Connect(n, wanted), lambda a, name=name: found(name, a))

    def _must_ask_again(self, answer: m.Answer | Diagnostic) -> bool:
        """Whether a host could not say where its data are, or take where others' are: all are asked again, soon."""
        if isinstance(answer, m.Answer) and answer.error:
            print(f"note: {read_diagnostic(answer.error)}", file=sys.stderr, flush=True)
            self._loop.after(AGAIN, self._join_soon)
        return not isinstance(answer, m.Answer) or bool(answer.error)

    def _came(self, member: Member) -> None:
        member.epoch.settle(member.epoch.number, "join")
        member.lost = None
        note("host", member.name, f"joins, number {member.epoch.number}")
        self._on_came(member)

    def hear(self, rank: Rank, answer: m.Answer) -> None:
        """Takes what was asked of a host."""
        if (answered := rank.asked.pop(answer.request, None)) is not None:
            answered(answer)

    def ended(self, rank: Rank, peer: Peer, reason: str) -> None:
        """Hears that a host's stream has ended."""
        if rank.peer is peer:
            process = rank.member.process
            said = process.ended() if process is not None else ""
            self.lose(rank.member, HostLost(island=rank.name, reason=f"its process has ended: {said or reason}"))

    def hangs(self, rank: Rank, message: m.Hangs) -> None:
        """Hears that nothing goes on at a host. Of several it may be another that they wait for: all are asked."""
        member, cause = rank.member, read_diagnostic(message.cause)
        if len(member.ranks) == 1 or not isinstance(cause, Hang):
            self.lose(member, cause)
            return
        said: dict[str, m.Answer] = {}

        def hear(name: str, answer: m.Answer | Diagnostic) -> None:
            if not isinstance(answer, m.Answer) or answer.error:
                return  # one of them is gone, and so are all
            said[name] = answer
            if len(said) == len(member.ranks):
                answers = {r.name: json.loads(said[r.name].value) for r in member.ranks}
                if hangs(float(cause.seconds), [a["idle"] for a in answers.values()]):
                    calls = roll_of({name: a["calls"] for name, a in answers.items()})
                    self.lose(member, replace(cause, calls=calls))

        for each in member.ranks:
            self.ask(each, m.CallRoll, lambda a, name=each.name: hear(name, a))

    def lose(self, member: Member, cause: Diagnostic) -> None:
        """Kills what is left of an island's hosts, tells all others, and starts new ones in their place."""
        if self._closed:
            return
        epoch, was_met = member.epoch.number, any(rank.peer is not None for rank in member.ranks)
        member.epoch.go()
        member.lost = cause
        note("host", member.name, f"is gone: {cause.text(cause.have)}")
        print(f"note: {cause.text(cause.title)}: {cause.text(cause.have)}", file=sys.stderr, flush=True)
        asked: list[Callable[[m.Answer | Diagnostic], None]] = []
        for rank in member.ranks:
            peer, rank.peer, rank.address, rank.ticket, rank.arrays = rank.peer, None, "", "", 0
            if peer is not None:
                peer.end("the host is gone")
            asked += rank.asked.values()
            rank.asked = {}
        if member.process is not None:
            member.process.kill()
        for answered in asked:
            answered(cause)
        self.fence(member, cause)
        self._on_gone(member, epoch, cause)
        member.idle = 0 if member.worked else member.idle + 1
        if member.idle >= MOST_STARTS:
            self._give_up(member, cause)
        else:
            self._start(member)
        if was_met:
            self._join_soon()  # those who were being joined with it are joined without

    def fence(self, member: Member, cause: Diagnostic) -> None:
        """Tells all other hosts that an island's are gone, so that nothing waits for them."""
        for other in self.all:
            if other is not member:
                other.post(m.Fence(member.name, write_diagnostic(cause)))

    def _give_up(self, member: Member, cause: Diagnostic) -> None:
        member.epoch.settle(member.epoch.number, "stay away")
        member.lost, member.process = cause, None
        print(f"note: the host of {member.name} ends again and again, and is not started any more", file=sys.stderr)
        self._on_gone(member, member.epoch.number, cause)

    def _look(self) -> None:
        """Loses hosts that have ended before they came, take too long to come, or are not heard of."""
        now = time.monotonic()
        for member in self.all:
            if not member.is_met and member.process is not None:
                if said := member.process.ended():
                    self.lose(member, HostLost(island=member.name, reason=f"it has not started: {said}"))
                elif member.process.waits():
                    member.began = now
                elif now - member.began > START:
                    missing = ", ".join(rank.name for rank in member.ranks if rank.peer is None)
                    reason = f"{missing} did not start in {START:g} seconds"
                    self.lose(member, HostLost(island=member.name, reason=reason))
        heard = {name: rank.peer.heard for name, rank in self.by_name.items() if rank.peer is not None}
        for name, seconds in self._silence.judge(now, heard).items():
            if (rank := self.by_name[name]).peer is not None:  # else another of its island was lost just now
                reason = f"nothing was heard of it for {seconds:.1f} seconds"
                self.lose(rank.member, HostLost(island=name, reason=reason))

    def close(self) -> None:
        """Ends all hosts."""
        self._closed = True
        for member in self.all:
            for rank in member.ranks:
                if rank.peer is not None:
                    rank.peer.end("the cluster is stopped")
            if member.process is not None:
                member.process.kill()
