"""Which hosts are gone, hang, or are not reached by others, by what is heard of them. Pure, but for a setting."""

import itertools
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.runtime.time_limits import MAX_POLL_GAP_S, time_limit
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import NothingComesThrough

TIMEOUT = "PATHWAYS_HOST_TIMEOUT"
"""The environment variable for the seconds after which a host that is not heard of is gone."""


def host_timeout() -> float:
    """Reads the setting. Raises PWC0707."""
    return time_limit(TIMEOUT, "10")


class Silence:
    """Judges, look by look, which hosts have been silent for too long."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._last: float | None = None
        self._excused = float("-inf")

    def judge(self, now: float, heard: Mapping[str, float]) -> dict[str, float]:
        """Returns the hosts that are gone, and for how long they were silent; `heard` is when each last was not."""
        if self._last is not None and now - self._last > MAX_POLL_GAP_S:
            self._excused = now
        self._last = now
        silent = {name: now - max(when, self._excused) for name, when in heard.items()}
        return {name: seconds for name, seconds in silent.items() if seconds > self._timeout}


def hangs(limit: float, idle: Sequence[float]) -> bool:
    """Whether hosts that compute nothing for so many seconds each hang, where one has stood still for `limit`."""
    return all(seconds >= limit / 2 for seconds in idle)


def roll_of(calls: Mapping[str, Sequence[str]]) -> str:
    """Lists what each host of an island has launched, or that nothing runs there."""
    return "\n".join(f"{name}: {line}" for name, lines in calls.items() for line in lines or ["nothing runs there"])


MOST_MENDED = 256
"""Runs of which it is known that two of their islands were connected anew, of the last ones."""


@dataclass(frozen=True, eq=False)
class Partitions:
    """Finds two islands to connect anew, once for a run, whichever of their hosts tell of it, and of either way: what a
    later run has offered would end with the second time."""

    _mended: deque[tuple[int, str, str]] = field(
        default_factory=lambda: deque[tuple[int, str, str]](maxlen=MOST_MENDED)
    )
    _anew: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def found(self, message: m.Missing, target: str, idle: Sequence[float]) -> NothingComesThrough | None:
        """Says why values do not come to an island; None where they may be computed yet, or this was said before.

        `idle`: the seconds for which each host of the run computes nothing.
        """
        told = message.run, min(message.island, target), max(message.island, target)
        if not idle or not hangs(float(message.seconds), idle) or told in self._mended:
            return None
        self._mended.append(told)
        return NothingComesThrough(source=message.island, target=target, seconds=message.seconds)

    def mends(self, cause: NothingComesThrough) -> Mapping[str, m.Mend]:
        """What each of the two islands is told, by name: to end what is on its way, and to connect anew."""
        said, anew = write_diagnostic(cause), next(self._anew)
        return {cause.source: m.Mend(cause.target, said, anew), cause.target: m.Mend(cause.source, said, anew)}
