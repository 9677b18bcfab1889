"""A plan bound to devices: validated and compiled once, then a flat list of prepared calls."""

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, TypeAlias

import numpy as np

from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.dtypes import ArrayType, numpy_dtype
from pathways.dialect.plan import Copy, Free, Instruction, Layout, Plan, PlanMesh, Port, Recv, Run, Send
from pathways.runtime import pjrt, transfers
from pathways.runtime.credit import Gang
from pathways.runtime.errors import ComputationFailed, WrongInput
from pathways.runtime.inputs import Line, as_host, handle_of
from pathways.runtime.linearize import linearize
from pathways.runtime.machine import Machine
from pathways.runtime.store import Handle, Poison, Store, StoredBuffer
from pathways.runtime.validate import validate

Slots: TypeAlias = list[Any]
Step: TypeAlias = Callable[[Slots], None]
"""One prepared instruction: reads and writes slots, never waits for data."""


class Executables:
    """Compiled code by content and devices, shared by all plans of a process."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[bytes | str, tuple[pjrt.Device, ...]], pjrt.Executable] = {}
        self._first: dict[tuple[bytes | str, int], pjrt.Executable] = {}

    def load(self, module: bytes | str, devices: Sequence[pjrt.Device]) -> pjrt.Executable:
        """Compiles, or takes the code that was compiled for as many other devices."""
        key = module, tuple(devices)
        if key not in self._loaded:
            self._loaded[key] = self._make(*key)
        return self._loaded[key]

    def _make(self, module: bytes | str, devices: tuple[pjrt.Device, ...]) -> pjrt.Executable:
        first = self._first.get((module, len(devices)))
        if first is not None:
            with contextlib.suppress(*pjrt.FAILURES):  # a platform that cannot move code compiles it again
                return pjrt.reload(first, devices)
        made = pjrt.compile_module(module, devices)
        return self._first.setdefault((module, len(devices)), made)


class LoadedPlan:
    """A plan ready to run. `run` enqueues everything and returns futures."""

    def __init__(
        self, plan: Plan, machine: Machine, store: Store, executables: Executables, path: str = "plan"
    ) -> None:
        validate(plan, path)
        order = linearize(plan, path)
        self.plan = plan
        self.store = store
        self._executables = executables
        self._islands = machine.islands_for(plan)
        self._offsets = _offsets(plan)
        self._types = {
            self._offsets[s.island] + i: (b.type, b.layout) for s in plan.streams for i, b in enumerate(s.buffers)
        }
        self._size = len(self._types)
        self._machine = machine
        self._channels: dict[int, int] = {}
        self._sides: dict[Layout, transfers.Side] = {}
        self._constants = self._put_constants()
        self._steps = self._prepare_all(order)
        self._arrivals: dict[Any, transfers.Move] = {}
        self._makers = {
            self._offsets[s.island] + slot: i
            for s in plan.streams
            for i in s.instructions
            if isinstance(i, Run)
            for slot in i.outputs
        }
        self._held = self._hold_constants()

    def _devices(self, mesh: PlanMesh) -> tuple[pjrt.Device, ...]:
        return self._islands[mesh.island].at(mesh.devices) if mesh.island in self._islands else ()

    def _side(self, layout: Layout) -> transfers.Side:
        """A layout on this machine's devices; made once, since JAX takes its time to make a sharding."""
        if layout not in self._sides:
            mesh = self.plan.meshes[layout.mesh]
            devices = self._devices(mesh)
            real = pjrt.named_sharding(mesh.spec, layout.dims, devices)
            self._sides[layout] = transfers.Side(self.plan.sharding(layout), real, devices)
        return self._sides[layout]

    def _put_constants(self) -> dict[int, Any]:
        held: dict[int, Any] = {}
        for constant in self.plan.constant_buffers:
            buffer = self.plan.stream(constant.island).buffers[constant.slot]
            raw = self.plan.constants[constant.member]
            host = np.frombuffer(raw, numpy_dtype(buffer.type.dtype)).reshape(buffer.type.shape)
            held[self._offsets[constant.island] + constant.slot] = self._put(host, buffer.type, buffer.layout)
        return held

    def _put(self, host: "np.ndarray[Any, Any]", type_: ArrayType, layout: Layout) -> pjrt.Array:
        side = self._side(layout)
        return pjrt.put(host, type_, side.sharding, side.real, side.devices)

    def _prepare_all(self, order: Sequence[tuple[int, Instruction]]) -> list[Step]:
        """One step an instruction; a free right behind the computation it waits for is part of its step."""
        steps: list[Step] = []
        skip = False
        for (at, instruction), following in zip_longest(order, order[1:]):
            freed = following[1] if following is not None and following[0] == at else None
            if skip:
                skip = False
            elif isinstance(instruction, Run) and isinstance(freed, Free):
                steps.append(self._prepare_run(instruction, at, freed.slots))
                skip = True
            else:
                steps.append(self._prepare(at, instruction))
        return steps

    def _prepare(self, at: int, instruction: Instruction) -> Step:
        stream = self.plan.streams[at]
        offset = self._offsets[stream.island]
        match instruction:
            case Run():
                return self._prepare_run(instruction, at, ())
            case Send():
                # The receiving island's copy does the work; until then the channel holds the buffer, since the
                # sending island may free its slot at once.
                self._channels[instruction.channel] = channel = self._size
                self._size += 1
                self._types[channel] = self._types[offset + instruction.slot]
                return _pass_on(offset + instruction.slot, channel)
            case Recv():
                source = self._channels.pop(instruction.channel)
                return self._prepare_move(source, offset + instruction.slot, instruction.where, release=True)
            case Copy():
                return self._prepare_move(offset + instruction.source, offset + instruction.target, instruction.where)
            case Free():
                return _free([offset + s for s in instruction.slots])

    def _prepare_run(self, run: Run, at: int, freed: Sequence[int]) -> Step:
        island = self.plan.streams[at].island
        offset = self._offsets[island]
        mesh, computation = self.plan.meshes[run.mesh], self.plan.computations[run.computation]
        devices = self._devices(mesh)
        executable = self._executables.load(computation.module, devices)
        shardings = [self._side(Layout(run.mesh, d)).real for d in computation.out_layouts]
        handlers = pjrt.result_handlers(computation.outputs, shardings)
        physical = self._islands[island]
        gang = Gang([physical.queues[d] for d in mesh.devices])
        inputs = [offset + s for s in run.inputs]
        outputs = [offset + s for s in run.outputs]
        gone = [inputs[i] for i in run.donated] + [offset + s for s in freed]
        execute, admit, started = executable.execute_sharded, gang.admit, gang.started
        launches = self._machine.launches

        def step(slots: Slots) -> None:
            due = admit()
            try:
                results = execute([slots[i] for i in inputs], launch_id=next(launches), with_tokens=due)
                if due:
                    started(results.consume_token())
                for slot, array in zip(outputs, results.consume_with_handlers(handlers), strict=True):
                    slots[slot] = array
            except Exception as error:  # whatever it is, dependents must learn of it and others go on
                poison = _poison([slots[i] for i in inputs], error, run.name, island, run.where)
                for slot in outputs:
                    slots[slot] = poison
            for slot in gone:
                slots[slot] = None

        return step

    def _prepare_move(self, source: int, target: int, where: Where | None, *, release: bool = False) -> Step:
        here, there = self._types[source], self._types[target]
        move = transfers.prepare(here[0], self._side(here[1]), self._side(there[1]), self._compile_on).move
        island = self.plan.meshes[there[1].mesh].island

        def step(slots: Slots) -> None:
            try:
                slots[target] = move(slots[source])
            except Exception as error:  # as above
                slots[target] = _poison([slots[source]], error, "a transfer", island, where)
            if release:
                slots[source] = None

        return step

    def _compile_on(self, text: str, device: pjrt.Device) -> pjrt.Executable:
        return self._executables.load(text, [device])

    def run(self, arguments: Sequence[Any], where: Line = lambda: None) -> list[Handle]:
        """Enqueues one run; `arguments` are one value an input port. Returns handles at once.

        Raises PWC0501 for arguments that do not fit, PWC0207 for donated ones.
        """
        with self._machine.order:
            slots: Slots = [None] * self._size
            for index, array in self._constants.items():
                slots[index] = array
            owners, taken = self._bind(slots, arguments, where)
            for step in self._steps:
                step(slots)
            results = self._results(slots, owners)
            site = where() if taken else None
            for handle in taken:  # not before the results hold what they share with it
                handle.give_up(self.plan.name, site)
            return results

    def _bind(
        self, slots: Slots, arguments: Sequence[Any], where: Line
    ) -> tuple[dict[int, StoredBuffer], list[Handle]]:
        """Puts the arguments into slots; gives the buffers that clients hold, by slot, and the handles they give up."""
        owners: dict[int, StoredBuffer] = {}
        taken: list[Handle] = []
        handles = [handle_of(v) for v in arguments]
        used = Counter(id(h.buffer) for h in handles if h is not None)
        for port, value, handle in zip(self.plan.inputs, arguments, handles, strict=True):
            if port.slot < 0:
                continue
            index = self._offsets[port.island] + port.slot
            if handle is None:
                slots[index] = self._place(as_host(value, port, self.plan.name, where), port)
                continue
            array = self._arrive(handle, port, index, where)
            buffer = handle.buffer
            in_place = array is buffer.array
            if in_place and port.donated and (buffer.is_shared or used[id(buffer)] > 1) and pjrt.is_array(array):
                side = self._side(self._types[index][1])
                array = pjrt.copy_whole(array, pjrt.device_list(side.devices), side.real)
            elif in_place and not port.donated:
                owners[index] = buffer
            if port.donated:
                taken.append(handle)
            slots[index] = array
        return owners, taken

    def _arrive(self, handle: Handle, port: Port, index: int, where: Line) -> Any:
        """The array of a handle where this plan wants it: itself, or moved there from another program's place."""
        buffer, array = handle.buffer, handle.array(where)
        type_, layout = self._types[index]
        if (buffer.type, buffer.dtype) != (type_, port.dtype):
            have, need = f"{buffer.dtype} {list(buffer.type.shape)}", f"{port.dtype} {list(type_.shape)}"
            error = WrongInput(name=port.name, program=self.plan.name, have_=have, rule=need, where=where())
            raise PathwaysError(error)
        side = self._side(layout)
        fits = buffer.devices == side.devices and buffer.sharding.same_layout(side.local, type_.shape)
        if fits or isinstance(array, Poison):
            return array
        key = index, buffer.devices, buffer.sharding
        if key not in self._arrivals:
            source = transfers.Side(buffer.sharding, array.sharding, buffer.devices)
            self._arrivals[key] = transfers.prepare(type_, source, side, self._compile_on).move
        return self._arrivals[key](array)

    def _place(self, host: "np.ndarray[Any, Any]", port: Port) -> pjrt.Array:
        type_, layout = self._types[self._offsets[port.island] + port.slot]
        return self._put(host, type_, layout)

    def _results(self, slots: Slots, owners: dict[int, StoredBuffer]) -> list[Handle]:
        handles: list[Handle] = []
        for port in self.plan.results:
            index = self._offsets[port.island] + port.slot
            buffer = owners.get(index) or self._held.get(index)
            if buffer is None:
                buffer = owners[index] = self._stored(slots[index], port, index)
            handles.append(self.store.hold(buffer))
        return handles

    def _stored(self, array: Any, port: Port, index: int) -> StoredBuffer:
        type_, layout = self._types[index]
        side, run = self._side(layout), self._makers.get(index)
        origin = (run.name if run else "the program", port.island, run.where if run else None)
        return StoredBuffer(array, type_, port.dtype, side.local, side.devices, port.name, origin)

    def _hold_constants(self) -> dict[int, StoredBuffer]:
        """Constants that are results: held by the plan, too, so that nobody overwrites them."""
        held: dict[int, StoredBuffer] = {}
        for port in self.plan.results:
            index = self._offsets[port.island] + port.slot
            if index in self._constants:
                held[index] = replace(self._stored(self._constants[index], port, index), pinned=True)
        return held


def _offsets(plan: Plan) -> dict[str, int]:
    offsets: dict[str, int] = {}
    total = 0
    for stream in plan.streams:
        offsets[stream.island] = total
        total += len(stream.buffers)
    return offsets


def _pass_on(source: int, target: int) -> Step:
    def step(slots: Slots) -> None:
        slots[target] = slots[source]

    return step


def _free(indices: list[int]) -> Step:
    def step(slots: Slots) -> None:
        for index in indices:
            slots[index] = None

    return step


def _poison(inputs: Sequence[Any], error: Exception, name: str, island: str, where: Where | None) -> Poison:
    """The first cause: an input's poison, or else this failure."""
    for value in inputs:
        if isinstance(value, Poison):
            return value
    return Poison(ComputationFailed(computation=name, island=island, cause=str(error), where=where))
