"""When a host that is not heard of is gone. Pure, but for the setting."""

from collections.abc import Mapping

from pathways.runtime.time_limits import time_limit

TIMEOUT = "PATHWAYS_HOST_TIMEOUT"
"""The environment variable for the seconds after which a host that is not heard of is gone."""
MOST_AWAY = 2.0
"""Seconds between two looks above which this process itself was stopped: what it did not hear counts for nothing."""


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
        if self._last is not None and now - self._last > MOST_AWAY:
            self._excused = now
        self._last = now
        silent = {name: now - max(when, self._excused) for name, when in heard.items()}
        return {name: seconds for name, seconds in silent.items() if seconds > self._timeout}
