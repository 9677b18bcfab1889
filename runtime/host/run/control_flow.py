"""Control flow on data: awaits the deciding value, then enqueues bodies, each time into slots of its own."""

from collections import Counter
from collections.abc import Callable, Generator, Sequence, Set
from dataclasses import dataclass
from typing import Any, TypeAlias

from pathways.dialect.diagnostics import Diagnostic
from pathways.dialect.plan.instructions import Branch
from pathways.runtime.errors import ComputationFailed
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.layouts import Side
from pathways.runtime.host.run.frame import Frame
from pathways.runtime.host.run.hung_launches import hang_behind
from pathways.runtime.host.run.progress import Enqueuer, Pending, PreparedWave, Work, drive
from pathways.runtime.host.run.runs_in_flight import Launch
from pathways.runtime.host.run.store import Poison

Values: TypeAlias = list[Any]
"""Arrays, or poison in place of them."""
Working: TypeAlias = Generator[Sequence[Pending], None, Values]


@dataclass(frozen=True, eq=False)
class LoadedBody:
    """A body that is ready to run, any number of times. Slots are its own; -1: an operand that it does not read.

    `overwritten` are the operands that it donates to its computations.
    """

    waves: Sequence[PreparedWave]
    launches: Sequence[Launch]
    size: int
    inputs: Sequence[int]
    results: Sequence[int]
    constants: Sequence[tuple[int, Any]]
    overwritten: frozenset[int] = frozenset()

    def run(self, operands: Values, dispatch: Enqueuer) -> Working:
        """Enqueues the body; yields what it awaits inside. Empties `operands`, which may hold the last references."""
        frame = Frame(self.size, self.constants, dispatch.begin(self, self.launches))
        for index, value in zip(self.inputs, operands, strict=True):
            if index >= 0:
                frame.values[index] = value
        operands.clear()
        whole = False
        try:
            yield from drive(self.waves, frame, dispatch)
            whole = True
        finally:
            dispatch.ends_with(self, [*frame.early, *frame.tokens], whole=whole)
        return [frame.values[index] for index in self.results]


@dataclass(frozen=True, eq=False)
class _Deciding:
    """The deciding value of a branch: the number of the body to run, or whether a loop goes on."""

    array: Any

    def is_known(self) -> bool:
        return bool(self.array.is_ready())

    def wait(self) -> None:
        try:
            self.array.block_until_ready()
        except pjrt.FAILURES:
            return  # raised where it is read


@dataclass(frozen=True, eq=False)
class Choice:
    """A branch (cond or while) as a task: the slots of its operands and results, and the layouts of its results.

    `donated` are the operands that are not needed afterwards. What a body overwrites, and each result, must share no
    buffer with anything else; it is copied where it does.
    """

    branch: Branch
    island: str
    inputs: Sequence[int]
    donated: frozenset[int]
    outputs: Sequence[int]
    sides: Sequence[Side]
    bodies: Sequence[LoadedBody]
    cause: Callable[[Diagnostic], Poison]

    def start(self, frame: Frame, run: Enqueuer) -> Work:
        values = frame.values
        operands = [values[i] for i in self.inputs]
        others = {id(v) for n, v in enumerate(operands) if n not in self.donated}
        others.update(id(c) for body in self.bodies for _, c in body.constants)
        for number in self.donated:
            values[self.inputs[number]] = None
        results = yield from (self._cond if self.branch.kind == "cond" else self._while)(operands, others, run)
        own = self._own(results, set(range(len(results))), others)
        for index, value in zip(self.outputs, own, strict=True):
            values[index] = value

    def _cond(self, operands: Values, others: set[int], run: Enqueuer) -> Working:
        number = yield from self._decided(operands[0])
        if isinstance(number, Poison):
            return [number] * len(self.outputs)
        chosen = self.bodies[min(max(number, 0), len(self.bodies) - 1)]
        return (yield from chosen.run(operands[1:], run))

    def _while(self, operands: Values, others: set[int], run: Enqueuer) -> Working:
        test, body = self.bodies
        count = len(operands) - len(self.outputs)
        fixed, carried = operands[:count], operands[count:]
        operands.clear()
        overwritten = {i - count for i in body.overwritten}
        while True:
            (still,) = yield from test.run([*fixed, *carried], run)
            goes_on = yield from self._decided(still)
            if isinstance(goes_on, Poison):
                return [goes_on] * len(self.outputs)
            if not goes_on:
                return carried
            given = [*fixed, *self._own(carried, overwritten, others)]
            carried.clear()
            carried = yield from body.run(given, run)

    def _decided(self, array: Any) -> Generator[Sequence[Pending], None, int | Poison]:
        """Waits for the number in an array; returns it, or the poison in its place."""
        if isinstance(array, Poison):
            return array
        yield (_Deciding(array),)
        try:
            return int(pjrt.to_host(pjrt.shard(array, 0)))
        except pjrt.FAILURES as error:
            branch = self.branch
            failed = ComputationFailed(
                computation=f"what decides {branch.name}", island=self.island, cause=str(error), where=branch.where
            )
            return self.cause(hang_behind(error) or failed)

    def _own(self, values: Values, which: Set[int], others: set[int]) -> Values:
        """Copies each value of `which` that shares a buffer with `others` or another value; returns all of them."""
        known = Counter(id(v) for v in values)
        own = list(values)
        for i in which:
            value, side = own[i], self.sides[i]
            if (id(value) in others or known[id(value)] > 1) and pjrt.is_array(value):
                known[id(value)] -= 1
                own[i] = pjrt.copy_whole(value, pjrt.device_list(side.devices), side.real)
        return own
