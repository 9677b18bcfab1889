"""Enqueues a run: first all steps that wait for no value, then further steps as soon as the values that they need are
known. A run waits for values of other hosts, results of host callbacks, and values that decide control flow. `Host` and
`load/local_engine.py` call it for each run.

A wave is a group of steps that can be enqueued without waiting. A regular plan is one wave. Computations with host
callbacks, and control flow on data, are tasks. A task starts after the wave that made its operands. It completes when
its results are known (good or poison). Several tasks may be active at a time.
"""

import contextlib
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush
from typing import Protocol, TypeAlias

from pathways.dialect.plan.inbound_values import UNORDERED, InboundValue
from pathways.runtime.host.between.eager_values import Sent
from pathways.runtime.host.between.inbox import EagerMessage, wait_for_first
from pathways.runtime.host.devices.layouts import Shards
from pathways.runtime.host.devices.pjrt import FAILURES
from pathways.runtime.host.devices.waits import SharedWait
from pathways.runtime.host.run.enqueuer import Enqueuer
from pathways.runtime.host.run.frame import Frame, Part
from pathways.runtime.monitor import Gate

MIN_POLL_INTERVAL_S, MAX_POLL_INTERVAL_S = 20e-6, 1e-3
"""Limits of the time between two polls of several pending values, if not all of them can wake the waiting thread."""


class Pending(Protocol):
    """A value or an outcome that is not known yet."""

    def is_known(self) -> bool | None:
        """Returns whether it is known; None if that cannot be polled, only waited for."""
        ...

    def wait(self) -> None: ...


@dataclass(frozen=True, eq=False)
class Pulled:
    """Pieces in transit from another host. They arrive or fail, whatever happens to the run."""

    pieces: Shards
    frame: Frame | None = None
    """The frame that receives the pieces."""
    inbound: InboundValue = UNORDERED
    """The values of the same frame that arrive earlier."""

    @cached_property
    def helped(self) -> "SharedWait | EagerMessage":
        """The event that wakes waiting threads: the message if the pieces are pushed, else a helper thread.

        Waking is about half a hop faster than polling.
        """
        return self.message or SharedWait(self.pieces)

    @property
    def message(self) -> EagerMessage | None:
        """The message with the pieces, if they are pushed."""
        only = self.pieces[0] if len(self.pieces) == 1 else None
        return only.message if isinstance(only, Sent) else None

    def is_known(self) -> bool:
        return self.pieces.is_ready()

    def wait(self) -> None:
        with contextlib.suppress(*FAILURES):  # joining the pieces raises the error
            self.pieces.block_until_ready()


Work: TypeAlias = Generator[Sequence[Pending], None, None]
"""Work that yields the pending values it waits for, and is resumed when any of them is known."""


class Task(Protocol):
    """Work whose outcome becomes known some time after it was started."""

    def start(self, frame: Frame, run: Enqueuer) -> Work: ...


@dataclass(eq=False)
class PreparedWave:
    """Steps and tasks that may be enqueued when certain tasks have completed. Bit n of `needs`: task number n."""

    needs: int
    parts: list[Part]
    tasks: list[tuple[int, Task]] = field(default_factory=list[tuple[int, Task]])
    asks: bool = False
    """Whether the wave only requests values of other hosts."""


class _Waves:
    """Waves in order, each available when the tasks that it needs have completed.

    A completed task is looked up in a map of waiting waves. A scan of all remaining waves for each value from another
    host would take as long as the launch that needs the value.
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
        """Registers a wave at the last task that it still waits for."""
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
        """Returns the first wave that may be enqueued, or None."""
        if not self._ready:
            return None
        self._left -= 1
        return self._waves[heappop(self._ready)]

    def __len__(self) -> int:
        return self._left


@dataclass(eq=False, slots=True)
class _Begun:
    """An active task, and the values that it waits for."""

    number: int
    work: Work
    awaited: Sequence[Pending] = ()
    inbound: InboundValue = UNORDERED


class _UnderWay:
    """The active tasks of one frame. A value that arrives after others is not polled before those have arrived.

    Polling each value that was requested ahead, again and again, would take a twentieth of a hop.
    """

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._polled: list[_Begun] = []
        self._delayed: dict[int, list[_Begun]] = {}
        """The other tasks, by the last bit of the awaited values that arrive before theirs."""
        self._awaited_bits = 0
        """The bits of all values that are awaited."""

    def __bool__(self) -> bool:
        return bool(self._polled or self._delayed)

    def add(self, task: _Begun, awaited: Sequence[Pending]) -> None:
        task.awaited, task.inbound = awaited, UNORDERED
        if len(awaited) == 1 and isinstance(value := awaited[0], Pulled) and value.frame is self._frame:
            task.inbound = value.inbound
            self._awaited_bits |= value.inbound.bit
        self._place(task)

    def _place(self, task: _Begun) -> None:
        before = task.inbound.after & self._awaited_bits
        if before:
            self._delayed.setdefault(before.bit_length() - 1, []).append(task)
        else:
            self._polled.append(task)

    @property
    def awaited(self) -> Sequence[Pending]:
        return [pending for task in self._polled for pending in task.awaited]

    def take(self) -> Sequence[_Begun]:
        """Returns the tasks with a value that is known now; the first task if no value can be tasks."""
        tasks = self._polled
        taken = tasks if len(tasks) == 1 else [t for t in tasks if any(p.is_known() for p in t.awaited)]
        taken = taken or tasks[:1]
        self._polled = [task for task in tasks if task not in taken]
        for task in taken:
            if bit := task.inbound.bit:
                self._awaited_bits &= ~bit
                for other in self._delayed.pop(bit.bit_length() - 1, ()):
                    self._place(other)
        return taken


def drive(waves: Sequence[PreparedWave], frame: Frame, run: Enqueuer) -> Work:
    """Enqueues each wave as soon as possible, and runs all tasks to their end."""
    left, tasks = _Waves(waves), _UnderWay(frame)
    while left or tasks:
        wave = left.take()
        if wave is not None:
            if frame.unsent and not wave.asks:
                _send_unsent(frame, ())
            for part in wave.parts:
                run.enqueue(part, frame, last=not left and part is wave.parts[-1])
            begun: Sequence[_Begun] = [_Begun(number, task.start(frame, run)) for number, task in wave.tasks]
        else:
            awaited = tasks.awaited
            if frame.unsent:
                _send_unsent(frame, awaited)
            yield awaited
            begun = tasks.take()
        for task in begun:
            awaited = next(task.work, None)
            if awaited is None:
                left.is_over(task.number)
            else:
                tasks.add(task, awaited)
    if frame.unsent:
        _send_unsent(frame, ())


def enqueue_wave(wave: PreparedWave, frame: Frame, run: Enqueuer) -> None:
    """Enqueues the only wave of a frame, and none of its tasks. Without tasks, does the same as `drive`."""
    for part in wave.parts:
        run.enqueue(part, frame, last=part is wave.parts[-1])
    if frame.unsent:
        _send_unsent(frame, ())


def _send_unsent(frame: Frame, awaited: Sequence[Pending]) -> None:
    """Sends values; on this thread if all awaited values can arrive only after them: a hop is then a tenth shorter."""
    unsent, frame.unsent = frame.unsent, []
    for bit, values in unsent:
        are_after = [isinstance(p, Pulled) and p.frame is frame and bool(p.inbound.sent & bit) for p in awaited]
        if are_after and all(are_after):
            values.send()
        else:
            values.leave()


def wait_any(pendings: Sequence[Pending]) -> None:
    """Waits until at least one is known; waits for the first of them if none can be polled."""
    if len(pendings) == 1:
        pendings[0].wait()
        return
    pollable: list[Pending] = []
    for pending in pendings:
        known = pending.is_known()
        if known:
            return
        if known is not None:
            pollable.append(pending)
    if len(pollable) < 2:
        (pollable or pendings)[0].wait()
        return
    pulled = [p for p in pollable if isinstance(p, Pulled)]
    messages = [message for p in pulled if (message := p.message) is not None]
    if len(messages) == len(pollable) and wait_for_first(messages):
        return
    if len(pulled) == len(pollable) and all(p.helped.has_helper for p in pulled):
        _first_of([p.helped for p in pulled])
        return
    pause = MIN_POLL_INTERVAL_S
    while not any(p.is_known() for p in pollable):
        time.sleep(pause)
        pause = min(2 * pause, MAX_POLL_INTERVAL_S)


def _first_of(waits: "Sequence[SharedWait | EagerMessage]") -> None:
    gate = Gate()
    for wait in waits:
        wait.add(gate)
    try:
        gate.pass_through()
    finally:
        for wait in waits:
            wait.discard(gate)
