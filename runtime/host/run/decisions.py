"""Lets all hosts of a run take the same decisions at data-dependent loops and branches (paper, 4.5). The host that has
the value sends it, through the controller, to all hosts. `control_flow.py` and `load/edges.py` wait for it here. Hosts
that share an island also take their decisions in one order (`InStep`).

The controller sends the value to the first host, too, so that all hosts follow the same decision. Otherwise a loop
could end on one host and continue on another, which would wait for values of the first. If a host is lost, the others
receive only the reason from then on. Hosts report that they wait for a decision. Hosts that are ahead receive none
until the last host is near (control/relay.py).

The order of `InStep` holds even if one of these hosts knows another value sooner. Otherwise two hosts could launch two
collectives in different orders, and wait for each other for ever.
"""

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from pathways.dialect.diagnostic_json import read_diagnostic, write_diagnostic
from pathways.runtime.host.run.poison import Poison
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.decided import CANCELLED, DOOMED, ENDED, Outcome


def iteration_name(outer: int, step: int, iteration: int) -> int:
    """Returns the name of one run of a body, the same on all hosts: from the enclosing run, its branch and a count."""
    digest = hashlib.blake2b(f"{outer} {step} {iteration}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 2


@dataclass(eq=False)
class RunDecisions:
    """The decisions of one run, which another thread receives."""

    run: int
    post: Callable[[Outcome | m.Reached], None]
    _decided: dict[int, int | Poison] = field(default_factory=dict[int, int | Poison])
    _doomed: Poison | None = None
    """The reason for which no more decisions are made between hosts."""
    _cancelled: Poison | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)
    """Guards the fields above. Notified when a decision is received."""

    def report(self, branch: int, loop: int, name: int, value: int | Poison) -> None:
        """Sends this host's decision to the controller. This host receives it back, as all other hosts do."""
        if isinstance(value, Poison):
            self.post(m.Undecided(self.run, branch, loop, name, write_diagnostic(value.cause)))
        else:
            self.post(m.Decided(self.run, branch, loop, name, value))

    def reach(self, branch: int, loop: int) -> None:
        """Notifies the controller that this host waits for a decision of another host."""
        self.post(m.Reached(self.run, branch, loop))

    def deliver(self, outcome: Outcome) -> None:
        with self._changed:
            if isinstance(outcome, m.Decided):
                self._decided[outcome.name] = outcome.value
            elif outcome.name in (DOOMED, CANCELLED):
                self._doomed = Poison(read_diagnostic(outcome.cause))
                if outcome.name == CANCELLED:
                    self._cancelled = self._doomed
            else:
                self._decided[outcome.name] = Poison(read_diagnostic(outcome.cause))
            self._changed.notify_all()

    def expect(self, name: int, loop: int) -> None:
        """Notes a decision that the run has reached, besides earlier ones. Must precede `is_known` and `take`."""

    def go_on(self) -> None:
        """Notes that all steps that the last decision made possible are enqueued."""

    @property
    def cancelled(self) -> Poison | None:
        """The reason if the run was cancelled: then loops that only this host runs end, too."""
        return self._cancelled

    def is_known(self, name: int) -> bool:
        return name in self._decided or self._doomed is not None

    def wait(self, name: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.is_known(name))

    def take(self, name: int) -> int | Poison:
        """Returns and removes a known decision: each is taken once."""
        with self._changed:
            found = self._decided.pop(name, self._doomed)
            assert found is not None
            return found


@dataclass(eq=False)
class InStep(RunDecisions):
    """As RunDecisions, on a host that shares its island with others: all of them follow decisions in one order.

    The decisions that a run expects depend only on those that it has taken, and all hosts receive the same messages.
    So the first received decision that is expected is the same on all of them. The next one may be taken when all
    steps that it made possible are enqueued. A decision is doomed only by a message with its own name or its loop's
    (control/relay.py).
    """

    _order: list[Outcome] = field(default_factory=list[Outcome])
    _expected: dict[int, int] = field(default_factory=dict[int, int])
    """The loops of expected decisions, by name."""
    _may_take: bool = True

    def deliver(self, outcome: Outcome) -> None:
        with self._changed:
            if outcome.name not in (DOOMED, CANCELLED):
                self._order.append(outcome)
                self._changed.notify_all()

    def expect(self, name: int, loop: int) -> None:
        with self._changed:
            self._expected[name] = loop

    def go_on(self) -> None:
        with self._changed:
            self._may_take = True
            self._changed.notify_all()

    def is_known(self, name: int) -> bool:
        with self._changed:
            return self._may_take and self._first(name) is not None

    def take(self, name: int) -> int | Poison:
        with self._changed:
            outcome = self._first(name)
            assert outcome is not None and self._may_take
            self._order.remove(outcome)
            del self._expected[name]
            self._may_take = False
        return outcome.value if isinstance(outcome, m.Decided) else Poison(read_diagnostic(outcome.cause))

    def _first(self, name: int) -> Outcome | None:
        """Returns the message for a name, if it is the first received message that is expected."""
        loops = set(self._expected.values())
        for outcome in self._order:
            if outcome.name in self._expected:
                return outcome if outcome.name == name else None
            if outcome.name == ENDED and outcome.loop in loops:
                return outcome if self._expected.get(name) == outcome.loop else None
        return None


@dataclass(frozen=True, eq=False)
class Deciding:
    """A decision that is not known yet."""

    decisions: RunDecisions
    name: int

    def is_known(self) -> bool:
        return self.decisions.is_known(self.name)

    def wait(self) -> None:
        self.decisions.wait(self.name)


class Decisions:
    """The decisions of all active runs of a host. Runs begin, and decisions are received, in message order."""

    def __init__(self, post: Callable[[Outcome | m.Reached], None], *, in_step: bool = False) -> None:
        """`in_step`: other hosts share the island."""
        self._post = post
        self._kind = InStep if in_step else RunDecisions
        self._runs: dict[int, RunDecisions] = {}

    def begin(self, run: int) -> None:
        self._runs[run] = self._kind(run, self._post)

    def of(self, run: int) -> RunDecisions:
        return self._runs[run]

    def deliver(self, outcome: Outcome) -> None:
        """Passes a decision to its run. Ignores runs that have ended here."""
        if (decisions := self._runs.get(outcome.run)) is not None:
            decisions.deliver(outcome)

    def end(self, run: int) -> None:
        self._runs.pop(run, None)
