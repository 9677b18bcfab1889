"""Instructions prepared for devices: each a function of a run's slots that never waits for data.

A run's slots are a list: the buffers of all islands, what is on its way between islands, and last of all the tokens of
the launches after which nothing of this run is left in a device's queue.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, TypeAlias

from pathways.dialect.diagnostics import Where
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan import Copy, Free, Instruction, Layout, Plan, Recv, Run, Send
from pathways.runtime import pjrt, transfers
from pathways.runtime.credit import Gang
from pathways.runtime.errors import ComputationFailed
from pathways.runtime.executables import Executables
from pathways.runtime.machine import PhysicalIsland
from pathways.runtime.store import Poison

Slots: TypeAlias = list[Any]
Step: TypeAlias = Callable[[Slots, int], None]
"""One prepared instruction: of the slots, and of the first launch id of the run."""


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
        self.launched: list[Run] = []
        """The computations by launch: launch id - first launch id of the run -> what was launched."""
        self.offsets = offsets_of(plan)
        self.types: dict[int, tuple[ArrayType, Layout]] = {
            self.offsets[s.island] + i: (b.type, b.layout) for s in plan.streams for i, b in enumerate(s.buffers)
        }
        self.size = len(self.types)
        self._sides = sides
        self._executables = executables
        self._channels: dict[int, int] = {}
        self._last: set[int] = set()

    def prepare(self, order: Sequence[tuple[int, Instruction]]) -> list[Step]:
        """One step an instruction; a free right behind the computation it waits for is part of its step."""
        self._last = self._last_launches(order)
        steps: list[Step] = []
        skip = False
        for (at, instruction), following in zip_longest(order, order[1:]):
            freed = following[1] if following is not None and following[0] == at else None
            if skip:
                skip = False
            elif isinstance(instruction, Run) and isinstance(freed, Free):
                steps.append(self._run(instruction, at, freed.slots))
                skip = True
            else:
                steps.append(self._step(at, instruction))
        return steps

    def _last_launches(self, order: Sequence[tuple[int, Instruction]]) -> set[int]:
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

    def _step(self, at: int, instruction: Instruction) -> Step:
        offset = self.offsets[self.plan.streams[at].island]
        match instruction:
            case Run():
                return self._run(instruction, at, ())
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
        executable = self._executables.load(computation.module, self._sides.devices(run.mesh))
        shardings = [self._sides.of(Layout(run.mesh, d)).real for d in computation.out_layouts]
        handlers = pjrt.result_handlers(computation.outputs, shardings)
        physical = self._sides.islands[island]
        gang = Gang([physical.queues[d] for d in mesh.devices])
        inputs = [offset + s for s in run.inputs]
        outputs = [offset + s for s in run.outputs]
        gone = [inputs[i] for i in run.donated] + [offset + s for s in freed]
        execute, admit, started = executable.execute_sharded, gang.admit, gang.started
        number = len(self.launched)
        self.launched.append(run)
        last = number in self._last

        def step(slots: Slots, base: int) -> None:
            due = admit()
            try:
                results = execute([slots[i] for i in inputs], launch_id=base + number, with_tokens=due or last)
                if due or last:
                    token = results.consume_token()
                    if due:
                        started(token)
                    if last:
                        slots[-1].append(token)
                for slot, array in zip(outputs, results.consume_with_handlers(handlers), strict=True):
                    slots[slot] = array
            except Exception as error:  # whatever it is, dependents must learn of it and others go on
                poison = _poison([slots[i] for i in inputs], error, run.name, island, run.where)
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
                slots[target] = _poison([slots[source]], error, "a transfer", island, where)
            if release:
                slots[source] = None

        return step

    def compile_on(self, text: str, device: pjrt.Device) -> pjrt.Executable:
        return self._executables.load(text, [device])


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


def _poison(inputs: Sequence[Any], error: Exception, name: str, island: str, where: Where | None) -> Poison:
    """The first cause: an input's poison, or else this failure."""
    for value in inputs:
        if isinstance(value, Poison):
            return value
    return Poison(ComputationFailed(computation=name, island=island, cause=str(error), where=where))
