"""Detects lost hosts, hangs and failed connections between hosts, from the messages that hosts send. The controller of
a cluster calls it regularly; clients detect a lost controller with it.

All functions are pure, except for one that reads a setting.
"""

import itertools
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.runtime.time_limits import MAX_POLL_GAP_S, time_limit
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import NoDataArrives

TIMEOUT = "PATHWAYS_HOST_TIMEOUT"
"""The environment variable for the heartbeat timeout in seconds."""


def host_timeout() -> float:
    """Returns the heartbeat timeout. Raises PWC0707 for an invalid setting."""
    return time_limit(TIMEOUT, "10")


class HeartbeatMonitor:
    """Detects heartbeat timeouts at each poll. Time in which this process itself was stopped does not count."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._last: float | None = None
        self._excused = float("-inf")

    def judge(self, now: float, last_received: Mapping[str, float]) -> dict[str, float]:
        """Returns the seconds since the last message of each timed-out host. `heard`: times of last messages."""
        if self._last is not None and now - self._last > MAX_POLL_GAP_S:
            self._excused = now
        self._last = now
        elapsed = {name: now - max(when, self._excused) for name, when in last_received.items()}
        return {name: seconds for name, seconds in elapsed.items() if seconds > self._timeout}


def hangs(limit: float, idle: Sequence[float]) -> bool:
    """Whether hosts with these idle seconds hang, if one of them has made no progress for `limit` seconds."""
    return all(seconds >= limit / 2 for seconds in idle)


def roll_of(calls: Mapping[str, Sequence[str]]) -> str:
    """Formats a hang report: what each host of an island has launched, or that nothing runs there."""
    return "\n".join(f"{name}: {line}" for name, lines in calls.items() for line in lines or ["no run in flight"])


MAX_MENDED = 256
"""Maximum number of repaired connections that are remembered, as (run, island, island); the oldest are dropped."""


@dataclass(frozen=True, eq=False)
class Partitions:
    """Finds pairs of islands whose connection must be reset, once per run and pair, although several hosts may report
    it in both directions. A second reset would drop values that a later run has sent."""

    _mended: deque[tuple[int, str, str]] = field(default_factory=lambda: deque[tuple[int, str, str]](maxlen=MAX_MENDED))
    _anew: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def found(self, message: m.Missing, target: str, idle: Sequence[float]) -> NoDataArrives | None:
        """Returns the error if values do not reach an island; None if they may still be computed, or if already
        reported.

        `idle`: the seconds for which each host of the run has computed nothing.
        """
        edge = message.run, min(message.island, target), max(message.island, target)
        if not idle or not hangs(float(message.seconds), idle) or edge in self._mended:
            return None
        self._mended.append(edge)
        return NoDataArrives(source=message.island, target=target, seconds=message.seconds)

    def mends(self, cause: NoDataArrives) -> Mapping[str, m.Mend]:
        """Returns the message for each of the two islands, by name: fail transfers in progress, and reconnect."""
        text, anew = write_diagnostic(cause), next(self._anew)
        return {cause.source: m.Mend(cause.target, text, anew), cause.target: m.Mend(cause.source, text, anew)}
