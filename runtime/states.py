"""Defines the allowed states and transitions of runs, buffers, islands, clients and connections, in one table each. The
modules that own these objects report events here. An event that is not allowed raises an error.

These modules are the scheduler, the store, sessions, peers and hosts. An event that is not allowed is a bug of this
package, and the state does not change.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pathways.dialect.diagnostics import InternalError


@dataclass(frozen=True)
class States:
    """A transition table: the next state, by state and event. A state without events is final."""

    what: str
    first: str
    table: Mapping[str, Mapping[str, str]]

    def is_end(self, state: str) -> bool:
        return not self.table[state]

    def begun(self, *events: str) -> "Begun":
        """Returns the beginning of objects to which these events happen when they are made."""
        state, last = self.first, _NO_EVENTS
        for event in events:
            state, last = self.table[state][event], last[event]
        return self, state, last


MAX_EVENTS_KEPT = 8
"""Maximum number of past events that an object keeps for error messages."""


class _Events(dict[str, "_Events"]):
    """The last events of an object, and what they are after each event that may follow.

    Objects with equal events share one, since an event of each array of each run must cost one look-up.
    """

    def __init__(self, last: tuple[str, ...]) -> None:
        self.last = last

    def __missing__(self, event: str) -> "_Events":
        if len(_KNOWN) >= MAX_KNOWN_EVENTS:
            _KNOWN.clear()
            _NO_EVENTS.clear()
        last = (*self.last, event)[-MAX_EVENTS_KEPT:]
        self[event] = after = _KNOWN.setdefault(last, _Events(last))
        return after


MAX_KNOWN_EVENTS = 1 << 12
"""Maximum number of different last events that are kept for objects to share."""
_NO_EVENTS = _Events(())
_KNOWN: dict[tuple[str, ...], _Events] = {}


Begun: TypeAlias = tuple[States, str, _Events]
"""The states of a new object, its state, and its last events."""


class Life:
    """The state of one object, and the last events that led to that state."""

    __slots__ = ("_events", "_states", "state")

    def __init__(self, states: States) -> None:
        self._states = states
        self.state = states.first
        self._events = _NO_EVENTS

    def transition(self, event: str) -> None:
        """Applies an event. Raises InternalError, with the last events, if the event is not allowed in this state."""
        after = self._states.table[self.state].get(event)
        if after is None:
            before = ", ".join(self._events.last) or "nothing"
            raise InternalError(f"{self._states.what} that is {self.state} cannot {event}; before: {before}")
        self.state = after
        self._events = self._events[event]

    @property
    def is_over(self) -> bool:
        """Whether the state is final."""
        return self._states.is_end(self.state)


QUEUE_ENTRY = States(
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
"""A run's slot in the queue, granted by the scheduler: waiting, enqueuing, paused or yielded (aside), then in
flight."""

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
"""A run of a cluster: after its client's earlier messages, then in the queue, then on hosts. A run on hosts is refused
only after an internal error of this package."""

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
"""A run on devices. It is abandoned if some of its enqueued work will never complete, because a device hangs. It may
complete just before it is abandoned."""

SESSION = States(
    "a client",
    "here",
    {"here": {"leave": "leaving"}, "leaving": {"be forgotten": "gone"}, "gone": {}},
)
"""A client of a cluster. Its number is reused when no host and no run holds anything of the client."""

PEER = States(
    "a stream",
    "open",
    {
        "open": {"fill": "full", "end": "ended"},
        "full": {"drain": "open", "end": "ended"},
        "ended": {},
    },
)
"""A stream of an event loop. A full stream accepts no more messages for now."""

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
"""A buffer of a client. A freed buffer is held again if the run that read it returns it. A claim may arrive just after
the buffer's device or client was lost."""

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
"""One value sent between hosts in one run: offered once and pulled once, under its own number."""

ISLAND = States(
    "an island",
    "starting",
    {
        "starting": {"join": "up", "go": "starting", "stay away": "away"},
        "up": {"go": "starting"},
        "away": {"go": "away"},
    },
)
"""The hosts of an island. Lost hosts are replaced by newly started ones until the island is given up (away)."""

ALL = (RUN, QUEUE_ENTRY, EXECUTION, BUFFER, SENT, RECEIVED, ISLAND, SESSION, PEER)
