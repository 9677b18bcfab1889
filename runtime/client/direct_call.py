"""Calls a plan of one launch directly: without a slot of the queue, and without the objects that describe a run to
others. `LoadedPlan` prepares a direct call when it loads the plan, and the API calls it.

A client owns the islands that only it uses (`scheduling/ownership.py`), and its launches there do not ask the
scheduler. A small run is complete when its launch returns, so its ticket, its flight and its request would never be
read. A run gets them only if its results are not ready then.

A call that is not possible here returns None and has no effect; then `LoadedPlan.run` executes it. It is not possible
if another client uses the islands, if an argument must be moved, if runs are observed, or if a device is lost. It is
also not possible after a run whose host callbacks were slow.
"""

import itertools
import time
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from pathways.dialect.dtypes import numpy_dtype
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.user_line import caller
from pathways.runtime.client import arguments as binding
from pathways.runtime.client.arrays import LOCAL_ARRAY
from pathways.runtime.client.buffers import MADE, NEW, StoredBuffer
from pathways.runtime.client.controller import Controller
from pathways.runtime.client.engine import Engine
from pathways.runtime.client.handles import Handle
from pathways.runtime.client.ports import Input, Result
from pathways.runtime.client_state import ClientState, current_client
from pathways.runtime.control.scheduling import Cost
from pathways.runtime.host.devices import callbacks
from pathways.runtime.host.devices.in_flight_limit import DeviceQueue
from pathways.runtime.host.devices.islands import PhysicalIsland
from pathways.runtime.host.run.fallible import Awaited
from pathways.runtime.host.run.frame import AtOnce, Start
from pathways.runtime.host.run.runs_in_flight import LaunchesOfPlan, Launching
from pathways.runtime.interrupts import uninterrupted


class Owner(Protocol):
    """The loaded plan of a direct call."""

    plan: Plan

    @property
    def lost(self) -> PhysicalIsland | None: ...
    def continue_as_run(
        self, going: Launching, client: ClientState, tokens: Sequence[Any], made: Sequence[Any]
    ) -> None: ...
    def promised(
        self, awaited: Sequence[Awaited], values: list[Any], bound: binding.Bound, client: ClientState, number: int
    ) -> list[Handle]: ...


Ports: TypeAlias = tuple[Sequence[Input | None], Sequence[Result]]
Scheduled: TypeAlias = tuple[frozenset[str], Sequence[DeviceQueue], Cost]
"""The islands of a run, the queues of its devices, and its cost."""


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
    if engine.only_callbacks and not results:  # no result shows whether the callbacks have returned
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
        islands, queues, self._cost = scheduled
        self._launches = LaunchesOfPlan(owner.plan, queues, engine.launches)
        self._plan, self._start, self._at_once, self._controller = owner, start, at_once, controller
        self._launch_ids = iter(range(0))
        """Launch ids that are reserved for the next calls."""
        self._row = start.row(engine.constants)
        """The operands of the launch before the arguments are bound."""
        size = binding.LARGE_ARGUMENT_BYTES // max(1, len(inputs))
        self._checks = [_Check(wanted, start, size) for wanted in inputs]
        self._donates = any(check.donated for check in self._checks)
        self.reads_all = all(wanted is not None for wanted in inputs)
        """Whether the plan reads all arguments. The others are not checked."""
        self._results = [(result, start.outputs.index(result.index)) for result in results]
        """The results of the plan, and their places among those of the launch."""
        self._calls = itertools.count()
        """Counts the calls that are complete at their return."""
        self.callbacks = engine.only_callbacks
        """The host callbacks of the launch; None if it has none."""
        self._gang, self._name, self._enqueuing = start.gang, owner.plan.name, controller.flights.enqueuing
        self._store, self._queue, self._machine = controller.store, controller.run_queue, controller.machine
        self._owned = controller.run_queue.ownership(islands)
        self._seen = -1
        """The changes of the machine after which the plan had all of its devices."""

    def __call__(self, arguments: Sequence[Any], kind: type[Any]) -> list[Handle] | None:
        """Runs the plan on one value for each input. Returns a handle for each result, or None.

        `kind` is the class of arrays that stand for the buffer of their `handle`; no subclass is taken.
        """
        controller, client, changes = self._controller, current_client.get(), self._machine.changes
        if controller.observers or controller.ending or controller.forked or callbacks.running_here() is not None:
            return None
        if not controller.watchdog.is_watching:
            controller.watchdog.ensure()
        going = Launching(self._launches, client.label)
        made: Sequence[Any] | None = None
        tokens: Sequence[Any] = ()
        failed = False
        try:  # an interrupt may come at any point, but not inside `_begin` and `_end`
            if not self._begin(going, client):
                return None
            row = self._row.copy()
            if not self._bind(row, going, arguments, kind):
                return None
            made, going.is_launched = (), True
            try:
                tokens, made = self._at_once.start(row, going.base)
            except Exception as error:  # any error must reach dependents
                made, failed = self._start.failed(row, error), True
            number, shown = going.number, made
            if self.callbacks is not None and not failed:
                awaited, values = self.callbacks.awaited, self.callbacks.values(made)
                if not awaited.is_over(values):
                    return self._plan.promised([awaited], values, binding.Bound(), client, number)
                awaited.wait(values)
                shown = [values[slot] for slot in self._start.outputs]  # `_end` needs the arrays, not their poison
            begun = NEW if failed or self.callbacks is not None else MADE  # NEW: some results may be poison
            buffers: list[StoredBuffer] = []
            for result, place in self._results:
                buffers.append(result.stored(shown[place], client, number, begun))
            handles = self._store.hold_results(buffers)
            if self._machine.changes != changes:
                controller.poison_lost(handles)
            return handles
        finally:
            if going.number >= 0:
                self._end(going, client, tokens, None if failed else made)

    @uninterrupted
    def _begin(self, going: Launching, client: ClientState) -> bool:
        """Takes the islands; returns False if the run must enter the queue. `_end` must follow if it has a number."""
        owned = self._owned
        if not owned.lock.acquire(False):
            return False
        if owned.client != client.label and not self._queue.own(owned, client.label):
            owned.lock.release()
            self._queue.settle(owned)
            return False
        going.base = next(self._launch_ids, -1)
        if going.base < 0:
            going.base = first = self._machine.take_launches(LAUNCH_IDS_AT_ONCE)
            self._launch_ids = iter(range(first + 1, first + LAUNCH_IDS_AT_ONCE))
        going.number = number = next(self._controller.numbers)
        self._enqueuing[number] = going  # from now on, suspending the client waits for this run
        if self._seen != self._machine.changes:
            seen = self._machine.changes
            if self._plan.lost is not None:
                return False
            self._seen = seen
        if client.closed or client.suspended or self._controller.closing:
            return False
        if self.callbacks is not None and not self.callbacks.launcher.is_quick:
            return False
        going.due = self._gang.next_is_due()
        return going.due is not None

    def _bind(self, row: list[Any], going: Launching, arguments: Sequence[Any], kind: type[Any]) -> bool:
        """Fills the row of operands, and claims donated arguments; returns False if an argument needs more than that.

        The run has its islands: no other run overwrites an argument there.
        """
        given: list[tuple[Handle, bool]] = []
        client = current_client.get()
        for value, check in zip(arguments, self._checks):  # noqa: B905 -- `strict` takes longer than the loop
            wanted = check.input
            if wanted is None:
                continue
            if type(value) is kind:
                handle: Handle = value.handle
                buffer = handle.buffer
                array = buffer.array
                if buffer.kind is not wanted.placed or buffer.client is not client or handle.taken_by is not None:
                    return False
                if value.weak_type != check.weak or not isinstance(array, LOCAL_ARRAY):
                    return False
                if self._donates:
                    given.append((handle, check.donated))
            elif (host := check.host_array(value)) is not None:
                array = wanted.put(host)
            else:
                return False
            for place in check.places:
                row[place] = array
        if not given:
            return True
        going.claims = []
        if self._store.claim([handle for handle, is_donated in given if is_donated], self._name, going.claims):
            return False
        return all([is_donated or handle.taken_by is None for handle, is_donated in given])

    @uninterrupted
    def _end(self, going: Launching, client: ClientState, tokens: Sequence[Any], made: Sequence[Any] | None) -> None:
        """Ends a run that is complete, or makes it a run like all others. `made`: None if the launch has failed, or was
        not made.
        """
        owned = self._owned
        try:
            if going.claims:
                self._hand_over(going.claims, going.is_launched)
            is_ready = bool(made) and made[0].is_ready()  # then the launch is done, and so are all its results
            if is_ready and next(self._calls) % CALLS_PER_MEASUREMENT == 0:
                self._cost.measured(time.monotonic() - going.since)
            if made is not None and going.is_launched and not is_ready:
                self._gang.count()
                if going.due and tokens and made:
                    self._at_once.keep(tokens, made)
            if not going.is_launched or (going.flight is None and (is_ready or not tokens)):
                del self._enqueuing[going.number]
            else:
                self._plan.continue_as_run(going, client, tokens, made or ())
        finally:
            owned.lock.release()
            if owned.client != client.label:  # another run has asked for the islands
                self._queue.settle(owned)

    def _hand_over(self, claims: Sequence[Handle], is_launched: bool) -> None:
        """Gives up the arguments that the launch has overwritten; without a launch, they are valid again."""
        if is_launched:
            self._store.give_up(claims, self._name, caller())
            return
        for handle in claims:
            handle.unclaim()


LAUNCH_IDS_AT_ONCE = 16
"""Number of launch ids that a plan reserves together."""
CALLS_PER_MEASUREMENT = 16
"""Of this many calls, one measures the cost of a plan, which the scheduler charges when there are rivals."""


class _Check:
    """Holds what a direct call checks of an argument."""

    __slots__ = ("donated", "dtype", "input", "places", "shape", "weak")

    def __init__(self, wanted: Input | None, start: Start, size: int) -> None:
        """`size`: host arrays of at least this many bytes are not taken, since their copy is reported as progress."""
        self.input = wanted
        self.places = [] if wanted is None else start.places(wanted.index)
        """The operands of the launch that read the argument."""
        self.shape: tuple[int, ...] | None = None
        """The shape of a host array that is stored as it is; None: none is taken."""
        self.dtype: Any = None
        self.donated = wanted is not None and wanted.port.donated
        self.weak = wanted is not None and wanted.port.weak
        if wanted is not None and wanted.type.bytes < size and wanted.port.dtype == wanted.type.dtype:
            self.shape, self.dtype = wanted.type.shape, numpy_dtype(wanted.type.dtype)

    def host_array(self, value: Any) -> "np.ndarray[Any, Any] | None":
        """Returns the values of a host array, or of an array of JAX that is ready; None if they need a conversion."""
        weak, is_jax = False, type(value) is not np.ndarray
        if is_jax:
            if not isinstance(value, LOCAL_ARRAY) or not value.is_fully_addressable:
                return None
            weak = value.weak_type
        if weak != self.weak or value.dtype != self.dtype or value.shape != self.shape:
            return None
        if not is_jax:
            return value
        if value.is_deleted() or not value.is_ready():  # to ask a deleted array whether it is ready ends the process
            return None
        return np.asarray(value)
