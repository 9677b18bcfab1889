"""Enqueuing in waves: first all steps that wait for nothing, then those that a known value makes possible.

A regular plan is one wave. Computations that call back, and control flow that is data, are tasks: started behind the
wave that made their operands, and over when their results are known (good or poison). Several are under way at a time.
"""

import contextlib
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush
from typing import Any, Protocol, TypeAlias

from pathways.dialect.plan.arrivals import ALONE, Coming
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
    frame: Frame | None = None
    """What it comes for."""
    coming: Coming = ALONE
    """Which values of the same frame come sooner."""

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


class _Waves:
    """Waves in their order, each given when the tasks that it waits for are over.

    A task that is over is looked up in what waits for it: to go through all waves that are left, again for each value
    that comes from another host, takes as long as to launch what it is for.
    """

    def __init__(self, waves: Sequence[PreparedWave]) -> None:
        self._waves = waves
        self._over = 0
        self._ready = [at for at, wave in enumerate(waves) if not wave.needs]
        self._left = len(waves)
        self._waiting: dict[int, list[int]] = {}
        for at, wave in enumerate(waves):
            if wave.needs:
                self._await(at)

    def _await(self, at: int) -> None:
        """Puts a wave where the last of the tasks that it still waits for will look."""
        last = (self._waves[at].needs & ~self._over).bit_length() - 1
        self._waiting.setdefault(last, []).append(at)

    def is_over(self, task: int) -> None:
        self._over |= 1 << task
        for at in self._waiting.pop(task, ()):
            if self._waves[at].needs & ~self._over:
                self._await(at)
            else:
                heappush(self._ready, at)

    def take(self) -> PreparedWave | None:
        """The first that may be enqueued."""
        if not self._ready:
            return None
        self._left -= 1
        return self._waves[heappop(self._ready)]

    def __len__(self) -> int:
        return self._left


def drive(waves: Sequence[PreparedWave], frame: Frame, run: Enqueuer) -> Work:
    """Enqueues all waves, each as soon as it can be, and runs tasks to their end."""
    left = _Waves(waves)
    tasks: list[tuple[int, Work, Sequence[Pending]]] = []
    while left or tasks:
        wave = left.take()
        if wave is not None:
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
                left.is_over(number)
            else:
                tasks.append((number, work, awaited))


def wait_any(pendings: Sequence[Pending]) -> None:
    """Waits until at least one is known; for the first of them where none can be asked."""
    asked: list[Pending] = []
    for pending in pendings:
        known = pending.is_known()
        if known:
            return
        if known is not None:
            asked.append(pending)
    asked = _may_be_first(asked)
    if len(asked) < 2:
        (asked or pendings)[0].wait()
        return
    pulled = [p for p in asked if isinstance(p, Pulled)]
    if len(pulled) == len(asked) and all(p.helped.has_helper for p in pulled):
        _first_of([p.helped for p in pulled])
        return
    pause = SHORTEST
    while not any(p.is_known() for p in asked):
        time.sleep(pause)
        pause = min(2 * pause, LONGEST)


def _may_be_first(pendings: list[Pending]) -> list[Pending]:
    """Leaves out what comes behind others of these: one value is waited for without a helper."""
    if len(pendings) < 2:
        return pendings
    coming: dict[int, int] = {}
    for p in pendings:
        if isinstance(p, Pulled):
            coming[id(p.frame)] = coming.get(id(p.frame), 0) | p.coming.bit
    return [p for p in pendings if not (isinstance(p, Pulled) and p.coming.behind & coming[id(p.frame)])]


def _first_of(waits: Sequence[SharedWait]) -> None:
    gate = Gate()
    for wait in waits:
        wait.add(gate)
    try:
        gate.pass_through()
    finally:
        for wait in waits:
            wait.discard(gate)
