"""Whether the hosts of an island hang, by what all of them say: one may compute what another waits for. Pure."""

from collections.abc import Mapping, Sequence


def hangs(limit: float, idle: Sequence[float]) -> bool:
    """Whether hosts that compute nothing for so many seconds each hang, where one has stood still for `limit`."""
    return all(seconds >= limit / 2 for seconds in idle)


def roll_of(calls: Mapping[str, Sequence[str]]) -> str:
    """What each host of an island has launched, or that it has nothing to do."""
    return "\n".join(f"{name}: {line}" for name, lines in calls.items() for line in lines or ["nothing runs there"])
