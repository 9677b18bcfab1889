"""Tracks which values of other hosts the runs on this host wait for, and since when. `Host` reports late values to the
controller, because a network may lose values without an error.

`load/edges.py` notes the waits.
"""

import time
from dataclasses import dataclass, field

from pathways.runtime.time_limits import time_limit

TIMEOUT = "PATHWAYS_TRANSFER_TIMEOUT"
"""The environment variable for the seconds after which a missing value is reported to the controller."""


@dataclass(eq=False)
class AwaitedValues:
    """The values that the run that is being enqueued waits for.

    The enqueuing thread notes them, and another thread polls. No lock is needed for each received value: both threads
    read or change a dictionary in one operation.
    """

    limit: float = field(default_factory=lambda: time_limit(TIMEOUT, "30", may_be_zero=True))
    run: int = -1
    """The run that is being enqueued."""
    _waits: dict[int, tuple[int, str, float]] = field(default_factory=dict[int, tuple[int, str, float]])
    """By number of the wait: its run, its island and its start."""
    _reported: dict[int, float] = field(default_factory=dict[int, float])
    """By the same number: the time of the last report. Used only by the polling thread."""
    _following: int = 0

    def begin(self, island: str) -> int:
        """Notes that the run waits for values of an island; returns the number to end the wait with."""
        self._following += 1
        self._waits[self._following] = self.run, island, time.monotonic()
        return self._following

    def end(self, number: int) -> None:
        self._waits.pop(number, None)

    def late(self, now: float) -> list[tuple[int, str]]:
        """Returns runs and the islands whose values are late for them. Each is reported again after the same time."""
        waits = self._waits.copy() if self.limit else {}
        self._reported = {number: at for number, at in self._reported.items() if number in waits}
        found: list[tuple[int, str]] = []
        for number, (run, island, since) in waits.items():
            if now - self._reported.get(number, since) > self.limit:
                found.append((run, island))
                self._reported[number] = now
        return found
