"""Injects faults into runs, for tests of failures: an instruction fails, or is delayed on one device. `pw.testing` and
hosts of a cluster add it to runs as an observer.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.instructions import Run
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.executable_cache import Executables
from pathways.runtime.host.devices.islands import PhysicalIsland
from pathways.runtime.host.devices.layouts import Shards
from pathways.runtime.host.devices.transfers import DeviceProgram
from pathways.runtime.host.observe import faults
from pathways.runtime.host.observe.faults import Fault
from pathways.runtime.host.run.fallible import failed
from pathways.runtime.host.run.frame import Frame, Step
from pathways.runtime.host.run.observer import Observer
from pathways.runtime.host.run.poison import Poison, lost_poison
from pathways.runtime.host.run.runs_in_flight import Flight, Launch


@dataclass(eq=False)
class FaultSteps(Observer):
    """An observer that injects a fault at steps of runs."""

    fault: Fault
    executables: Executables
    take_launches: Callable[[int], int]
    lose: Callable[[PhysicalIsland, int, str], None]
    _late: dict[int, tuple[int, pjrt.DeviceArray]] = field(default_factory=dict[int, tuple[int, pjrt.DeviceArray]])
    """By run, while a step is enqueued: the delayed device, and an array that is ready when the delay ends."""

    def before_step(self, flight: Flight, step: Step, frame: Frame) -> Poison | None:
        """Injects a fault at the step; returns poison for its whole gang if the fault makes the step fail."""
        run, fault = step.instruction, self.fault
        if not isinstance(run, Run) or not fault.matches(flight.plan, run, flight.client) or not fault.take():
            return None
        if fault.kind == "lose":
            return self._lose(fault, step, frame)
        launch = self.take_launches(1)
        if (position := _position(fault, run, step)) is None:
            return None
        executable, watched = faults.bring_to(fault, step.devices, position, run.name)
        flight.begin(fault, launch, [Launch(run, step.island.key, step.devices, step.queues)])
        try:  # a gang of one runs on this thread
            results = executable.execute_sharded([], launch_id=launch, with_tokens=True)
            token = results.consume_token()
            if fault.kind != "raise":
                frame.tokens.append(token)
                (shards,) = results.disassemble_into_single_device_arrays()
                self._late[flight.number] = position, shards[position]
                return None
            token.block_until_ready()
        except pjrt.FAILURES as error:
            raised = watched.record.errors
            return Poison(failed(run, step.island.key, error, raised[-1] if raised else None))
        return None

    def after_step(self, flight: Flight, step: Step, frame: Frame, begin: int, end: int) -> None:
        """Delays the results of the step on one device until the fault there ends.

        Without this, a CPU device may run a later program first, if that is ready and needs no other devices.
        """
        position, late = self._late.pop(flight.number, (0, None))
        for index in step.outputs if late is not None else ():
            value = frame.values[index]
            if isinstance(value, Poison):
                continue
            shards = list(value if isinstance(value, Shards) else pjrt.shards_of(value))
            held = ArrayType(shards[position].shape, shards[position].dtype.name)
            wait = DeviceProgram(self.executables.load(faults.waiting(held), [step.devices[position]]))
            (shards[position],) = wait([shards[position], late])
            if isinstance(value, Shards):
                frame.values[index] = Shards(shards)
            else:
                frame.values[index] = pjrt.assembler(ArrayType(value.shape, value.dtype.name), value.sharding)(shards)

    def _lose(self, fault: Fault, step: Step, frame: Frame) -> Poison:
        device = step.devices[fault.device % len(step.devices)]
        position = step.island.devices.index(device)
        self.lose(step.island, position, fault.message)
        poison = lost_poison(step.island, position)
        for index, value in enumerate(frame.values):
            shards = value if isinstance(value, Shards) else [value] if pjrt.is_array(value) else []
            if any(device in s.sharding.device_set for s in shards):
                frame.values[index] = poison
        return poison


def _position(fault: Fault, run: Run, step: Step) -> int | None:
    """Returns the position of the device to delay among the step's devices here; None if another host has it.

    A fault that raises does so on all hosts of the island: else a collective would wait on the others.
    """
    gang = step.island.at(step.plan.meshes[run.mesh].devices)
    device = gang[fault.device % len(gang)]
    if device in step.devices:
        return step.devices.index(device)
    return fault.device % len(step.devices) if fault.kind == "raise" and step.devices else None
