"""Runs loops and branches that depend on data: waits for the value that decides, then enqueues the chosen body. Each
run of a body has its own buffers. `progress.py` runs it as part of a run.

`load/steps.py` and `load/bodies.py` prepare it.
"""

from collections import Counter
from collections.abc import Callable, Generator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from pathways.dialect.diagnostics import Diagnostic
from pathways.dialect.plan.instructions import Branch
from pathways.runtime.errors import failed_because
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.run.decisions import Deciding, RunDecisions, iteration_name
from pathways.runtime.host.run.enqueuer import Enqueuer
from pathways.runtime.host.run.frame import Frame
from pathways.runtime.host.run.hung_launches import hang_of
from pathways.runtime.host.run.poison import Poison
from pathways.runtime.host.run.progress import Pending, PreparedWave, Work, drive, enqueue_wave
from pathways.runtime.host.run.runs_in_flight import Launch
from pathways.runtime.host.run.single_launch import SingleLaunch, single_launch

Values: TypeAlias = list[Any]
"""Arrays, or poison in their place; None for values on another host."""
Working: TypeAlias = Generator[Sequence[Pending], None, Values]
MAX_TURNS_AT_ONCE = 16
"""Maximum number of turns of a loop that run before other work of the same run gets a chance to be enqueued."""


@dataclass(frozen=True, eq=False)
class LoadedBody:
    """A body that is ready to run any number of times.

    Slots are those of the body. Slot -1 is an operand that the body does not read, or a value of another host.
    `overwritten` are the operands that the body donates to its computations.
    """

    waves: Sequence[PreparedWave]
    launches: Sequence[Launch]
    size: int
    inputs: Sequence[int]
    results: Sequence[int]
    constants: Sequence[tuple[int, Any]]
    overwritten: frozenset[int] = frozenset()

    @cached_property
    def is_simple(self) -> bool:
        """Whether the body awaits nothing."""
        return len(self.waves) == 1 and not self.waves[0].tasks

    @cached_property
    def _single(self) -> SingleLaunch | None:
        """The launch of a simple body that makes only one."""
        parts = self.waves[0].parts
        return single_launch(parts[0].steps, self.constants, self.inputs, self.results) if len(parts) == 1 else None

    def run(self, operands: Values, dispatch: Enqueuer, around: Frame | None = None, transfers: int = 0) -> Working:
        """Enqueues the body; yields the values that it awaits. Empties `operands`, which may hold the last references.

        `around` is the frame of the enclosing run, on a host. `transfers` is 0 if no value goes between hosts.
        """
        frame = self._frame(operands, dispatch, around, transfers)
        whole = False
        try:
            yield from drive(self.waves, frame, dispatch)
            whole = True
        finally:
            dispatch.ends_with(self, frame, whole=whole)
        return self._results(frame)

    def run_at_once(
        self, operands: Values, dispatch: Enqueuer, around: Frame | None = None, transfers: int = 0
    ) -> Values:
        """Enqueues a simple body, and returns its results. Empties `operands`."""
        if self._single is not None and not dispatch.all_observers:
            return dispatch.launch(self, self.launches, self._single, operands)
        frame = self._frame(operands, dispatch, around, transfers)
        whole = False
        try:
            enqueue_wave(self.waves[0], frame, dispatch)
            whole = True
        finally:
            dispatch.ends_with(self, frame, whole=whole)
        return self._results(frame)

    def _frame(self, operands: Values, dispatch: Enqueuer, around: Frame | None, transfers: int) -> Frame:
        """Makes the frame of one run, and moves the operands into it."""
        frame = Frame(self.size, self.constants, dispatch.begin(self, self.launches), transfers)
        if around is not None:
            frame.decisions, frame.sources = around.decisions, around.sources
        values = frame.values
        for index, value in zip(self.inputs, operands):  # noqa: B905 -- `strict` takes longer than the loop
            if index >= 0:
                values[index] = value
        operands.clear()
        return frame

    def _results(self, frame: Frame) -> Values:
        return [frame.values[index] if index >= 0 else None for index in self.results]


@dataclass(frozen=True, eq=False)
class _Reading:
    """The deciding value of a branch: the number of the body to run, or whether a loop continues."""

    array: Any

    def is_known(self) -> bool:
        return bool(self.array.is_ready())

    def wait(self) -> None:
        try:
            self.array.block_until_ready()
        except pjrt.FAILURES:
            return  # raised again when the value is read


@dataclass(frozen=True, eq=False)
class Choice:
    """A branch (cond or while) as a task: the slots of its operands and results.

    If other hosts have a partition of it (`is_shared`), their values have slot -1. All hosts follow one decision.
    `donated` are the operands that are not needed afterwards. Operands that a body overwrites, and results, must share
    no buffer with other values; otherwise they are copied.
    """

    branch: Branch
    number: int
    """Its number in the whole plan (dialect/plan/part.py)."""
    is_shared: bool
    island: str
    inputs: Sequence[int]
    donated: frozenset[int]
    outputs: Sequence[int]
    bodies: Sequence[LoadedBody]
    cause: Callable[[Diagnostic], Poison]
    is_here: bool = True
    """Whether this process has all devices."""
    decides: bool = True
    """Whether this host sends the decision for a value on its island; one of the hosts of an island does."""

    def start(self, frame: Frame, run: Enqueuer) -> Work:
        values = frame.values
        operands = [values[i] if i >= 0 else None for i in self.inputs]
        others = {id(v) for n, v in enumerate(operands) if n not in self.donated}
        others.update(id(c) for body in self.bodies for _, c in body.constants)
        for number in self.donated:
            values[self.inputs[number]] = None
        shared = _Shared(frame, frame.decisions, self.branch.step, self.is_shared) if frame.decisions else None
        results = yield from (self._cond if self.branch.kind == "cond" else self._while)(operands, others, run, shared)
        own = self._own(results, set(range(len(results))), others)
        for index, value in zip(self.outputs, own, strict=True):
            if index >= 0:
                values[index] = value

    def _cond(self, operands: Values, others: set[int], run: Enqueuer, shared: "_Shared | None") -> Working:
        number = yield from self._decided(operands[0], shared)
        if isinstance(number, Poison):
            return [number] * len(self.outputs)
        return (yield from _run(self.bodies[number], operands[1:], run, shared))

    def _while(self, operands: Values, others: set[int], run: Enqueuer, shared: "_Shared | None") -> Working:
        test, body = self.bodies
        count = len(operands) - len(self.outputs)
        fixed, carried = operands[:count], operands[count:]
        operands.clear()
        overwritten = {i - count for i in body.overwritten}
        tests_at_once, runs_at_once = (shared is None and one.is_simple for one in self.bodies)
        turn = 0
        while True:
            turn += 1
            taken = [*fixed, *carried]
            (still,) = test.run_at_once(taken, run) if tests_at_once else (yield from _run(test, taken, run, shared))
            goes_on = self._known(still, run) if shared is None and turn % MAX_TURNS_AT_ONCE else None
            if goes_on is None:
                goes_on = yield from self._decided(still, shared)
            if isinstance(goes_on, Poison):
                return [goes_on] * len(self.outputs)
            if not goes_on:
                return carried
            given = [*fixed, *self._own(carried, overwritten, others)]
            carried.clear()
            carried = body.run_at_once(given, run) if runs_at_once else (yield from _run(body, given, run, shared))

    def _known(self, array: Any, run: Enqueuer) -> int | Poison | None:
        """Returns the deciding value if it is known and nothing waits for this run; else None."""
        if isinstance(array, Poison) or not array.is_ready() or not run.may_go_on:
            return None
        return self._number(array)

    def _decided(self, array: Any, shared: "_Shared | None") -> Generator[Sequence[Pending], None, int | Poison]:
        """Waits for the deciding value, also of another host: the number of a body, or whether a loop continues."""
        if shared is None or not shared.is_shared:
            found = yield from self._read(array)
            return (shared.decisions.cancelled if shared is not None else None) or found
        name = shared.next_name()
        shared.decisions.expect(name, shared.loop)
        if array is not None and self.decides:
            shared.decisions.report(self.number, shared.loop, name, (yield from self._read(array)))
        else:
            shared.decisions.reach(self.number, shared.loop)
        yield (Deciding(shared.decisions, name),)
        return shared.decisions.take(name)

    def _read(self, array: Any) -> Generator[Sequence[Pending], None, int | Poison]:
        """Waits for the number in an array; returns it, or the poison in its place."""
        if isinstance(array, Poison):
            return array
        yield (_Reading(array),)
        return self._number(array)

    def _number(self, array: Any) -> int | Poison:
        try:
            return min(max(int(pjrt.read_replica(array, is_here=self.is_here)), 0), len(self.bodies) - 1)
        except pjrt.FAILURES as error:
            branch = self.branch
            failed = failed_because(
                f"the condition of {branch.name}", island=self.island, cause=str(error), where=branch.where
            )
            return self.cause(hang_of(error) or failed)

    def _own(self, values: Values, which: Set[int], others: set[int]) -> Values:
        """Copies each value of `which` that shares a buffer with `others` or another value.

        Returns all values: the same list if nothing is copied.
        """
        if not which:
            return values
        ids = list(map(id, values))
        if others.isdisjoint(ids) and len(set(ids)) == len(ids):
            return values
        own, counts = list(values), Counter(ids)
        for i in which:
            value = own[i]
            if (id(value) in others or counts[id(value)] > 1) and pjrt.is_array(value):
                counts[id(value)] -= 1
                own[i] = pjrt.copy_again(value)
        return own


class _Shared:
    """One run of a branch on a host. Each of its decisions and body runs has a name that is the same on all hosts."""

    def __init__(self, frame: Frame, decisions: RunDecisions, step: int, is_shared: bool) -> None:
        self.frame = frame
        self.decisions = decisions
        self.is_shared = is_shared
        self._step, self._iteration = step, 0
        self.loop = iteration_name(frame.transfers, step, 0) if is_shared else 0

    def next_name(self) -> int:
        if not self.is_shared:
            return 0
        self._iteration += 1
        return iteration_name(self.frame.transfers, self._step, self._iteration)


def _run(body: LoadedBody, operands: Values, run: Enqueuer, shared: _Shared | None) -> Working:
    frame, name = (None, 0) if shared is None else (shared.frame, shared.next_name())
    if body.is_simple:
        return body.run_at_once(operands, run, frame, name)
    return (yield from body.run(operands, run, frame, name))
