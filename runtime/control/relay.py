"""Forwards the decision of a data-dependent loop or branch from the host that has the value to all hosts of the run.
All of them receive the decisions in one order. The dispatcher makes one relay for each such run.

`runtime/host/run/decisions.py` is the other end. A lost host decides nothing more. All other hosts then receive only
the cause, so that none continues standalone. A run is cancelled in the same way. A decision to continue a loop is held
back while another host is more than `AHEAD` iterations slower. Otherwise a fast host would send without limit values
that a slow host has not received.

Hosts that share an island *vote* on inbound values: a value is good if all hosts have received it. They follow
decisions in one order, also when the run ends early: each loop that they reach is then ended by its name.
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
from pathways.runtime.wire.decided import ENDED, Outcome, doom


class Recipient(Protocol):
    """A host that participates in a run."""

    def send(self, message: Outcome) -> None:
        """Sends a message asynchronously; never blocks."""
        ...


@dataclass(eq=False)
class _Loop:
    """One execution of a branch: the number of decisions that each host has reached, and the number already sent."""

    branch: int
    reached: dict[str, int]
    sent: int = 0
    held: deque[Outcome] = field(default_factory=deque[Outcome])
    ended: bool = False

    @property
    def is_over(self) -> bool:
        """Whether no more messages about the loop will arrive."""
        return self.ended and all(count == self.sent for count in self.reached.values())


_SINGLE_HOSTS: Mapping[str, str] = MappingProxyType({})


class Relay:
    """Relays decisions for one run on hosts by name. `branches` are those in which several hosts take part, by number.

    `islands`: the islands of hosts that share an island with others. The relay may be used at once: messages are queued
    until `begin`, when all hosts have received the run.
    """

    def __init__(
        self,
        run: int,
        hosts: Mapping[str, Recipient],
        branches: Mapping[int, tuple[str, frozenset[str]]],
        islands: Mapping[str, str] = _SINGLE_HOSTS,
    ) -> None:
        self._run = run
        self._hosts = hosts
        self._branches = branches
        self._islands = islands
        self._over: set[int] = set()
        """Loops that were ended by their name."""
        self._cause: Diagnostic | None = None
        self._loops: dict[int, _Loop] = {}
        self._lock = threading.Lock()
        self._early: list[tuple[Outcome, Iterable[str]]] | None = []
        self._doomed = self._cancelled = False

    @property
    def loops(self) -> int:
        """Returns the number of branch executions in progress."""
        return len(self._loops)

    def cancel(self, cause: Diagnostic) -> None:
        """Ends the loops of the run on all hosts."""
        with self._lock:
            if not self._cancelled:
                self._cancelled = True
                self._end(cause)

    def begin(self) -> None:
        """Sends the queued messages, since all hosts have received the run."""
        with self._lock:
            early, self._early = self._early or [], None
            for outcome, hosts in early:
                self._send(outcome, hosts)

    def deliver(self, host: str, outcome: Outcome | m.Reached) -> None:
        """Handles a host's decision or vote, or its notice that it waits for a decision."""
        with self._lock:
            if outcome.branch not in self._branches:
                return
            kind, hosts = self._branches[outcome.branch]
            if host not in hosts:  # the client has described its plan incorrectly
                return
            if kind != "vote" and self._is_doomed(hosts):
                self._end_loop(outcome.branch, outcome.loop)
                return
            loop = self._loops.setdefault(outcome.loop, _Loop(outcome.branch, dict.fromkeys(hosts, 0)))
            loop.reached[host] += 1
            if not isinstance(outcome, m.Reached):
                loop.held.append(outcome)
            if kind == "vote":
                self._count(loop, outcome.loop)
                return
            while loop.held and min(loop.reached.values()) > loop.sent - AHEAD:
                sent = loop.held.popleft()
                loop.sent += 1
                loop.ended = kind == "cond" or isinstance(sent, m.Undecided) or not sent.value
                self._send(sent, hosts)
            if loop.is_over:
                del self._loops[outcome.loop]

    def _count(self, votes: _Loop, name: int) -> None:
        """Sends the outcome of a vote after all hosts have voted: the first bad vote, or good."""
        if all(votes.reached.values()):
            del self._loops[name]
            bad = next((outcome for outcome in votes.held if isinstance(outcome, m.Undecided)), None)
            self._send(bad or votes.held[0], votes.reached)

    def _is_doomed(self, hosts: Iterable[str]) -> bool:
        """Whether decisions of these hosts are cancelled. The loss of one island does not end loops within another."""
        own = {self._islands.get(host, host) for host in hosts}
        return self._cancelled or (self._doomed and (len(own) > 1 or not own <= set(self._islands.values())))

    def _end_loop(self, branch: int, loop: int) -> None:
        """Ends a loop by name on hosts that share an island. Other hosts end it with the run's cancellation."""
        assert self._cause is not None
        _, hosts = self._branches[branch]
        in_step = [host for host in hosts if host in self._islands]
        if in_step and loop not in self._over:
            self._over.add(loop)
            self._send(m.Undecided(self._run, branch, loop, ENDED, write_diagnostic(self._cause)), in_step)

    def doom(self, cause: Diagnostic) -> None:
        """Ends the loops because a host is lost."""
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
        self._send(doom(self._run, cause, cancelled=self._cancelled), self._hosts)

    def _send(self, outcome: Outcome, hosts: Iterable[str]) -> None:
        if self._early is not None:
            self._early.append((outcome, hosts))
            return
        for name in hosts:
            self._hosts[name].send(outcome)
