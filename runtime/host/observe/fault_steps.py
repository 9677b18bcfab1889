"""Enqueuing step by step, with a look at each: does something go wrong there on purpose, and when was it enqueued."""

import time
from collections.abc import Callable
from typing import TypeAlias

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.nouns import Run
from pathways.runtime.control.controller import Controller
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.transfers import DeviceProgram
from pathways.runtime.host.load.launches import Shards
from pathways.runtime.host.load.steps import Part, Prepared
from pathways.runtime.host.observe import faults
from pathways.runtime.host.observe.faults import Fault
from pathways.runtime.host.run.fallible import failed
from pathways.runtime.host.run.in_flight import Flight, Launch
from pathways.runtime.host.run.progress import Slots
from pathways.runtime.host.run.store import Poison, lost_among, lost_poison

Look: TypeAlias = Callable[[Prepared, Slots], None]
"""Is told of a step that was enqueued, and of what it changed; what it raises ends the run."""


def enqueue_part(
    controller: Controller, part: Part, slots: Slots, base: int, flight: Flight, look: Look | None = None
) -> None:
    """The steps of a part: what goes wrong, what is recorded, and who else looks."""
    recorder = controller.recorder
    for step, prepared in zip(part.steps, part.prepared, strict=True):
        run = prepared.instruction
        fault = faults.find(flight.plan, run, flight.client) if isinstance(run, Run) else None
        poison, late = (None, None) if fault is None else _happen(controller, fault, prepared, slots, flight)
        if prepared.island.lost:
            poison = poison or lost_among([prepared.island], prepared.devices)
        begin = time.perf_counter_ns()
        if poison is None:
            step(slots, base)
            if fault is not None and late is not None:
                _hold_up(controller, fault.device % len(prepared.devices), prepared, slots, late)
        else:
            prepared.fail(slots, poison)
        if recorder is not None:
            recorder.step(flight, prepared, base, begin, time.perf_counter_ns())
        if look is not None:
            look(prepared, slots)


def _happen(
    controller: Controller, fault: Fault, prepared: Prepared, slots: Slots, flight: Flight
) -> tuple[Poison | None, pjrt.Array | None]:
    """The poison of the step's whole gang, where the fault is one; else what comes on its device when it is over."""
    run = prepared.instruction
    assert isinstance(run, Run)
    if fault.kind == "lose":
        device = prepared.devices[fault.device % len(prepared.devices)]
        position = prepared.island.devices.index(device)
        controller.lose(prepared.island, position, fault.message)
        poison = lost_poison(prepared.island, position)
        for index, value in enumerate(slots[:-1]):
            shards = value if isinstance(value, Shards) else [value] if pjrt.is_array(value) else []
            if any(device in s.sharding.device_set for s in shards):
                slots[index] = poison
        return poison, None
    executable, watched = faults.prepare(fault, prepared.devices, run.name)
    launch = controller.machine.take_launches(1)
    flight.begin(fault, launch, [Launch(run, prepared.island.key, prepared.devices, prepared.queues)])
    try:  # a gang of one runs on this thread
        results = executable.execute_sharded([], launch_id=launch, with_tokens=True)
        token = results.consume_token()
        if fault.kind != "raise":
            slots[-1].append(token)
            (shards,) = results.disassemble_into_single_device_arrays()
            return None, shards[fault.device % len(prepared.devices)]
        token.block_until_ready()
    except pjrt.FAILURES as error:
        return Poison(failed(run, prepared.island.key, error, watched.errors[-1] if watched.errors else None)), None
    return None, None


def _hold_up(controller: Controller, position: int, prepared: Prepared, slots: Slots, late: pjrt.Array) -> None:
    """Has what a step makes on one device wait for something there.

    On CPU a device may take what is ready before what it was given first, if nothing in it needs other devices.
    """
    for index in prepared.outputs:
        value = slots[index]
        if isinstance(value, Poison):
            continue
        shards = list(value if isinstance(value, Shards) else pjrt.shards_of(value))
        held = ArrayType(shards[position].shape, shards[position].dtype.name)
        wait = DeviceProgram(controller.executables.load(faults.waiting(held), [prepared.devices[position]]))
        (shards[position],) = wait([shards[position], late])
        if isinstance(value, Shards):
            slots[index] = Shards(shards)
        else:
            slots[index] = pjrt.assemble(ArrayType(value.shape, value.dtype.name), value.sharding, shards)
