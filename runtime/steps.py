"""Instructions prepared for devices: each a function of a run's slots that never waits for data.

A run's slots are a list: the buffers of all islands, what is on its way between islands, and last of all the tokens of
the launches after which nothing of this run is left in a device's queue.
"""

import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, TypeAlias

from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.host_callbacks import find
from pathways.dialect.plan import Computation, Copy, Free, Instruction, Layout, Plan, Recv, Run, Send
from pathways.runtime import alone, pjrt, transfers
from pathways.runtime.callbacks import Watched, result_types
from pathways.runtime.credit import Gang
from pathways.runtime.defer import Await, Ordered
from pathways.runtime.errors import ComputationFailed, UnknownCallback
from pathways.runtime.executables import Executables
from pathways.runtime.flights import Launch
from pathways.runtime.machine import PhysicalIsland
from pathways.runtime.store import Poison, lost_among
from pathways.runtime.validate import effects

Slots: TypeAlias = list[Any]
Step: TypeAlias = Callable[[Slots, int], None]
"""One prepared instruction: of the slots, and of the first launch id of the run."""
TURN = 32
"""Steps that a run enqueues before it lets others go first."""


@dataclass(eq=False)
class Awaited:
    """A computation that calls back to the host, and may fail: what depends on it waits."""

    run: Run
    island: str
    outputs: list[int]
    callbacks: Sequence[Watched]
    mark: int
    """The slot that says how many exceptions there were before, and when it is done everywhere; -1: no callbacks."""

    def is_known(self, slots: Slots) -> bool:
        values = [slots[i] for i in self.outputs]
        return bool(values) and all(isinstance(v, Poison) or v.is_ready() for v in values)

    def wait(self, slots: Slots) -> None:
        """Returns when its results are known; if it failed anywhere, its whole gang's are poison."""
        launched: _Launched | None = slots[self.mark] if self.mark >= 0 else None
        if any(isinstance(slots[i], Poison) for i in self.outputs) or (self.mark >= 0 and launched is None):
            return
        problem: Exception | None = None
        try:
            if launched is not None:
                for token in launched.tokens:
                    token.block_until_ready()
            for index in self.outputs:
                slots[index].block_until_ready()
        except pjrt.FAILURES as error:
            problem = error
        raised = self._raised(launched)
        if problem is None and raised is None:
            return
        poison = Poison(failed(self.run, self.island, problem or raised or Exception(), raised))
        for index in self.outputs:
            slots[index] = poison
        if not self.outputs:  # nobody will ever read it
            print(poison.error(), file=sys.stderr)

    def _raised(self, launched: "_Launched | None") -> Exception | None:
        """An exception since the launch; of another run of the same plan that overlaps, perhaps."""
        if launched is None:
            return None
        found = (e for c, n in zip(self.callbacks, launched.before, strict=True) for e in c.errors[n:])
        return next(found, None)


@dataclass(frozen=True, eq=False)
class _Launched:
    """A computation with callbacks was launched: exceptions of each before, and tokens of its end."""

    before: list[int]
    tokens: list[Any]


@dataclass(frozen=True, eq=False)
class Prepared:
    """What a step does, for those who look closer than the hot path: its instruction, and the slots it changes."""

    instruction: Instruction
    island: PhysicalIsland
    devices: tuple[pjrt.Device, ...] = ()
    outputs: Sequence[int] = ()
    gone: Sequence[int] = ()
    launch: int = -1
    """Its launch id, less the first of the run."""

    def fail(self, slots: Slots, poison: Poison) -> None:
        """In place of the step: its results are poison."""
        for index in self.outputs:
            slots[index] = poison
        for index in self.gone:
            slots[index] = None


@dataclass(eq=False)
class Part:
    """Steps that are enqueued in one turn, and what is waited for behind them."""

    steps: list[Step] = field(default_factory=list[Step])
    prepared: list[Prepared] = field(default_factory=list[Prepared])
    awaited: Awaited | None = None


class Sides:
    """Layouts of a plan on this machine's devices; each made once, since JAX takes its time to make a sharding."""

    def __init__(self, plan: Plan, islands: Mapping[str, PhysicalIsland]) -> None:
        self.plan = plan
        self.islands = islands
        self._known: dict[Layout, transfers.Side] = {}

    def devices(self, mesh: int) -> tuple[pjrt.Device, ...]:
        spec = self.plan.meshes[mesh]
        return self.islands[spec.island].at(spec.devices) if spec.island in self.islands else ()

    def of(self, layout: Layout) -> transfers.Side:
        if layout not in self._known:
            devices = self.devices(layout.mesh)
            real = pjrt.named_sharding(self.plan.meshes[layout.mesh].spec, layout.dims, devices)
            self._known[layout] = transfers.Side(self.plan.sharding(layout), real, devices)
        return self._known[layout]


class Preparer:
    """Makes the steps of a plan in the order to enqueue. `size` is the number of slots, `launches` that of launches."""

    def __init__(self, plan: Plan, sides: Sides, executables: Executables) -> None:
        self.plan = plan
        self.launches: list[Launch] = []
        """By launch id, less the first of the run."""
        self.offsets = offsets_of(plan)
        self.types: dict[int, tuple[ArrayType, Layout]] = {
            self.offsets[s.island] + i: (b.type, b.layout) for s in plan.streams for i, b in enumerate(s.buffers)
        }
        self.size = len(self.types)
        self._sides = sides
        self._executables = executables
        self._channels: dict[int, int] = {}
        self._last: set[int] = set()
        self._watched: dict[int, list[Watched]] = {}
        """Host callbacks by step."""
        self._marks: dict[int, int] = {}
        """The slots of `_Launched`, by step."""
        self._prepared: Prepared | None = None
        self._shards = alone.kept_as_shards(plan)

    def prepare(self, order: Sequence[Ordered]) -> list[Part]:
        """One step an instruction; a free right behind the computation it waits for is part of its step."""
        self._last = self._last_launches(order)
        parts: list[Part] = [Part()]
        skip = False
        for (at, instruction), following in zip_longest(order, order[1:]):
            freed = following[1] if following is not None and following[0] == at else None
            if skip:
                skip = False
            elif isinstance(instruction, Await):
                parts[-1].awaited = self._awaited(instruction.run, at)
                parts.append(Part())
            else:
                skip = isinstance(instruction, Run) and isinstance(freed, Free)
                if len(parts[-1].steps) == TURN:
                    parts.append(Part())
                step = self._step(at, instruction, freed.slots if isinstance(freed, Free) else ())
                parts[-1].steps.append(step)
                parts[-1].prepared.append(self._prepared or self._other(at, instruction))
                self._prepared = None
        return parts

    def _other(self, at: int, instruction: Instruction) -> Prepared:
        """What a step of no computation does."""
        island = self.plan.streams[at].island
        offset = self.offsets[island]
        _, writes, drops = effects(instruction)
        return Prepared(
            instruction,
            self._sides.islands[island],
            outputs=[offset + s for s in writes],
            gone=[offset + s for s in drops],
        )

    def _awaited(self, run: Run, at: int) -> Awaited:
        watched, mark = self._watched[run.step], self._marks.get(run.step, -1)
        return Awaited(run, self.plan.streams[at].island, self._outputs(run, at), watched, mark)

    def _outputs(self, run: Run, at: int) -> list[int]:
        offset = self.offsets[self.plan.streams[at].island]
        return [offset + s for s in run.outputs]

    def _last_launches(self, order: Sequence[Ordered]) -> set[int]:
        """The launches after which some device has nothing more to do."""
        runs = [i for _, i in order if isinstance(i, Run)]
        covered: set[pjrt.Device] = set()
        last: set[int] = set()
        for number in range(len(runs) - 1, -1, -1):
            devices = self._sides.devices(runs[number].mesh)
            if not covered.issuperset(devices):
                covered.update(devices)
                last.add(number)
        return last

    def _step(self, at: int, instruction: Instruction, freed: Sequence[int] = ()) -> Step:
        offset = self.offsets[self.plan.streams[at].island]
        match instruction:
            case Run():
                return self._run(instruction, at, freed)
            case Send():
                # The receiving island's copy does the work; until then the channel holds the buffer, since the
                # sending island may free its slot at once.
                self._channels[instruction.channel] = channel = self.size
                self.size += 1
                self.types[channel] = self.types[offset + instruction.slot]
                return _pass_on(offset + instruction.slot, channel)
            case Recv():
                source = self._channels.pop(instruction.channel)
                return self._move(source, offset + instruction.slot, instruction.where, release=True)
            case Copy():
                return self._move(offset + instruction.source, offset + instruction.target, instruction.where)
            case Free():
                return _free([offset + s for s in instruction.slots])

    def _run(self, run: Run, at: int, freed: Sequence[int]) -> Step:
        island = self.plan.streams[at].island
        offset = self.offsets[island]
        mesh, computation = self.plan.meshes[run.mesh], self.plan.computations[run.computation]
        watched = self._watched[run.step] = _watched(run, computation)
        devices = self._sides.devices(run.mesh)
        sides = [self._sides.of(Layout(run.mesh, d)) for d in computation.out_layouts]
        physical = self._sides.islands[island]
        gang = Gang([physical.queues[d] for d in mesh.devices])
        inputs = [offset + s for s in run.inputs]
        outputs = self._outputs(run, at)
        gone = [inputs[i] for i in run.donated] + [offset + s for s in freed]
        admit = gang.admit
        number = len(self.launches)
        queues = tuple(physical.queues[d] for d in mesh.devices)
        self.launches.append(Launch(run, physical.key, devices, queues))
        last = number in self._last or bool(watched)
        mark = -1
        if watched:
            mark = self._marks[run.step] = self.size
            self.size += 1
        self._prepared = Prepared(run, physical, devices, outputs, gone, number)
        if alone.is_alone(computation):
            kept = [(at, s) in self._shards for s in run.outputs]
            launch = alone.prepare(computation, devices, sides, kept, gang, self._executables)
        else:
            executable = self._executables.load(computation.module, devices, watched)
            launch = _as_gang(executable, pjrt.result_handlers(computation.outputs, [s.real for s in sides]), gang)

        def step(slots: Slots, base: int) -> None:
            due = admit()
            try:
                before = [len(w.errors) for w in watched] if watched else _NO_TOKENS
                arrays, tokens = launch([slots[i] for i in inputs], base + number, due, last)
                if tokens:  # whoever watches sees progress at each
                    slots[-1].extend(tokens)
                    if watched:
                        slots[mark] = _Launched(before, tokens)
                for slot, array in zip(outputs, arrays, strict=True):
                    slots[slot] = array
            except Exception as error:  # whatever it is, dependents must learn of it and others go on
                poison = _poison([slots[i] for i in inputs]) or self._cause(failed(run, island, error))
                for slot in outputs:
                    slots[slot] = poison
            for slot in gone:
                slots[slot] = None

        return step

    def _move(self, source: int, target: int, where: Where | None, *, release: bool = False) -> Step:
        here, there = self.types[source], self.types[target]
        move = transfers.prepare(here[0], self._sides.of(here[1]), self._sides.of(there[1]), self.compile_on).move
        island = self.plan.meshes[there[1].mesh].island

        def step(slots: Slots, base: int) -> None:
            try:
                slots[target] = move(slots[source])
            except Exception as error:  # as above
                cause = ComputationFailed(computation="a transfer", island=island, cause=str(error), where=where)
                slots[target] = _poison([slots[source]]) or self._cause(cause)
            if release:
                slots[source] = None

        return step

    def _cause(self, failure: ComputationFailed) -> Poison:
        """A failure on islands that have lost a device is the loss."""
        return lost_among(self._sides.islands.values()) or Poison(failure)

    def compile_on(self, text: str, device: pjrt.Device) -> pjrt.Executable:
        return self._executables.load(text, [device])


def _as_gang(executable: pjrt.Executable, handlers: pjrt.Handlers, gang: Gang) -> alone.Launch:
    """A computation on all of its devices at once."""
    execute, started = executable.execute_sharded, gang.started

    def launch(operands: Sequence[Any], launch_id: int, due: bool, last: bool) -> tuple[list[Any], list[Any]]:
        if not (due or last):
            return execute(operands, launch_id=launch_id).consume_with_handlers(handlers), _NO_TOKENS
        results = execute(operands, launch_id=launch_id, with_tokens=True)
        token = results.consume_token()
        if due:
            started(token)
        return results.consume_with_handlers(handlers), [token]

    return launch


_NO_TOKENS: list[Any] = []


def offsets_of(plan: Plan) -> dict[str, int]:
    """The first slot of each island."""
    offsets: dict[str, int] = {}
    total = 0
    for stream in plan.streams:
        offsets[stream.island] = total
        total += len(stream.buffers)
    return offsets


def _pass_on(source: int, target: int) -> Step:
    def step(slots: Slots, base: int) -> None:
        slots[target] = slots[source]

    return step


def _free(indices: list[int]) -> Step:
    def step(slots: Slots, base: int) -> None:
        for index in indices:
            slots[index] = None

    return step


def _poison(inputs: Sequence[Any]) -> Poison | None:
    """The first cause: whoever reads what is bad is a consequence."""
    return next((value for value in inputs if isinstance(value, Poison)), None)


def failed(run: Run, island: str, error: Exception, raised: Exception | None = None) -> ComputationFailed:
    """What a failure is called: the exception of a callback, where one was raised."""
    cause = str(error)
    if raised is not None:
        frames = traceback.extract_tb(raised.__traceback__)
        at = f", raised at {frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
        cause = f"{type(raised).__name__}: {raised}{at}"
    return ComputationFailed(computation=run.name, island=island, cause=cause, where=run.where)


def _watched(run: Run, computation: Computation) -> list[Watched]:
    if not computation.callbacks:
        return []
    found: list[Watched] = []
    types = result_types(computation.module)
    for index, number in enumerate(computation.callbacks):
        function = find(number)
        if function is None:
            raise PathwaysError(UnknownCallback(computation=run.name, where=run.where))
        found.append(Watched(function, run.name, types.get(index)))
    return found
