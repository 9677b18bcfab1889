"""What may become of runs, buffers, values between hosts, and hosts themselves: one table each. Pure.

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

    def after(self, state: str, event: str) -> str:
        """The state behind an event. Raises InternalError for one that cannot happen in this state."""
        try:
            return self.table[state][event]
        except KeyError:
            raise InternalError(f"{self.what} that is {state} cannot {event}") from None

    def is_end(self, state: str) -> bool:
        return not self.table[state]


RUN = States(
    "a run",
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
"""A run, as the scheduler sees it: in line, enqueuing, giving way or waiting for a value in between, then in flight."""

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

HOST = States(
    "a host",
    "starting",
    {
        "starting": {"join": "up", "go": "starting", "stay away": "away"},
        "up": {"go": "starting"},
        "away": {"go": "away"},
    },
)
"""The host of an island: each time it goes another is started in its place, until that is given up."""

ALL = (RUN, BUFFER, SENT, RECEIVED, HOST)
