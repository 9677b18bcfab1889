"""Calls a plan of one launch directly: without a place in the queue, and without the objects that describe a run to
others. It is prepared once when a plan is loaded. `LoadedPlan` and the API use it.

A small run is complete when its launch returns, so its ticket, its flight and its request would never be read. They
are made only if the results are not ready then. A call that is not possible here returns None and has no effect; then
`LoadedPlan.run` executes it. That is so if another client uses the islands, an argument must be moved, a run is
observed, or a device is lost.
"""

import time
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from pathways.dialect.dtypes import numpy_dtype
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.user_line import caller
from pathways.runtime.client.arguments import LARGE_ARGUMENT_BYTES
from pathways.runtime.client.buffers import StoredBuffer
from pathways.runtime.client.controller import Controller
from pathways.runtime.client.engine import Engine
from pathways.runtime.client.ports import Input, Result
from pathways.runtime.client.store import Handle
from pathways.runtime.client_state import ClientState, current_client
from pathways.runtime.control.scheduling import Cost
from pathways.runtime.host.devices import callbacks, pjrt
from pathways.runtime.host.devices.in_flight_limit import DeviceQueue
from pathways.runtime.host.devices.islands import PhysicalIsland
from pathways.runtime.host.run.frame import Frame, Start
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
    def goes_on(self, going: Launching, client: ClientState, tokens: Sequence[Any], values: list[Any]) -> None: ...


Ports: TypeAlias = tuple[Sequence[Input | None], Sequence[Result]]
Scheduled: TypeAlias = tuple[frozenset[str], Sequence[DeviceQueue], Cost]
"""The islands of a run, the queues of its devices, and its cost."""


def prepare_direct_call(
    owner: Owner, engine: Engine, ports: Ports, scheduled: Scheduled, controller: Controller
) -> "DirectCall | None":
    """Prepares to call a plan directly; returns None if it is more than one launch, or does not only return results."""
    results = [result.index for result in ports[1]]
    start = None if engine.only_step is None else engine.only_step.start
    if start is None or len(set(results)) < len(results) or not set(results) <= set(start.outputs):
        return None
    return DirectCall(owner, engine, start, ports, scheduled, controller)


class DirectCall:
    """Runs one plan directly. It is used by all threads; a call keeps its state in local variables."""

    def __init__(
        self, owner: Owner, engine: Engine, start: Start, ports: Ports, scheduled: Scheduled, controller: Controller
    ) -> None:
        self._plan, self._start, self._controller = owner, start, controller
        self._inputs, self._results = ports
        size = LARGE_ARGUMENT_BYTES // max(1, len(self._inputs))
        self._takes = [_Taken(wanted, size) for wanted in self._inputs]
        self._islands, queues, self._cost = scheduled
        self._what = LaunchesOfPlan(owner.plan, queues, engine.launches)
        self._frame = Frame(engine.size, engine.constants).values
        """The slots of a run before it begins."""
        self._name, self._enqueuing = owner.plan.name, controller.flights.enqueuing
        self._store, self._queue, self._machine = controller.store, controller.run_queue, controller.machine

    def __call__(self, arguments: Sequence[Any]) -> list[Handle] | None:
        """Runs the plan on handles and host arrays, one for each input. Returns a handle for each result, or None."""
        controller, client = self._controller, current_client.get()
        if (
            controller.observers or controller.forked or controller.ending or controller.closing
            or client.closed or client.suspended or callbacks.running_here() is not None or self._plan.lost is not None
        ):  # fmt: skip
            return None
        values = list(self._frame)
        donated: list[Handle] = []
        for value, taken in zip(arguments, self._takes, strict=True):
            wanted = taken.input
            if wanted is None:
                continue
            if type(value) is Handle:
                buffer = value.buffer
                array = buffer.array
                if buffer.client is not client or value.taken_by is not None or not pjrt.is_array(array):
                    return None
                if buffer.kind is not wanted.placed:
                    return None
                if taken.donated:
                    donated.append(value)
                values[wanted.index] = array
            elif type(value) is np.ndarray and value.dtype == taken.dtype and value.shape == taken.shape:
                values[wanted.index] = wanted.put(value)
            else:
                return None
        if donated and _are_shared([value.buffer for value in arguments if type(value) is Handle]):
            return None
        if not controller.watchdog.is_watching:
            controller.watchdog.ensure()
        return self._launched(client, values, donated)

    @uninterrupted
    def _launched(self, client: ClientState, values: list[Any], donated: list[Handle]) -> list[Handle] | None:
        """Claims donated arguments and the islands, and launches. Nothing here blocks before the launch itself."""
        start, number = self._start, next(self._controller.numbers)
        if not self._queue.take(self._islands, number, client.label):
            return None
        due = start.gang.try_admit()
        claims: list[Handle] = []
        if due is None or (donated and not self._claim(donated, claims)):
            if due is not None:
                start.gang.withdraw()
            self._queue.give_back(self._islands, number)
            return None
        base = self._machine.take_launches(1)
        going = Launching(self._what, number, base, client.label)
        self._enqueuing[number] = going
        tokens: Sequence[Any] = ()
        is_done = False
        try:
            try:
                tokens = start.launch(values, start.inputs, start.outputs, base + start.number, due, True)
                is_done = all([values[slot].is_ready() for slot in start.outputs])
            except Exception as error:  # any error must reach dependents
                bad = start.poison(start.run, start.island, [values[i] for i in start.inputs], error)
                for slot in start.outputs:
                    values[slot] = bad
                is_done = True
            return self._handles(values, client, number)
        finally:
            if claims:
                where = caller()
                for handle in claims:
                    handle.give_up(self._name, where)
            if is_done and going.flight is None:
                self._cost.measured(time.monotonic() - going.since)
                self._queue.give_back(self._islands, number)
                del self._enqueuing[number]
            else:
                self._plan.goes_on(going, client, tokens, values)

    def _claim(self, donated: Sequence[Handle], claims: list[Handle]) -> bool:
        """Claims all donated arguments, or none; returns whether it did."""
        for handle in donated:
            if not self._store.claim(handle, self._name, claims):
                for claimed in claims:
                    claimed.unclaim()
                return False
        return True

    def _handles(self, values: list[Any], client: ClientState, number: int) -> list[Handle]:
        hold = self._store.hold_result
        made = [hold(result.stored(values[result.index], client, number)) for result in self._results]
        if self._plan.lost is not None:  # lost during the launch
            for result, handle in zip(self._results, made, strict=True):
                cause = lost_among(self._machine.islands, result.side.devices)
                if cause is not None:
                    self._store.replace(handle.buffer, handle.buffer.array, cause, held=False)
        return made


def _are_shared(buffers: Sequence[StoredBuffer]) -> bool:
    """Whether two arguments are the same buffer, which a run that overwrites one of them must copy."""
    return len(set(map(id, buffers))) < len(buffers)


class _Taken:
    """Holds what a direct call checks of an argument."""

    __slots__ = ("donated", "dtype", "input", "shape")

    def __init__(self, wanted: Input | None, size: int) -> None:
        """`size`: host arrays of at least this many bytes are not taken, since their copy is reported as progress."""
        self.input = wanted
        self.shape: tuple[int, ...] | None = None
        """The shape of a host array that is stored as it is; None: none is taken."""
        self.dtype: Any = None
        self.donated = wanted is not None and wanted.port.donated
        if wanted is not None and wanted.type.bytes < size and wanted.port.dtype == wanted.type.dtype:
            self.shape, self.dtype = wanted.type.shape, numpy_dtype(wanted.type.dtype)
