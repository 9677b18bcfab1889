"""Reads from a profile of XLA's profiler when each device worked on which computation. `pjrt.py` calls it for
`pw.trace`. Pure functions.

On CPU, an event of a device's work states launch and device. On GPU, each device has its own plane for its kernels.
A kernel carries the number of the driver call that started it. That driver call lies inside the event of an execution,
which states the launch. Both are in the same thread, or the execution has passed the call on to another thread.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Spans: TypeAlias = dict[tuple[int, int], tuple[float, float]]
"""First start and last end, in nanoseconds, of each (launch id, device ordinal)."""

_TELLING = frozenset({"run_id", "correlation_id", "_ct"})
_DEVICE = re.compile(r"/device:GPU:(\d+)")
"""The name of the plane that holds the kernels of one GPU."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a profile; times in nanoseconds of the profiler's clock."""

    plane: str
    line: tuple[int, int]
    """The numbers of the plane and of the line in it. A line is one thread, or one queue of a device."""
    name: str
    begin: float
    end: float
    stats: Mapping[str, Any]


def read_events(planes: Iterable[Any], anchor: str) -> list[Event]:
    """Reads the events of a profile that describe launches, and the events whose name starts with `anchor`."""
    found: list[Event] = []
    for p, plane in enumerate(planes):
        for n, line in enumerate(plane.lines):
            for event in line.events:
                name, stats = str(event.name), dict[str, Any](event.stats)
                if not _TELLING.isdisjoint(stats) or name.startswith(anchor):
                    found.append(Event(str(plane.name), (p, n), name, event.start_ns, event.end_ns, stats))
    return found


def launch_spans(events: Sequence[Event]) -> Spans:
    """Finds when each device worked on each launch, as far as the platform records it."""
    spans: Spans = {}
    for launch, ordinal, event in (*_stated(events), *_by_driver_calls(events)):
        begin, end = spans.get((launch, ordinal), (float("inf"), 0.0))
        spans[launch, ordinal] = min(begin, event.begin), max(end, event.end)
    return spans


def _stated(events: Sequence[Event]) -> Iterator[tuple[int, int, Event]]:
    for event in events:
        if "run_id" in event.stats and "device_ordinal" in event.stats:
            yield int(event.stats["run_id"]), int(event.stats["device_ordinal"]), event


def _by_driver_calls(events: Sequence[Event]) -> Iterator[tuple[int, int, Event]]:
    calls = _launches_of_calls(events)
    for event in events:
        on_device = _DEVICE.match(event.plane)
        launch = calls.get(event.stats.get("correlation_id"))
        if on_device is not None and launch is not None:
            yield launch, int(on_device[1]), event


def _launches_of_calls(events: Sequence[Event]) -> dict[Any, int]:
    """Maps the number of each driver call to its launch id."""
    handed = {
        (event.stats["_pt"], event.stats["_p"]): int(event.stats["run_id"])
        for event in events
        if {"run_id", "_pt", "_p"} <= event.stats.keys()
    }
    found: dict[Any, int] = {}
    inside: dict[tuple[int, int], tuple[float, int]] = {}
    """By thread: the end of the current execution, and its launch id."""
    for event in sorted(events, key=lambda e: (e.begin, -e.end)):
        if _DEVICE.match(event.plane):
            continue
        stats = event.stats
        launch = stats.get("run_id", handed.get((stats.get("_ct"), stats.get("_c"))))
        if launch is not None:
            inside[event.line] = event.end, int(launch)
        until, launch = inside.get(event.line, (0.0, 0))
        if "correlation_id" in stats and event.begin < until:
            found[stats["correlation_id"]] = launch
    return found
