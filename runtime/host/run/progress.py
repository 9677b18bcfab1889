"""Enqueuing in waves: first all steps that wait for nothing, then those that a known value makes possible.

A regular plan is one wave. Computations that call back, and control flow that is data, are tasks: started behind the
wave that made their operands, and over when their results are known (good or poison). Several are under way at a time.
"""

import contextlib
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeAlias

from pathways.runtime.host.devices.layouts import Shards
from pathways.runtime.host.devices.pjrt import FAILURES
from pathways.runtime.host.devices.waits import Gate, SharedWait
from pathways.runtime.host.run.frame import Frame, Part
from pathways.runtime.host.run.runs_in_flight import Launch

SHORTEST, LONGEST = 20e-6, 1e-3
"""Seconds between two checks while one of several things is awaited that cannot all tell of themselves."""


class Pending(Protocol):
    """A value or an outcome that is not known yet."""

    def is_known(self) -> bool | None:
        """Returns whether it is known; None where that cannot be asked, only waited for."""
        ...

    def wait(self) -> None: ...


@dataclass(frozen=True, eq=False)
class Pulled:
    """Pieces that are on their way from another host: they come, or fail, whatever becomes of the run."""

    pieces: Shards

    @cached_property
    def helped(self) -> SharedWait:
        """A helper's wait for them: to be woken is sooner than to look again and again, by half a hop."""
        return SharedWait(self.pieces)

    def is_known(self) -> bool:
        return self.pieces.is_ready()

    def wait(self) -> None:
        with contextlib.suppress(*FAILURES):  # joining them raises it
            self.pieces.block_until_ready()


Work: TypeAlias = Generator[Sequence[Pending], None, None]
"""Work that yields the things it waits for, and is resumed when any of them is known."""


class Enqueuer(Protocol):
    """One run while it is enqueued (dispatch.py)."""

    def begin(self, who: Any, launches: Sequence[Launch]) -> int:
        """Takes launch ids for what the program (None) or a body launches; returns the first."""
        ...

    def enqueue(self, part: Part, frame: Frame, *, last: bool) -> None: ...

    def ends_with(self, who: Any, frame: Frame, *, whole: bool) -> None:
        """Notes the tokens of a body's last launches. `whole`: it ran to its end; its earlier runs are done before."""
        ...


class Task(Protocol):
    """Work whose outcome becomes known some time after it was started."""

    def start(self, frame: Frame, run: Enqueuer) -> Work: ...


@dataclass(eq=False)
class PreparedWave:
    """What may be enqueued when certain tasks are over. Bit n of `needs`: the task with number n."""

    needs: int
    parts: list[Part]
    tasks: list[tuple[int, Task]] = field(default_factory=list[tuple[int, Task]])


def drive(waves: Sequence[PreparedWave], frame: Frame, run: Enqueuer) -> Work:
    """Enqueues all waves, each as soon as it can be, and runs tasks to their end."""
    over = 0
    left = list(waves)
    tasks: list[tuple[int, Work, Sequence[Pending]]] = []
    while left or tasks:
        wave = next((w for w in left if not w.needs & ~over), None)
        if wave is not None:
            left.remove(wave)
            for part in wave.parts:
                run.enqueue(part, frame, last=not left and part is wave.parts[-1])
            begun = [(number, task.start(frame, run), ()) for number, task in wave.tasks]
        else:
            yield [pending for _, _, pendings in tasks for pending in pendings]
            begun = [t for t in tasks if any(p.is_known() for p in t[2])] or tasks[:1]
            tasks = [t for t in tasks if t not in begun]
        for number, work, _ in begun:
            awaited = next(work, None)
            if awaited is None:
                over |= 1 << number
            else:
                tasks.append((number, work, awaited))


def wait_any(pendings: Sequence[Pending]) -> None:
    """Waits until at least one is known; for the first of them where none can be asked."""
    asked = [p for p in pendings if p.is_known() is not None]
    if len(asked) < 2:
        (asked or list(pendings))[0].wait()
        return
    pulled = [p for p in asked if isinstance(p, Pulled)]
    if len(pulled) == len(asked) and all(p.helped.has_helper for p in pulled):
        _first_of([p.helped for p in pulled])
        return
    pause = SHORTEST
    while not any(p.is_known() for p in asked):
        time.sleep(pause)
        pause = min(2 * pause, LONGEST)


def _first_of(waits: Sequence[SharedWait]) -> None:
    gate = Gate()
    for wait in waits:
        wait.add(gate)
    try:
        gate.pass_through()
    finally:
        for wait in waits:
            wait.discard(gate)
