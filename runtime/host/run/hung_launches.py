"""Ends a hang that the watchdog has proven: fails the stuck computations and all that need their results. Threads that
wait for these results then continue with an error.

A stuck execution cannot be ended in its own process. Its threads stay blocked, with devices that nothing uses any more.
But its results can be failed (`pjrt.give_up`), and with them all values that depend on them, on any island. Each such
error carries the number of the hang. The error that users see is found by this number.
"""

import itertools
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pathways.runtime.errors import Hang
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.in_flight_limit import DeviceQueue
from pathways.runtime.host.run.dependents import dependents
from pathways.runtime.host.run.runs_in_flight import Flight, Launch


@dataclass(frozen=True)
class Stuck:
    """A launch that will never be done, and the positions of its gang that wait."""

    launch: Launch
    waiting: tuple[int, ...]


@dataclass(eq=False)
class GivenUp:
    """The effects of a hang: failed launches, first the one that hangs, and lost devices with their queues."""

    number: int = field(default_factory=lambda: next(_numbers))
    stuck: list[Stuck] = field(default_factory=list[Stuck])
    lost: dict[Any, DeviceQueue] = field(default_factory=dict[Any, DeviceQueue])
    hang: Hang | None = None
    """The report of the hang. Threads that receive its errors wait for the report."""
    _published: threading.Event = field(default_factory=threading.Event)

    def lose(self, launch: Launch) -> None:
        self.lost |= zip(launch.devices, launch.queues, strict=True)

    def publish(self, hang: Hang) -> None:
        self.hang = hang
        self._published.set()

    def wait(self) -> Hang | None:
        self._published.wait()
        return self.hang


_numbers = itertools.count()
_known: dict[int, GivenUp] = {}
_MARK = re.compile(r"\[pathways hang (\d+)\]")


def hang_of(error: BaseException) -> Hang | None:
    """Finds the hang that caused an error of a device, by its number."""
    found = _MARK.search(str(error)) if _known else None
    given_up = None if found is None else _known.get(int(found[1]))
    return None if given_up is None else given_up.wait()


def give_up_run(flight: Flight, flights: Sequence[Flight], hangs: Callable[[Launch], bool]) -> GivenUp:
    """Fails the first launch of a run that is not done and `hangs`, and all that can never be done because of it.

    A launch that shares a device with it waits there, and so does its whole gang. A launch that depends on it fails
    with it. But devices of that launch that had their operands wait for the others for ever, and are lost, too.
    """
    done = GivenUp()
    _known[done.number] = done
    first = next((part for part in flight.parts() if hangs(part[1]) and _fail(done, *part, lose=True)), None)
    if first is None:  # no hanging launch is known: loses all devices of the run's launches
        for _, launch in flight.parts():
            done.lose(launch)
    else:
        _fail_dependents(done, flight, *first)
    left = sorted(((n, part, f) for f in flights for n, part in f.parts()), key=lambda of: of[0])
    found = True
    while found:
        found = False
        for number, launch, of in left:
            if not done.lost.keys().isdisjoint(launch.devices) and _fail(done, number, launch, lose=True):
                found = True
                _fail_dependents(done, of, number, launch)
    for device in done.lost:
        pjrt.keep_for_ever(device)
    return done


def _fail(done: GivenUp, number: int, launch: Launch, *, lose: bool) -> bool:
    """Fails a launch on devices where it is not done; returns whether there are any. `lose`: its gang is then lost."""
    message = f"[pathways hang {done.number}] {launch.run.name} hangs, or waits for a launch that hangs"
    are_waiting = [pjrt.give_up(device, number, message) for device in launch.devices]
    if any(are_waiting):
        done.stuck.append(Stuck(launch, tuple(i for i, waits in enumerate(are_waiting) if waits)))
        if lose:
            done.lose(launch)
    return any(are_waiting)


def _fail_dependents(done: GivenUp, flight: Flight, number: int, launch: Launch) -> None:
    """Fails launches of a run that take results of one that will never be done; in bodies, all later launches."""
    partly = len(done.stuck[-1].waiting) < len(launch.devices)
    runs = {id(run) for run in dependents(flight.plan, launch.run)}
    of_program = {n for n, _ in flight.parts_of(None)}
    for later, part in flight.parts():
        known = number in of_program and later in of_program  # for launches of a body only the order is known
        if later > number and (id(part.run) in runs if known else True):
            _fail(done, later, part, lose=partly and len(part.devices) > 1)
