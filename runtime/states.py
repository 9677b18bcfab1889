"""What may become of objects with a life: runs, buffers, islands, clients and streams. One table each. Pure.

An event that a table does not know in a state is a bug of this package: it raises, and nothing has changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pathways.dialect.diagnostics import InternalError


@dataclass(frozen=True)
class States:
    """A table: by state, what each event makes of it. A state without events is an end."""

    what: str
    first: str
    table: Mapping[str, Mapping[str, str]]

    def is_end(self, state: str) -> bool:
        return not self.table[state]


MAX_EVENTS_KEPT = 8
"""The most events that an object keeps for errors."""


class Life:
    """The state of one object, and the last events that led to it."""

    __slots__ = ("_events", "_states", "state")

    def __init__(self, states: States) -> None:
        self._states = states
        self.state = states.first
        self._events: tuple[str, ...] = ()

    def turn(self, event: str) -> None:
        """Takes an event. Raises InternalError, with the last events, for one that cannot happen in this state."""
        after = self._states.table[self.state].get(event)
        if after is None:
            before = ", ".join(self._events) or "nothing"
            raise InternalError(f"{self._states.what} that is {self.state} cannot {event}; before: {before}")
        self.state = after
        events = self._events
        self._events = (*events, event) if len(events) < MAX_EVENTS_KEPT else (*events[1:], event)

    @property
    def is_over(self) -> bool:
        """Whether nothing more can become of it."""
        return self._states.is_end(self.state)


TURN = States(
    "a turn",
    "new",
    {
        "new": {"line up": "waiting"},
        "waiting": {"begin": "enqueuing", "cancel": "ended"},
        "enqueuing": {"pause": "paused", "step aside": "aside", "be enqueued": "in flight", "end": "ended"},
        "paused": {"begin": "enqueuing", "be enqueued": "in flight", "end": "ended"},
        "aside": {"pause": "paused", "be enqueued": "in flight", "end": "ended"},
        "in flight": {"end": "ended"},
        "ended": {},
    },
)
"""A run's turn, which the scheduler gives: in line, enqueuing, giving way or waiting for a value, then in flight."""

RUN = States(
    "a run",
    "behind",
    {
        "behind": {"line up": "in line", "be refused": "ended"},
        "in line": {"begin": "on hosts", "be refused": "ended"},
        "on hosts": {"end": "ended", "be refused": "ended"},
        "ended": {},
    },
)
"""A run of a cluster: behind what its client sent before, in line for its turn, then on hosts. It is refused there only
where something of this package has failed."""

EXECUTION = States(
    "an execution",
    "enqueuing",
    {
        "enqueuing": {"be enqueued": "in flight", "be abandoned": "abandoned", "end": "ended"},
        "in flight": {"be abandoned": "abandoned", "end": "ended"},
        "abandoned": {"be enqueued": "abandoned", "be abandoned": "abandoned", "end": "given up"},
        "ended": {"be abandoned": "ended"},
        "given up": {"be abandoned": "given up"},
    },
)
"""A run on devices. One is abandoned where some of what it enqueued will never be done: a device hangs. It may end in
the moment before it is."""

SESSION = States(
    "a client",
    "here",
    {"here": {"leave": "leaving"}, "leaving": {"be forgotten": "gone"}, "gone": {}},
)
"""A client of a cluster: its number is used again when no host and no run has anything of it."""

PEER = States(
    "a stream",
    "open",
    {
        "open": {"fill": "full", "end": "ended"},
        "full": {"drain": "open", "end": "ended"},
        "ended": {},
    },
)
"""A stream of a loop. A full one takes nothing more for now."""

BUFFER = States(
    "a buffer",
    "new",
    {
        "new": {"hold": "made", "promise": "promised", "fail": "poisoned", "free": "freed"},
        "promised": {"hold": "made", "fail": "poisoned", "free": "freed"},
        "made": {"claim": "claimed", "suspend": "suspended", "fail": "poisoned", "free": "freed"},
        "claimed": {"unclaim": "made", "suspend": "suspended", "fail": "poisoned", "free": "freed"},
        "suspended": {
            "hold": "made",
            "claim": "suspended",
            "unclaim": "suspended",
            "fail": "poisoned",
            "free": "freed",
        },
        "poisoned": {"fail": "poisoned", "claim": "poisoned", "unclaim": "poisoned", "free": "freed"},
        "freed": {"hold": "made", "promise": "promised", "fail": "poisoned", "claim": "freed", "unclaim": "freed"},
    },
)
"""A buffer of a client. What was freed is held again where the run that read it returns it; a run that claims it may be
late: its device was lost, or its client went, a moment before."""

SENT = States("a value for another host", "idle", {"idle": {"be offered": "offered"}, "offered": {}})
RECEIVED = States(
    "a value from another host",
    "idle",
    {
        "idle": {"be pulled": "pulled"},
        "pulled": {"arrive": "there", "fail": "bad"},
        "there": {},
        "bad": {},
    },
)
"""One value that goes between hosts, in one run: offered once and pulled once, under a number of its own."""

ISLAND = States(
    "an island",
    "starting",
    {
        "starting": {"join": "up", "go": "starting", "stay away": "away"},
        "up": {"go": "starting"},
        "away": {"go": "away"},
    },
)
"""The hosts of an island: each time they go others are started in their place, until that is given up."""

ALL = (RUN, TURN, EXECUTION, BUFFER, SENT, RECEIVED, ISLAND, SESSION, PEER)
