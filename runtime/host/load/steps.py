"""Turns each instruction of a plan into a step: a Python function that is prepared for certain devices. A run then only
calls the steps in order. `loaded_part.py` and `bodies.py` call it when a plan is loaded.

A step must never wait for data.
"""

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

from pathways.dialect.diagnostics import Diagnostic, InternalError, Where
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.instructions import Branch, Copy, Free, Instruction, Recv, Run, Send
from pathways.dialect.plan.nouns import Layout, Plan
from pathways.dialect.plan.order import Joined
from pathways.dialect.plan.part import branch_number
from pathways.runtime.errors import failed_because
from pathways.runtime.host.devices import pjrt, transfers
from pathways.runtime.host.devices.callbacks import Watched
from pathways.runtime.host.devices.executable_cache import Executables
from pathways.runtime.host.devices.in_flight_limit import Gang
from pathways.runtime.host.devices.layouts import Sides
from pathways.runtime.host.load import launches
from pathways.runtime.host.load.callback_launches import OneAtATime
from pathways.runtime.host.load.edges import Edges
from pathways.runtime.host.load.waves import Awaitable, Wave
from pathways.runtime.host.run.control_flow import Choice, LoadedBody
from pathways.runtime.host.run.fallible import Awaited, failed, watched_callbacks
from pathways.runtime.host.run.frame import Frame, Part, Start, Step
from pathways.runtime.host.run.poison import Poison, lost_among
from pathways.runtime.host.run.progress import PreparedWave, Task
from pathways.runtime.host.run.runs_in_flight import Launch

MAX_STEPS_PER_PART = 32
"""Number of steps that a run enqueues before other runs may be scheduled."""


class Preparer:
    """Makes the steps of a plan or a body. `size` is the number of slots; `bodies` are the bodies that branches run."""

    def __init__(
        self,
        plan: Plan,
        sides: Sides,
        executables: Executables,
        bodies: Sequence[LoadedBody] = (),
        edges: Edges | None = None,
        body: int = -1,
    ) -> None:
        """`body`: the number of the body that `plan` describes; -1: `plan` is the program itself."""
        self.plan = plan
        self.bodies = bodies
        self._edges = edges
        self._body = body
        self.launches: list[Launch] = []
        """Launches by launch id, relative to the first launch id of the run."""
        self.offsets = offsets_of(plan)
        self.types: dict[int, tuple[ArrayType, Layout]] = {
            self.offsets[s.island] + i: (b.type, b.layout) for s in plan.streams for i, b in enumerate(s.buffers)
        }
        self.size = len(self.types)
        self._sides = sides
        self._executables = executables
        self._channels: dict[int, int] = {}
        self.callback_launchers: list[OneAtATime] = []
        """The launchers of computations with callbacks."""
        self._marks: dict[int, int] = {}
        """The slots of `WatchedLaunch`, by step."""
        self._shards = launches.kept_as_shards(plan)
        self._gangs: dict[tuple[int, int], Gang] = {}
        """Gangs by computation and mesh. All calls share a gang, which adapts to the computation's duration."""
        self._launchers: dict[tuple[int, int, tuple[bool, ...]], launches.Launchers] = {}
        """Launchers by computation, mesh, and a flag per result: whether it stays shards."""

    def prepare(self, waves: Sequence[Wave]) -> list[PreparedWave]:
        return [self._wave(wave) for wave in waves]

    def _wave(self, wave: Wave) -> PreparedWave:
        parts = self._parts(wave.steps, branches=any(isinstance(what, Joined) for *_, what in wave.awaits))
        tasks: list[tuple[int, Task]] = []
        for number, at, what in wave.awaits:
            tasks.append((number, self._task(what, at)))
        return PreparedWave(wave.needs, parts, tasks, wave.asks)

    def _parts(self, order: Sequence[tuple[int, Instruction]], *, branches: bool) -> list[Part]:
        """Makes a step of each instruction. A free directly after a computation or a send on the same island joins its
        step.

        `branches`: whether branches start after these steps.
        """
        last = self._last_launches(order)
        launched = max((n for n, (_, i) in enumerate(order) if branches or isinstance(i, Run)), default=-1)
        parts: list[Part] = [Part([])]
        skip = False
        for number, ((at, instruction), following) in enumerate(zip_longest(order, order[1:])):
            freed = following[1] if following is not None and following[0] == at else None
            if skip:
                skip = False
                continue
            skip = self._takes_frees(instruction) and isinstance(freed, Free)
            slots = freed.slots if isinstance(freed, Free) and skip else ()
            if len(parts[-1].steps) == MAX_STEPS_PER_PART:
                parts.append(Part([]))
            if isinstance(instruction, Run):
                parts[-1].steps.append(self._run(instruction, at, slots, last=len(self.launches) in last))
            else:
                parts[-1].steps.append(self._other(at, instruction, slots, is_last=number > launched))
        return parts

    def _takes_frees(self, instruction: Instruction) -> bool:
        """Whether the step of an instruction can also empty slots: a computation, or a send inside of this process."""
        is_sent = self._edges is not None and isinstance(instruction, Send) and instruction.channel in self._edges.sent
        return isinstance(instruction, Run | Send) and not is_sent

    def _task(self, what: Awaitable, at: int) -> Task:
        match what:
            case Run():
                return self._awaited(what, at)
            case Recv():
                assert self._edges is not None
                slot = self.offsets[self.plan.streams[at].island] + what.slot
                side = self._sides.of(self.types[slot][1])
                return self._edges.arrival(self._edges.received[what.channel], slot, side, what.where, self.compile_on)
            case Joined():
                return self._choice(what)

    def _choice(self, joined: Joined) -> Choice:
        """Makes the task of a branch, with its operands and results in order. Slot -1: another host has the value."""
        inputs: dict[int, int] = {}
        outputs: dict[int, int] = {}
        donated: set[int] = set()
        for at, part in joined.parts:
            donated.update(part.taken[i] for i in part.donated)
            offset = self.offsets[self.plan.streams[at].island]
            inputs.update((n, offset + s) for n, s in zip(part.taken, part.inputs, strict=True))
            outputs.update((n, offset + s) for n, s in zip(part.made, part.outputs, strict=True))
        branch = joined.branch
        body = self.plan.bodies[branch.bodies[-1]]
        results = [outputs.get(n, -1) for n in range(len(body.results))]
        return Choice(
            branch,
            branch_number(self._body, branch.step),
            joined.is_shared,
            self.plan.streams[joined.parts[0][0]].island,
            [inputs.get(n, -1) for n in range(len(body.inputs) + (branch.kind == "cond"))],
            frozenset(donated),
            results,
            [self.bodies[n] for n in branch.bodies],
            self._cause,
            self._edges is None,
            self._edges is None or self._edges.peer_hosts.has_first(self.plan, self._deciding(branch, inputs)),
        )

    def _deciding(self, branch: Branch, inputs: Mapping[int, int]) -> Layout | None:
        """Returns the layout of the value that decides a branch, if the value is on an island of this host."""
        if branch.kind == "cond":
            return self.types[inputs[0]][1] if 0 in inputs else None
        test = self.plan.of_body(branch.bodies[0])
        port = test.results[0]
        here = any(s.island == port.island for s in test.streams)
        return test.stream(port.island).kind_of[port.slot].layout if here else None

    def _awaited(self, run: Run, at: int) -> Awaited:
        mark = self._marks.get(run.step, -1)
        return Awaited(run, self.plan.streams[at].island, self._outputs(run, at), mark, self._cause)

    def _outputs(self, run: Run, at: int) -> list[int]:
        offset = self.offsets[self.plan.streams[at].island]
        return [offset + s for s in run.outputs]

    def _last_launches(self, order: Sequence[tuple[int, Instruction]]) -> set[int]:
        """Finds the launches that are the last launch of some device in this wave."""
        runs = [i for _, i in order if isinstance(i, Run)]
        covered: set[pjrt.Device] = set()
        last: set[int] = set()
        for number in range(len(runs) - 1, -1, -1):
            devices = self._sides.devices(runs[number].mesh)
            if not covered.issuperset(devices):
                covered.update(devices)
                last.add(len(self.launches) + number)
        return last

    def _other(self, at: int, instruction: Instruction, freed: Sequence[int], *, is_last: bool) -> Step:
        """Makes a step that launches no computation. `is_last`: its wave launches no computation after it."""
        name = self.plan.streams[at].island
        offset = self.offsets[name]
        _, writes, drops = instruction.effects
        emptied = [offset + s for s in (*drops, *freed)]
        return Step(
            self._work(instruction, offset, emptied, is_last=is_last),
            instruction,
            self._sides.islands[name],
            self.plan,
            outputs=[offset + s for s in writes],
            emptied=emptied,
        )

    def _work(
        self, instruction: Instruction, offset: int, emptied: Sequence[int], *, is_last: bool
    ) -> Callable[[Frame], None]:
        edges = self._edges
        match instruction:
            case Send() if edges is not None and instruction.channel in edges.sent:
                slot = offset + instruction.slot
                side = self._sides.of(self.types[slot][1])
                kept_slot = self._kept_slot(instruction.channel) if instruction.channel in edges.received else -1
                edge = edges.sent[instruction.channel]
                return edges.offer(edge, slot, side, self.compile_on, kept_slot, is_last=is_last)
            case Recv() if edges is not None and instruction.channel in edges.received:
                slot = offset + instruction.slot
                side, kept_slot = self._sides.of(self.types[slot][1]), self._channels.pop(instruction.channel, -1)
                return edges.pull(edges.received[instruction.channel], slot, side, kept_slot)
            case Send():
                # The receiving step makes the copy. Until then the channel holds the buffer, since the sending island
                # may free its slot at once.
                self._channels[instruction.channel] = channel = self.size
                self.size += 1
                self.types[channel] = self.types[offset + instruction.slot]
                return _pass_on(offset + instruction.slot, channel, emptied)
            case Recv():
                source = self._channels.pop(instruction.channel)
                return self._move(source, offset + instruction.slot, instruction.where, release=True)
            case Copy():
                return self._move(offset + instruction.source, offset + instruction.target, instruction.where)
            case Free():
                return _free(emptied)
            case Run() | Branch():
                raise InternalError(f"{type(instruction).__name__} is no step of this kind")

    def _kept_slot(self, channel: int) -> int:
        """Allocates the slot for pieces that stay on this host in a copy inside an island of several hosts."""
        self._channels[channel] = slot = self.size
        self.size += 1
        return slot

    def _run(self, run: Run, at: int, freed: Sequence[int], *, last: bool) -> Step:
        """Makes the step of a computation. `last`: it is the last launch of some device in this wave."""
        island = self.plan.streams[at].island
        offset = self.offsets[island]
        mesh, computation = self.plan.meshes[run.mesh], self.plan.computations[run.computation]
        watched = watched_callbacks(run, computation)
        physical = self._sides.islands[island]
        here = [d for d in mesh.devices if pjrt.is_here(physical.devices[d])]
        devices = physical.at(here)
        queues = tuple(physical.queues[d] for d in here)
        gang = self._gangs.setdefault((run.computation, run.mesh), Gang(queues))
        inputs = [offset + s for s in run.inputs]
        outputs = self._outputs(run, at)
        emptied = [inputs[i] for i in run.donated] + [offset + s for s in freed]
        number = len(self.launches)
        self.launches.append(Launch(run, physical.key, devices, queues))
        found = self._launcher(run, at, watched, gang) if here else launches.Launchers(launches.elsewhere)
        launch, at_once = found
        last = last or bool(watched)
        if watched:
            mark = self._marks[run.step] = self.size
            self.size += 1
            launch = OneAtATime(launch, watched[0].record, mark, queues)
            at_once = at_once and launch.as_only_launch(at_once)
            self.callback_launchers.append(launch)
            weakref.finalize(launch, self._executables.retire, launch.record).atexit = False
        # One function for all steps: the cells of a closure are scattered in memory, which costs 1 us a step.
        poison = partial(self._failed, watched)
        own = Start(poison, run, island, tuple(inputs), tuple(outputs), tuple(emptied), gang, launch, number, last)
        enqueue = partial(launch_step, *own)
        return Step(enqueue, run, physical, self.plan, outputs, emptied, devices, queues, number, own, at_once)

    def _failed(
        self, watched: Sequence[Watched], run: Run, island: str, operands: Sequence[Any], error: Exception
    ) -> Poison:
        """Makes the poison for the results of a failed computation. Its cause: the exception of a callback, if any."""
        raised, before = None, _poison(operands)
        if watched:
            record = watched[0].record
            raised = next(iter(record.errors), None)
            if before is not None or record.on_one_device:  # nothing has started, or the device has come back
                record.end(record.errors)
        return before or self._cause(failed(run, island, error, raised))

    def _launcher(self, run: Run, at: int, watched: Sequence[Watched], gang: Gang) -> launches.Launchers:
        """Returns the cached launchers of a computation on its gang. A call with callbacks has its own launcher."""
        kept = tuple((at, s) in self._shards for s in run.outputs)
        key = run.computation, run.mesh, kept
        if watched or key not in self._launchers:
            self._launchers[key] = self._make_launcher(run, kept, watched, gang)
        return self._launchers[key]

    def _make_launcher(
        self, run: Run, kept: Sequence[bool], watched: Sequence[Watched], gang: Gang
    ) -> launches.Launchers:
        """Makes launchers that start device by device if the devices need no data from each other; else as a gang."""
        computation = self.plan.computations[run.computation]
        devices = self._sides.devices(run.mesh)
        sides = [self._sides.of(Layout(run.mesh, d)) for d in computation.out_layouts]
        if launches.starts_apart(computation, self.plan.platform):
            return launches.launch_apart(computation, devices, sides, kept, gang, self._executables)
        executable = self._executables.load(computation.module, devices, watched, (run.name, run.where))
        handlers = pjrt.result_handlers(computation.outputs, [s.real for s in sides])
        return launches.as_gang(executable, handlers, gang, launches.smallest(computation.outputs))

    def _move(self, source: int, target: int, where: Where | None, *, release: bool = False) -> Callable[[Frame], None]:
        here, there = self.types[source], self.types[target]
        sides = self._sides.of(here[1]), self._sides.of(there[1])
        move = transfers.prepare_transfer(here[0], *sides, self.compile_on, may_use_host=self._body >= 0).move
        island = self.plan.meshes[there[1].mesh].island

        def enqueue(frame: Frame) -> None:
            values = frame.values
            try:
                values[target] = move(values[source])
            except Exception as error:  # any error must reach dependents, as in `launch_step`
                cause = failed_because("a transfer", island=island, cause=str(error), where=where)
                values[target] = _poison([values[source]]) or self._cause(cause)
            if release:
                values[source] = None

        return enqueue

    def _cause(self, failure: Diagnostic) -> Poison:
        """Makes poison of a failure. If an island has lost a device, the loss is the cause instead."""
        return lost_among(self._sides.islands.values()) or Poison(failure)

    def compile_on(self, text: str, device: pjrt.Device) -> pjrt.Executable:
        return self._executables.load(text, [device])


def launch_step(
    poison: Callable[[Run, str, Sequence[Any], Exception], Poison], run: Run, island: str,
    inputs: Sequence[int], outputs: Sequence[int], emptied: Sequence[int],
    gang: Gang, launch: launches.Launcher, number: int, last: bool,
    frame: Frame,
) -> None:  # fmt: skip
    """Launches a computation as a step of a run."""
    values = frame.values
    try:
        tokens = launch(values, inputs, outputs, frame.base + number, gang.admit(), last)
        if tokens:
            (frame.tokens if last else frame.early).extend(tokens)
    except Exception as error:  # any error must reach dependents; other steps go on
        bad = poison(run, island, [values[i] for i in inputs], error)
        for slot in outputs:
            values[slot] = bad
    for slot in emptied:
        values[slot] = None


def offsets_of(plan: Plan) -> dict[str, int]:
    """Returns the first slot of each island."""
    offsets: dict[str, int] = {}
    total = 0
    for stream in plan.streams:
        offsets[stream.island] = total
        total += len(stream.buffers)
    return offsets


def _pass_on(source: int, target: int, emptied: Sequence[int]) -> Callable[[Frame], None]:
    def enqueue(frame: Frame) -> None:
        values = frame.values
        values[target] = values[source]
        for slot in emptied:
            values[slot] = None

    return enqueue


def _free(slots: Sequence[int]) -> Callable[[Frame], None]:
    def enqueue(frame: Frame) -> None:
        for slot in slots:
            frame.values[slot] = None

    return enqueue


def _poison(inputs: Sequence[Any]) -> Poison | None:
    """Returns the first poison among the inputs: the cause of the failure of their readers."""
    return next((value for value in inputs if isinstance(value, Poison)), None)
