"""What XLA's profiler saw, as events: when each device worked on which launch. Pure.

On CPU the work of a device is an event that states launch and device. On GPU the kernels of a device are in a plane of
its own, each with the number of the driver's call that started it; and that call is inside of the event of an execution
that states its launch, in the same thread, or in a thread to which that execution has handed it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Spans: TypeAlias = dict[tuple[int, int], tuple[float, float]]
"""First start and last end of each launch id on each ordinal of a device."""

_TELLING = frozenset({"run_id", "correlation_id", "_ct"})
_DEVICE = re.compile(r"/device:GPU:(\d+)")
"""The name of a plane that has what one GPU did."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a profile; times in nanoseconds of the profiler's clock."""

    plane: str
    line: tuple[int, int]
    """Its plane and line, by number: one thread, or one queue of a device."""
    name: str
    begin: float
    end: float
    stats: Mapping[str, Any]


def read_events(planes: Iterable[Any], anchor: str) -> list[Event]:
    """Reads what tells of launches in a profile, as XLA's reader gives it, and events named `anchor`...."""
    found: list[Event] = []
    for p, plane in enumerate(planes):
        for n, line in enumerate(plane.lines):
            for event in line.events:
                name, stats = str(event.name), dict[str, Any](event.stats)
                if not _TELLING.isdisjoint(stats) or name.startswith(anchor):
                    found.append(Event(str(plane.name), (p, n), name, event.start_ns, event.end_ns, stats))
    return found


def launch_spans(events: Sequence[Event]) -> Spans:
    """Finds when each device worked on each launch, as far as the platform tells."""
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
    """Finds the launch of each call of the driver, by the number of the call."""
    handed = {
        (event.stats["_pt"], event.stats["_p"]): int(event.stats["run_id"])
        for event in events
        if {"run_id", "_pt", "_p"} <= event.stats.keys()
    }
    found: dict[Any, int] = {}
    inside: dict[tuple[int, int], tuple[float, int]] = {}
    """By thread: until when it is in which execution."""
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
