"""Times ways of doing one thing against each other: in turns, so that a noisy minute is noisy for all."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


def medians(ways: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each way. In its turn each is done three times, the first untimed: whatever ran before it
    leaves threads that still spin, and the very first one compiles."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            way()
            for _ in range(2):
                begin = time.perf_counter()
                way()
                times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(found) for name, found in times.items()}
