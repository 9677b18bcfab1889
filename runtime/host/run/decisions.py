"""What decides branches whose calls are on several hosts: said by the host that has it, heard by all (paper, 4.5).

The host that has the value tells the controller, which tells all hosts of the run, that one too: what one of them goes
by, all do. So a loop never ends on one host and goes on at another, which would wait for what the first was to send;
where a host is gone, none of the others hears anything but the reason from then on. Hosts that wait for a decision say
that they do: nothing is told to those that are ahead before the last has come near (control/relay.py).

Hosts that have an island together also go by decisions in one order (`InStep`), whatever is known sooner on one of
them: else two of them might launch two collectives in different orders, and wait for each other for ever.
"""

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from pathways.dialect.diagnostic_json import read_diagnostic, write_diagnostic
from pathways.runtime.host.run.poison import Poison
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.decided import CANCELLED, DOOMED, ENDED, Said


def name_of_turn(outer: int, step: int, turn: int) -> int:
    """The name of one run of a body, found alike on all hosts: of the run around it, its branch, and which it is."""
    digest = hashlib.blake2b(f"{outer} {step} {turn}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 2


@dataclass(eq=False)
class RunDecisions:
    """The decisions of one run, which another thread hears."""

    run: int
    post: Callable[[Said | m.Reached], None]
    _heard: dict[int, int | Poison] = field(default_factory=dict[int, int | Poison])
    _doomed: Poison | None = None
    """Why nothing more will be decided between hosts."""
    _cancelled: Poison | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)
    """Guards those; notified when one is heard."""

    def say(self, branch: int, loop: int, name: int, value: int | Poison) -> None:
        """Tells the controller what this host has found; it is heard of as by any other host."""
        if isinstance(value, Poison):
            self.post(m.Undecided(self.run, branch, loop, name, write_diagnostic(value.cause)))
        else:
            self.post(m.Decided(self.run, branch, loop, name, value))

    def reach(self, branch: int, loop: int) -> None:
        """Tells the controller that this host waits for what another decides."""
        self.post(m.Reached(self.run, branch, loop))

    def hear(self, said: Said) -> None:
        with self._changed:
            if isinstance(said, m.Decided):
                self._heard[said.name] = said.value
            elif said.name in (DOOMED, CANCELLED):
                self._doomed = Poison(read_diagnostic(said.cause))
                if said.name == CANCELLED:
                    self._cancelled = self._doomed
            else:
                self._heard[said.name] = Poison(read_diagnostic(said.cause))
            self._changed.notify_all()

    def expect(self, name: int, loop: int) -> None:
        """Says that this is what the run comes to next, beside what it has come to before; none is known sooner."""

    def go_on(self) -> None:
        """Says that all that the last decision made possible is enqueued."""

    @property
    def cancelled(self) -> Poison | None:
        """Why the run's own loops end, too: it was cancelled."""
        return self._cancelled

    def is_known(self, name: int) -> bool:
        return name in self._heard or self._doomed is not None

    def wait(self, name: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.is_known(name))

    def take(self, name: int) -> int | Poison:
        """What was decided, of what is known; it is asked for once."""
        with self._changed:
            found = self._heard.pop(name, self._doomed)
            assert found is not None
            return found


@dataclass(eq=False)
class InStep(RunDecisions):
    """As RunDecisions, on a host that has an island together with others: all of those go by the same in one order.

    What a run expects depends on what it has taken alone, and all hear the same: so the first that was heard, of what
    is expected, is the same on all of them. The next may be taken when all that it made possible is enqueued. Nothing
    is known to be doomed but what was said to be, by its own name or that of its loop (control/relay.py).
    """

    _order: list[Said] = field(default_factory=list[Said])
    _expected: dict[int, int] = field(default_factory=dict[int, int])
    """The loops of what is expected, by name."""
    _may_take: bool = True

    def hear(self, said: Said) -> None:
        with self._changed:
            if said.name not in (DOOMED, CANCELLED):
                self._order.append(said)
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
            said = self._first(name)
            assert said is not None and self._may_take
            self._order.remove(said)
            del self._expected[name]
            self._may_take = False
        return said.value if isinstance(said, m.Decided) else Poison(read_diagnostic(said.cause))

    def _first(self, name: int) -> Said | None:
        """What was said of a name, if it is the first that was heard of what is expected."""
        loops = set(self._expected.values())
        for said in self._order:
            if said.name in self._expected:
                return said if said.name == name else None
            if said.name == ENDED and said.loop in loops:
                return said if self._expected.get(name) == said.loop else None
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
    """The decisions of all runs that a host knows of. Runs begin, and decisions are heard, in the order of messages."""

    def __init__(self, post: Callable[[Said | m.Reached], None], *, in_step: bool = False) -> None:
        """`in_step`: with other hosts of the same island."""
        self._post = post
        self._kind = InStep if in_step else RunDecisions
        self._runs: dict[int, RunDecisions] = {}

    def begin(self, run: int) -> None:
        self._runs[run] = self._kind(run, self._post)

    def of(self, run: int) -> RunDecisions:
        return self._runs[run]

    def hear(self, said: Said) -> None:
        """Takes what was decided; of a run that has ended here it is nothing."""
        if (decisions := self._runs.get(said.run)) is not None:
            decisions.hear(said)

    def end(self, run: int) -> None:
        self._runs.pop(run, None)
