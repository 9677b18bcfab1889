"""Calls a plan of one launch directly: without a place in the queue, and without the objects that describe a run to
others. It is prepared once when a plan is loaded. `LoadedPlan` and the API use it.

A small run is complete when its launch returns, so its ticket, its flight and its request would never be read. They
are made only if the results are not ready then. A call that is not possible here returns None and has no effect; then
`LoadedPlan.run` executes it. That is so if another client uses the islands, an argument must be moved, a run is
observed, or a device is lost.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from pathways.dialect.dtypes import numpy_dtype
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.user_line import caller
from pathways.runtime.client import arguments as binding
from pathways.runtime.client.arrays import is_local_array
from pathways.runtime.client.buffers import StoredBuffer
from pathways.runtime.client.controller import Controller
from pathways.runtime.client.engine import Engine
from pathways.runtime.client.ports import Input, Result
from pathways.runtime.client.store import Handle
from pathways.runtime.client_state import ClientState, current_client
from pathways.runtime.host.devices import callbacks
from pathways.runtime.host.devices.in_flight_limit import DeviceQueue
from pathways.runtime.host.devices.islands import PhysicalIsland
from pathways.runtime.host.run.frame import AtOnce, Start
from pathways.runtime.host.run.poison import lost_among
from pathways.runtime.host.run.runs_in_flight import LaunchesOfPlan, Launching
from pathways.runtime.interrupts import uninterrupted

Value: TypeAlias = "Handle | np.ndarray[Any, Any]"
"""An argument that a direct call may accept."""


class Owner(Protocol):
    """The loaded plan of a direct call."""

    plan: Plan

    @property
    def lost(self) -> PhysicalIsland | None: ...
    def goes_on(self, going: Launching, client: ClientState, tokens: Sequence[Any], made: Sequence[Any]) -> None: ...


Ports: TypeAlias = tuple[Sequence[Input | None], Sequence[Result]]
Scheduled: TypeAlias = tuple[frozenset[str], Sequence[DeviceQueue]]
"""The islands of a run, and the queues of its devices."""


def prepare_direct_call(
    owner: Owner, engine: Engine, ports: Ports, scheduled: Scheduled, controller: Controller
) -> "DirectCall | None":
    """Prepares to call a plan directly; returns None if it is more than one launch, or does not only return results."""
    results = [result.index for result in ports[1]]
    step = engine.only_step
    if step is None or step.start is None or step.at_once is None or len(set(results)) < len(results):
        return None
    if not set(results) <= set(step.start.outputs):  # arguments that are returned unchanged, and constants
        return None
    return DirectCall(owner, engine, step.start, step.at_once, ports, scheduled, controller)


class DirectCall:
    """Runs one plan directly. All threads may use it: a call keeps its state in local variables."""

    def __init__(
        self,
        owner: Owner,
        engine: Engine,
        start: Start,
        at_once: AtOnce,
        ports: Ports,
        scheduled: Scheduled,
        controller: Controller,
    ) -> None:
        inputs, results = ports
        self._islands, queues = scheduled
        self._what = LaunchesOfPlan(owner.plan, queues, engine.launches)
        self._plan, self._start, self._at_once, self._controller = owner, start, at_once, controller
        constants = dict(engine.constants)
        self._row = [constants.get(slot) for slot in start.inputs]
        """The operands of the launch before the arguments are bound."""
        size = binding.LARGE_ARGUMENT_BYTES // max(1, len(inputs))
        self._takes = [_Taken(wanted, start.inputs, size) for wanted in inputs]
        self._ends = [(result, start.outputs.index(result.index)) for result in results]
        """The results of the plan, and their places among those of the launch."""
        self._gang, self._name, self._enqueuing = start.gang, owner.plan.name, controller.flights.enqueuing
        self._store, self._queue, self._machine = controller.store, controller.run_queue, controller.machine
        self._ids = iter(range(0))

    def __call__(self, arguments: Sequence[Any]) -> list[Handle] | None:
        """Runs the plan on handles and host arrays, one for each input. Returns a handle for each result, or None."""
        controller, client = self._controller, current_client.get()
        if (
            controller.observers or controller.forked or controller.ending or controller.closing
            or client.closed or client.suspended or callbacks.running_here() is not None or self._plan.lost is not None
        ):  # fmt: skip
            return None
        row = self._row.copy()
        donated: list[Handle] = []
        for value, taken in zip(arguments, self._takes, strict=True):
            wanted = taken.input
            if wanted is None:
                continue
            if type(value) is Handle:
                buffer = value.buffer
                array = buffer.array
                if buffer.kind is not wanted.placed or buffer.client is not client or value.taken_by is not None:
                    return None
                if not is_local_array(array):
                    return None
                if taken.donated:
                    donated.append(value)
            elif type(value) is np.ndarray and value.dtype == taken.dtype and value.shape == taken.shape:
                array = wanted.put(value)
            else:
                return None
            for place in taken.places:
                row[place] = array
        if donated and _are_shared([value.buffer for value in arguments if type(value) is Handle]):
            return None
        if not controller.watchdog.is_watching:
            controller.watchdog.ensure()
        return self._launched(client, row, donated)

    @uninterrupted
    def _launched(self, client: ClientState, row: list[Any], donated: list[Handle]) -> list[Handle] | None:
        """Takes the slots of the islands, claims donated arguments and launches. Does not block before the launch."""
        number, changes = next(self._controller.numbers), self._machine.changes
        if not self._queue.take(self._islands, number, client.label):
            return None
        claims: list[Handle] = []
        due = self._gang.try_admit()
        if due is None or (donated and not self._claim(donated, claims)):
            if due is not None:
                self._gang.withdraw()
            self._queue.give_back(self._islands, number)
            return None
        launch_id = next(self._ids, None)
        if launch_id is None:
            launch_id = self._more_ids()
        going = self._enqueuing[number] = Launching(self._what, number, launch_id, client.label)
        tokens: Sequence[Any] = ()
        made: Sequence[Any] = ()
        is_done = True
        try:
            try:
                tokens, made = self._at_once.start(row, launch_id)
                for array in made:
                    is_done = is_done and array.is_ready()
            except Exception as error:  # any error must reach dependents
                start = self._start
                made = [start.poison(start.run, start.island, row, error)] * len(start.outputs)
            hold = self._store.hold_result
            handles = [hold(result.stored(made[place], client, number)) for result, place in self._ends]
            if self._machine.changes != changes:
                self._poison_lost(handles)
            return handles
        finally:
            if claims:
                where = caller()
                for handle in claims:
                    handle.give_up(self._name, where)
            if is_done and going.flight is None:
                self._gang.done_at_once()
                self._queue.give_back(self._islands, number)
                del self._enqueuing[number]
            else:
                if due and tokens:
                    self._at_once.keep(tokens, made)
                self._plan.goes_on(going, client, tokens, made)

    def _more_ids(self) -> int:
        first = self._machine.take_launches(LAUNCHES_AT_ONCE)
        self._ids = iter(range(first + 1, first + LAUNCHES_AT_ONCE))
        return first

    def _claim(self, donated: Sequence[Handle], claims: list[Handle]) -> bool:
        """Claims all donated arguments, or none; returns whether it did."""
        for handle in donated:
            if not self._store.claim(handle, self._name, claims):
                for claimed in claims:
                    claimed.unclaim()
                return False
        return True

    def _poison_lost(self, handles: Sequence[Handle]) -> None:
        """Replaces results on devices that were lost during the launch."""
        for handle in handles:
            cause = lost_among(self._machine.islands, handle.buffer.devices)
            if cause is not None:
                self._store.replace(handle.buffer, handle.buffer.array, cause, held=False)


LAUNCHES_AT_ONCE = 64
"""The number of launch ids that a direct call reserves together."""


def _are_shared(buffers: Sequence[StoredBuffer]) -> bool:
    """Whether two arguments are the same buffer, which a run that overwrites one of them must copy."""
    return len(set(map(id, buffers))) < len(buffers)


class _Taken:
    """Holds what a direct call checks of an argument."""

    __slots__ = ("donated", "dtype", "input", "places", "shape")

    def __init__(self, wanted: Input | None, operands: Sequence[int], size: int) -> None:
        """`size`: host arrays of at least this many bytes are not taken, since their copy is reported as progress."""
        self.input = wanted
        self.places = [] if wanted is None else [i for i, slot in enumerate(operands) if slot == wanted.index]
        """The operands of the launch that read the argument."""
        self.shape: tuple[int, ...] | None = None
        """The shape of a host array that is stored as it is; None: none is taken."""
        self.dtype: Any = None
        self.donated = wanted is not None and wanted.port.donated
        if wanted is not None and wanted.type.bytes < size and wanted.port.dtype == wanted.type.dtype:
            self.shape, self.dtype = wanted.type.shape, numpy_dtype(wanted.type.dtype)
