"""The last events of a process: what was begun, enqueued, done and lost, for reports of hangs and bugs."""

import time
from collections import deque
from typing import Any

MOST_KEPT = 512
"""Events that are kept; to note one costs less than a microsecond."""
SHOWN = 24
"""Events that a report shows."""

_events: deque[tuple[float, str, Any, str]] = deque(maxlen=MOST_KEPT)


def note(what: str, which: Any, event: str) -> None:
    """Notes an event: `run 7 began`, say. Any thread may call it."""
    _events.append((time.monotonic(), what, which, event))


def last_events(most: int = SHOWN) -> list[str]:
    """The last events as lines, oldest first, each with the seconds since it happened."""
    now = time.monotonic()
    return [f"{now - at:9.3f} s ago  {what} {which} {event}" for at, what, which, event in list(_events)[-most:]]
