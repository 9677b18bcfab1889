"""Values of other hosts that runs here wait for, and since when: a network may lose them without a word."""

import time
from dataclasses import dataclass, field

from pathways.runtime.time_limits import time_limit

TIMEOUT = "PATHWAYS_TRANSFER_TIMEOUT"
"""The environment variable for the seconds after which a controller is told that a value does not come."""


@dataclass(eq=False)
class AwaitedValues:
    """What the run that is being enqueued waits for. Its thread notes it, and another looks: no lock, for each value
    that comes, since both read and change a dictionary as a whole.
    """

    limit: float = field(default_factory=lambda: time_limit(TIMEOUT, "30", may_be_zero=True))
    run: int = -1
    """The run that is being enqueued."""
    _waits: dict[int, tuple[int, str, float]] = field(default_factory=dict[int, tuple[int, str, float]])
    """Run, island and since when, by a number."""
    _told: dict[int, float] = field(default_factory=dict[int, float])
    """When the controller was told last, by the same number. Of the thread that looks."""
    _following: int = 0

    def begin(self, island: str) -> int:
        """Notes that the run waits for values of an island; gives the number by which that ends."""
        self._following += 1
        self._waits[self._following] = self.run, island, time.monotonic()
        return self._following

    def end(self, number: int) -> None:
        self._waits.pop(number, None)

    def late(self, now: float) -> list[tuple[int, str]]:
        """Runs and islands for whose values they have waited too long; each is told again after as long."""
        waits = self._waits.copy() if self.limit else {}
        self._told = {number: at for number, at in self._told.items() if number in waits}
        found: list[tuple[int, str]] = []
        for number, (run, island, since) in waits.items():
            if now - self._told.get(number, since) > self.limit:
                found.append((run, island))
                self._told[number] = now
        return found
