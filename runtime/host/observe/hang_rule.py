"""Decides if a run without progress hangs for certain, may hang, or is only slow. `watchdog.py` calls it at each poll.
It uses no clock and no threads, so that it can be tested alone.

A busy device is no hang. A hang is proven if nothing computes for as long as the run makes no progress. That is, the
whole process, or the host callback that the run waits in, uses no CPU time. Time in which the process was stopped
(Ctrl-Z, a debugger, a closed laptop) is not counted.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """The verdict of one poll of a run."""

    FINE = "it gets on, or its devices compute"
    SUSPECTED = "it does not get on, and whether its devices compute cannot be told"
    HUNG = "it does not get on, and nothing computes"


@dataclass(frozen=True)
class Evidence:
    """The findings of one poll of a run, in seconds that the process was awake."""

    still: float
    """Seconds since the run last made progress."""
    idle: float | None
    """Seconds since the process last used CPU time; None if its devices compute elsewhere (GPU, TPU)."""
    devices_idle: float | None
    """Seconds since non-Python threads last used CPU time; None as above, or if the system does not report it."""
    in_callback: float
    """Seconds for which a host callback that the run waits in has used no CPU time; 0 without one."""
    beside: bool
    """Whether other runs made progress meanwhile: the CPU time may be theirs."""


def judge(seen: Evidence, limit: float) -> Verdict:
    """Judges a run. `limit`: the seconds without progress after which a run may be called hung."""
    if seen.still < limit:
        return Verdict.FINE
    if seen.in_callback >= limit:
        return Verdict.HUNG
    if seen.idle is None:
        return Verdict.SUSPECTED
    if seen.idle >= limit:
        return Verdict.HUNG
    if seen.beside or (seen.devices_idle is not None and seen.devices_idle >= limit):
        return Verdict.SUSPECTED
    return Verdict.FINE


class Stillness:
    """Measures for how long things have not changed, in time that the process was awake.

    A gap between two polls that is longer than `longest` seconds is one in which the process was stopped.
    """

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._last: float | None = None
        self._awake = 0.0
        self._changed: dict[Hashable, tuple[object, float]] = {}

    def poll(self, now: float) -> None:
        """Starts a poll of all things, at time `now`."""
        if self._last is not None:
            self._awake += min(max(0.0, now - self._last), self._longest)
        self._last = now

    def of(self, key: Hashable, mark: object) -> float:
        """Returns the seconds since the mark of this thing last changed."""
        before = self._changed.get(key)
        if before is None or before[0] != mark:
            self._changed[key] = mark, self._awake
            return 0.0
        return self._awake - before[1]

    def keep(self, keys: set[Hashable]) -> None:
        """Forgets all other things."""
        self._changed = {k: v for k, v in self._changed.items() if k in keys}


class Doubling:
    """Decides when a suspicion is reported again: after `limit` seconds, twice as long, four times as long ..."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._next: dict[Hashable, float] = {}

    def is_due(self, key: Hashable, still: float) -> bool:
        due = self._next.get(key, self._limit)
        if still < due:
            return False
        while due <= still:
            due *= 2
        self._next[key] = due
        return True

    def keep(self, keys: set[Hashable]) -> None:
        """Forgets all other things."""
        self._next = {k: v for k, v in self._next.items() if k in keys}
