"""Values of other hosts that runs here wait for, and since when: a network may lose them without a word."""

import threading
import time
from dataclasses import dataclass, field

from pathways.runtime.time_limits import time_limit

TIMEOUT = "PATHWAYS_TRANSFER_TIMEOUT"
"""The environment variable for the seconds after which a controller is told that a value does not come."""


@dataclass(eq=False)
class AwaitedValues:
    """What the run that is being enqueued waits for. Its thread notes it, and another looks."""

    limit: float = field(default_factory=lambda: time_limit(TIMEOUT, "30", may_be_zero=True))
    run: int = -1
    """The run that is being enqueued."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _waits: dict[int, tuple[int, str, float]] = field(default_factory=dict[int, tuple[int, str, float]])
    """Run, island and since when, by a number."""
    _following: int = 0

    def begin(self, island: str) -> int:
        """Notes that the run waits for values of an island; gives the number by which that ends."""
        with self._lock:
            self._following += 1
            self._waits[self._following] = self.run, island, time.monotonic()
            return self._following

    def end(self, number: int) -> None:
        with self._lock:
            self._waits.pop(number, None)

    def late(self, now: float) -> list[tuple[int, str]]:
        """Runs and islands for whose values they have waited too long; each is told again after as long."""
        found: list[tuple[int, str]] = []
        with self._lock:
            for number, (run, island, since) in self._waits.items() if self.limit else ():
                if now - since > self.limit:
                    found.append((run, island))
                    self._waits[number] = run, island, now
        return found
