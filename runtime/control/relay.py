"""What one host of a run decides is told to all of its hosts, in one order (runtime/host/run/decisions.py).

A host that is gone decides nothing more: from then on all others hear only why, so that none goes on alone. A run is
cancelled in the same way. What lets a host go on with a loop is held back while another is more than `AHEAD` turns
behind it: else a host that is quick would offer without end what one that is slow has not taken.

Hosts that have an island together *vote* on what has arrived there: it is good where all of them have it. They go by
what they are told in one order, also when the run ends early: each loop that they come to is then ended by its name.
"""

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from pathways.dialect.ahead import AHEAD
from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.dialect.diagnostics import Diagnostic
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.decided import ENDED, Said, doom


class Told(Protocol):
    """A host that takes part in a run."""

    def tell(self, message: Said) -> None:
        """Sends a message some time soon; never waits."""
        ...


@dataclass(eq=False)
class _Loop:
    """One run of a branch: how many decisions each of its hosts has come to, and how many were told."""

    branch: int
    reached: dict[str, int]
    told: int = 0
    held: deque[Said] = field(default_factory=deque[Said])
    ended: bool = False

    @property
    def is_over(self) -> bool:
        """Whether no host will say anything of it."""
        return self.ended and all(count == self.told for count in self.reached.values())


_ALONE: Mapping[str, str] = MappingProxyType({})


class Relay:
    """One run with branches on data, on hosts by name. `branches` are those that several have a part of, by number.

    `islands`: those of hosts that have one together with others. It may be used as soon as it is made: what is said
    before all hosts have heard of the run waits for `begin`.
    """

    def __init__(
        self,
        run: int,
        hosts: Mapping[str, Told],
        branches: Mapping[int, tuple[str, frozenset[str]]],
        islands: Mapping[str, str] = _ALONE,
    ) -> None:
        self._run = run
        self._hosts = hosts
        self._branches = branches
        self._islands = islands
        self._over: set[int] = set()
        """Loops that were ended by name."""
        self._cause: Diagnostic | None = None
        self._loops: dict[int, _Loop] = {}
        self._lock = threading.Lock()
        self._early: list[tuple[Said, Iterable[str]]] | None = []
        self._doomed = self._cancelled = False

    @property
    def loops(self) -> int:
        """How many runs of branches are under way."""
        return len(self._loops)

    def cancel(self, cause: Diagnostic) -> None:
        """Ends the loops of the run, on all hosts."""
        with self._lock:
            if not self._cancelled:
                self._cancelled = True
                self._end(cause)

    def begin(self) -> None:
        """Says that all hosts have heard of the run."""
        with self._lock:
            early, self._early = self._early or [], None
            for said, hosts in early:
                self._say(said, hosts)

    def hear(self, host: str, said: Said | m.Reached) -> None:
        """Takes what a host has decided, or that it waits for what another does; or its vote."""
        with self._lock:
            if said.branch not in self._branches:
                return
            kind, hosts = self._branches[said.branch]
            if host not in hosts:  # what a client has said of its plan is not so
                return
            if kind != "vote" and self._is_doomed(hosts):
                self._end_loop(said.branch, said.loop)
                return
            loop = self._loops.setdefault(said.loop, _Loop(said.branch, dict.fromkeys(hosts, 0)))
            loop.reached[host] += 1
            if not isinstance(said, m.Reached):
                loop.held.append(said)
            if kind == "vote":
                self._count(loop, said.loop)
                return
            while loop.held and min(loop.reached.values()) > loop.told - AHEAD:
                told = loop.held.popleft()
                loop.told += 1
                loop.ended = kind == "cond" or isinstance(told, m.Undecided) or not told.value
                self._say(told, hosts)
            if loop.is_over:
                del self._loops[said.loop]

    def _count(self, votes: _Loop, name: int) -> None:
        """Tells the outcome of a vote when all have said what they have: the first that is bad, else good."""
        if all(votes.reached.values()):
            del self._loops[name]
            bad = next((said for said in votes.held if isinstance(said, m.Undecided)), None)
            self._say(bad or votes.held[0], votes.reached)

    def _is_doomed(self, hosts: Iterable[str]) -> bool:
        """Whether what these hosts decide is decided no more; the loss of another island ends no loop of one alone."""
        own = {self._islands.get(host, host) for host in hosts}
        return self._cancelled or (self._doomed and (len(own) > 1 or not own <= set(self._islands.values())))

    def _end_loop(self, branch: int, loop: int) -> None:
        """Tells those that go by one order that a loop ends; others know it from that of the run."""
        assert self._cause is not None
        _, hosts = self._branches[branch]
        in_step = [host for host in hosts if host in self._islands]
        if in_step and loop not in self._over:
            self._over.add(loop)
            self._say(m.Undecided(self._run, branch, loop, ENDED, write_diagnostic(self._cause)), in_step)

    def doom(self, cause: Diagnostic) -> None:
        """Says that a host is gone, and why."""
        with self._lock:
            if not self._doomed:
                self._end(cause)

    def _end(self, cause: Diagnostic) -> None:
        self._doomed = True
        self._cause = cause
        for name, loop in list(self._loops.items()):
            kind, hosts = self._branches[loop.branch]
            if kind != "vote" and self._is_doomed(hosts):
                del self._loops[name]
                if not loop.ended:
                    self._end_loop(loop.branch, name)
        self._say(doom(self._run, cause, cancelled=self._cancelled), self._hosts)

    def _say(self, said: Said, hosts: Iterable[str]) -> None:
        if self._early is not None:
            self._early.append((said, hosts))
            return
        for name in hosts:
            self._hosts[name].tell(said)
