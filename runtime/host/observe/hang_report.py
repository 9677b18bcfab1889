"""Writes the report about a run that hangs: which computations are not done on which devices, and which Python
callbacks have not returned. The watchdog prints it, or sends it to the controller.
"""

import sys
import traceback
from collections import Counter
from collections.abc import Sequence

from pathways.runtime.errors import Hang, PerhapsHang
from pathways.runtime.host.devices import callbacks
from pathways.runtime.host.devices.callbacks import Inside
from pathways.runtime.host.run.hung_launches import Stuck
from pathways.runtime.host.run.runs_in_flight import Flight, Launch

MAX_CALLED = 8
"""Maximum number of lines of each kind in a hang report."""


def hang(flight: Flight, others: int, seconds: float, stuck: Sequence[Stuck]) -> Hang:
    """Describes a proven hang. `stuck` are the launches that will never be done, in order."""
    lines = [f"{s.launch.run.name} was launched on {_where(s.launch, s.waiting)}, and is not done" for s in stuck[:1]]
    if not stuck:
        lines.append("no unfinished launch: a call that launches a computation has not returned")
    queued = Counter(f"queued after it: {s.launch.run.name} on {_where(s.launch, s.waiting)}" for s in stuck[1:])
    lines += [f"{line}, {count} times" if count > 1 else line for line, count in list(queued.items())[:MAX_CALLED]]
    if len(queued) > MAX_CALLED:
        lines.append(f"and {sum(list(queued.values())[MAX_CALLED:])} more")
    return Hang(
        seconds=f"{seconds:g}",
        program=flight.plan.name,
        run=flight.number,
        client=flight.client,
        calls="\n".join([*lines, *_callbacks()]),
        others=_others(others),
        where=stuck[0].launch.run.where if stuck else None,
    )


def perhaps(flight: Flight, others: int, seconds: float) -> PerhapsHang:
    """Describes a suspected hang. Queries no device, because a query cancels the launch."""
    launches = [launch for _, launch in flight.parts()]
    lines = [
        f"{launch.run.name} was launched on {_where(launch)}, and may still run" for launch in launches[-MAX_CALLED:]
    ]
    return PerhapsHang(
        seconds=f"{seconds:.0f}",
        program=flight.plan.name,
        run=flight.number,
        client=flight.client,
        calls="\n".join([*lines, *_callbacks()]) or "nothing was launched yet",
        others=_others(others),
        where=launches[-1].run.where if launches else None,
    )


def not_done(flight: Flight) -> list[Stuck]:
    """Returns the last launches of a run, which may not be done. Queries no device."""
    return [Stuck(launch, tuple(range(len(launch.devices)))) for _, launch in flight.parts()[-1:]]


def unreachable(flight: Flight) -> PerhapsHang:
    """Describes a thread that waits inside of XLA for devices that are lost."""
    return PerhapsHang(
        seconds="some",
        program=flight.plan.name,
        run=flight.number,
        client=flight.client,
        calls="its devices are lost, and the thread that enqueues the run waits for them inside XLA forever",
        others="the thread ends only with the process",
        where=None,
    )


def _callbacks() -> list[str]:
    return [_inside(call) for call in list(callbacks.inside())[:MAX_CALLED]]


def _inside(call: Inside) -> str:
    frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
    stack = frames.get(call.thread)
    at = traceback.extract_stack(stack)[-1] if stack is not None else None
    place = f" at {at.filename}:{at.lineno} in {at.name}" if at is not None else ""
    return f"a host callback of {call.computation} has not returned for {call.seconds:.1f} s{place}"


def _where(launch: Launch, waiting: Sequence[int] | None = None) -> str:
    """Names the devices of a launch; if some of them are done, only the others."""
    count = len(launch.devices)
    if waiting is not None and len(waiting) < count:
        return f"devices {', '.join(map(str, waiting))} of {count} of {launch.island}"
    return f"{f'all {count} devices' if count > 1 else 'the device'} of {launch.island}"


def _others(count: int) -> str:
    return f"{count} other run{'s' * (count > 1)} in flight" if count else "no other run in flight"
