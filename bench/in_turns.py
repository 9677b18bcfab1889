"""Times ways of doing one thing in rotation, so that noise of the machine affects all of them equally."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


def medians(ways: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Returns the median seconds of each way. Each round does a way three times, the first untimed.

    The previous way leaves threads that still spin, and the very first call compiles.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            way()
            for _ in range(2):
                begin = time.perf_counter()
                way()
                times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(found) for name, found in times.items()}
