"""Keeps the last events of the process in memory: runs and hosts that began, completed or were lost. Hosts, controllers
and clients add events. Reports of hangs and of internal errors print them.
"""

import time
from collections import deque
from typing import Any

MAX_KEPT = 512
"""Maximum number of events kept. Adding an event takes less than a microsecond."""
MAX_SHOWN_EVENTS = 24
"""Default number of events in a report."""

_events: deque[tuple[float, str, Any, str]] = deque(maxlen=MAX_KEPT)


def note(what: str, which: Any, event: str) -> None:
    """Adds an event, for example `run 7 began`. Any thread may call it."""
    _events.append((time.monotonic(), what, which, event))


def last_events(count: int = MAX_SHOWN_EVENTS) -> list[str]:
    """Returns the last events as lines, oldest first, each with the seconds since it happened."""
    now = time.monotonic()
    return [f"{now - at:9.3f} s ago  {what} {which} {event}" for at, what, which, event in list(_events)[-count:]]
