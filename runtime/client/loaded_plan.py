"""Loads a plan on devices: checks and compiles it once, so that each later call is cheap. A call binds its arguments,
waits until the scheduler allows the run, enqueues all work, and returns futures. `pathways/api/stages.py` uses it.
"""

import threading
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.jax_api import transfer_guard
from pathways.dialect.plan.check import validate
from pathways.dialect.plan.instructions import Run
from pathways.dialect.plan.nouns import Plan, Port
from pathways.dialect.user_line import caller, on_behalf_of
from pathways.runtime.client.arguments import Binder, Bound
from pathways.runtime.client.arrays import is_any_array
from pathways.runtime.client.buffers import StoredBuffer
from pathways.runtime.client.controller import Controller
from pathways.runtime.client.direct_call import prepare_direct_call
from pathways.runtime.client.engine import load_engine
from pathways.runtime.client.handles import Handle
from pathways.runtime.client.inputs import as_host, handle_of, wait_for_jax
from pathways.runtime.client.pending_results import PromisedResults, passed_on
from pathways.runtime.client.ports import Input, Result
from pathways.runtime.client_state import ClientState, current_client
from pathways.runtime.control.admission import Ticket
from pathways.runtime.control.scheduling import Cost, Request
from pathways.runtime.errors import CalledInside, failed_because
from pathways.runtime.host.devices import callbacks
from pathways.runtime.host.devices.islands import PhysicalIsland
from pathways.runtime.host.load.costs import IslandCost
from pathways.runtime.host.load.origins import origins_of
from pathways.runtime.host.run.background import Promise
from pathways.runtime.host.run.dispatch import Dispatch
from pathways.runtime.host.run.fallible import Awaited
from pathways.runtime.host.run.frame import Frame
from pathways.runtime.host.run.observer import Observer
from pathways.runtime.host.run.poison import Poison
from pathways.runtime.host.run.runs_in_flight import Flight, Launching
from pathways.runtime.interrupts import uninterrupted
from pathways.runtime.monitor import Gate


class LoadedPlan:
    """A plan that is ready to run. `run` enqueues all of its work and returns futures."""

    def __init__(self, plan: Plan, controller: Controller, path: str = "plan", *, sequential: bool = False) -> None:
        validate(plan, path)
        self.plan = plan
        self._controller = controller
        self._islands = controller.machine.islands_for(plan, self)
        self._changes = -1
        self._lost: PhysicalIsland | None = None
        controller.limit(plan, self._islands)
        engine = self._engine = load_engine(plan, self._islands, controller, path, sequential=sequential)
        self._offsets, self._sides = engine.offsets, engine.sides
        self._queues = tuple(dict.fromkeys(q for i in self._islands.values() for q in i.queues))
        self._inputs = [self._input(n, p) for n, p in enumerate(plan.inputs)]
        self._results_of = self._result_ports()
        runs = list(plan.runs())
        self._only = self._outputs_of(runs[0]) if len(runs) == 1 and not plan.bodies else ()
        self._held = self._hold_constants(dict(engine.constants))
        self._keys = frozenset(i.key for i in self._islands.values())
        self._line = controller.flights.line(min(self._keys)) if self._keys else None
        self._peaks = self._limited_peaks()
        self._cost = Cost()
        self.calls_back = any(c.callbacks for c in plan.computations)
        self._binder = Binder(plan.name, self._inputs, controller.store, engine.pauses)
        self._bind = self._binder.bind_and_report if self._binder.may_be_large else self._binder.bind
        ports, scheduled = (self._inputs, self._results_of), (self._keys, self._queues, self._cost)
        self.direct = None if self._peaks else prepare_direct_call(self, engine, ports, scheduled, controller)

    def _input(self, number: int, port: Port) -> Input | None:
        """Returns the slot and layout of an argument, None if the plan does not read it."""
        if port.slot < 0:
            return None
        index = self._offsets[port.island] + port.slot
        type_, layout = self._engine.types[index]
        return Input(number, port, index, type_, self._sides.of(layout), self.plan.name, self._engine, self._controller)

    def _result_ports(self) -> list[Result]:
        constants = {slot for slot, _ in self._engine.constants}
        found: list[Result] = []
        for port, origin in zip(self.plan.results, origins_of(self.plan), strict=True):
            index = self._offsets[port.island] + port.slot
            type_, layout = self._engine.types[index]
            found.append(Result(port, index, type_, self._sides.of(layout), origin, index in constants))
        return found

    def _outputs_of(self, run: Run) -> Sequence[int]:
        island = self.plan.meshes[run.mesh].island
        return [self._offsets[island] + slot for slot in run.outputs]

    def _limited_peaks(self) -> dict[Hashable, int]:
        """Returns a run's bytes on each device that has a limit. Constants count as held while the plan is loaded."""
        peaks: dict[Hashable, int] = {}
        ledger, between = self._controller.ledger, self._engine.bytes_between
        for mesh in range(len(self.plan.meshes)):
            island = self.plan.meshes[mesh].island
            stated = self.plan.topology.island(island).memory is not None
            for device in self._sides.devices(mesh) if stated else ():
                if device in ledger.limits:
                    peaks[device] = self.plan.stream(island).peak_bytes + between.get(island, 0)
        for constant in self.plan.constant_buffers if peaks else ():
            buffer = self.plan.stream(constant.island).kind_of[constant.slot]
            devices = self._sides.devices(buffer.layout.mesh)
            label = current_client.get().label
            self._controller.store.changed(devices, buffer.bytes, label, -1)
            weakref.finalize(self, self._controller.store.changed, devices, -buffer.bytes, label, -1)
            for device in devices:
                if device in peaks:
                    peaks[device] -= buffer.bytes
        return peaks

    @cached_property
    def costs(self) -> dict[str, IslandCost]:
        """Returns XLA's operation and byte counts of a run, by island."""
        return self._engine.costs()

    @property
    def lost(self) -> PhysicalIsland | None:
        """Returns an island of the plan that has lost a device, None if none has."""
        machine = self._controller.machine
        if self._changes != machine.changes:
            changes = machine.changes
            self._lost = next((i for i in self._islands.values() if i.lost), None)
            if self._lost is None and any(isinstance(b.array, Poison) for b in self._held.values()):
                self._engine.put_constants()  # returned devices are empty
                self._held = self._hold_constants(dict(self._engine.constants))
            self._changes = changes
        return self._lost

    @property
    def inputs(self) -> Sequence[Input | None]:
        """Returns the slot and layout of each argument, None for an argument that the plan does not read."""
        return self._inputs

    def run(self, arguments: Sequence[Any], observers: Sequence[Observer] = ()) -> list[Handle]:
        """Enqueues one run when the scheduler grants a slot; returns handles. `arguments` has one value per input port.

        A run that waits for values is enqueued in the background, unless it has `observers` of its own. Raises PWC0501
        for arguments that do not match, PWC0207 for donated ones, PWC0506 and PWC0507 for lack of memory, PWC0508 for
        arguments of another client.
        """
        controller, client = self._controller, current_client.get()
        if (around := callbacks.running_here()) is not None:
            error = CalledInside(program=self.plan.name, computation=around.computation, where=caller())
            raise PathwaysError(error)
        handles = [handle_of(v) for v in arguments]
        controller.check_open(client)
        wait_for_jax(arguments)
        number = next(controller.numbers)
        for observer in controller.observers:
            observer.submitted(number, self.plan, client.label)
        maybe = handles if controller.background.runs else ()
        promised = [h for h in maybe if h is not None and isinstance(h.buffer.array, Promise)]
        if not observers and (promised or (self._engine.awaits and not self._engine.is_quick)):
            return self._run_in_thread(number, client, arguments, handles)
        for handle in promised:
            handle.known()
        return self._run(number, client, arguments, handles, observers=observers)

    def _run(
        self,
        number: int,
        client: ClientState,
        arguments: Sequence[Any],
        handles: Sequence[Handle | None],
        promise: Promise | None = None,
        observers: Sequence[Observer] = (),
    ) -> list[Handle]:
        """Enqueues a run on this thread."""
        controller = self._controller
        bound = Bound()
        frame = Frame(self._engine.size, self._engine.constants)
        ticket = flight = None
        launched = False
        awaited: Sequence[Awaited] = ()
        ahead = self.calls_back and promise is None and not observers and self._engine.is_quick
        self._engine.get_ready(client.label)
        try:
            ticket = controller.enter(self._request(number, client, handles), client, promise)
            for observer in controller.observers:
                observer.scheduled(number)
            flight = self._take_off(ticket, frame)
            self._bind(bound, frame.values, arguments, handles)
            launched = True
            dispatch = Dispatch(
                controller.machine, flight, observers, control=controller, ticket=ticket, client=client, promise=promise
            )
            outcomes = self._engine.enqueue(frame, dispatch, ahead=ahead)
            if outcomes:
                if not all(outcome.is_over(frame.values) for outcome in outcomes):
                    awaited = outcomes
                    return self.promised(awaited, frame.values, bound, client, number)
                for outcome in outcomes:
                    outcome.wait(frame.values)
            return self._results(frame.values, bound.owners, client, number)
        finally:
            try:
                if launched and bound.taken:  # not earlier: results may share the buffer
                    controller.store.give_up(bound.taken, self.plan.name, caller())
                for handle in () if launched else bound.claims:
                    handle.unclaim()
            finally:
                self._flown(ticket, flight, [frame.values[i] for i in self._only])
                if not awaited:
                    controller.store.let_go(bound.kept)

    def promised(
        self, awaited: Sequence[Awaited], values: list[Any], bound: Bound, client: ClientState, number: int
    ) -> list[Handle]:
        """Starts a thread that waits for the callbacks of an enqueued run; returns handles that hold a promise."""
        controller, line = self._controller, caller()
        known = {i: b for i, b in self._held.items() if b.client is client}
        promise = Promise(number, self.plan.name, client, self.calls_back, line)
        results = PromisedResults(promise, self._results_of, controller.store, known | bound.owners)

        def work() -> None:
            try:
                for outcome in awaited:
                    outcome.wait(values)
                results.keep(self._results(values, bound.owners, client, number))
            except Exception as error:  # any error must be raised where a result is read
                controller.store.resolve(promise, self._failure(error, line))
            finally:
                controller.store.let_go(bound.kept)

        if not controller.background.start(promise, work):
            work()
        return results.handles

    def _run_in_thread(
        self,
        number: int,
        client: ClientState,
        arguments: Sequence[Any],
        handles: Sequence[Handle | None],
    ) -> list[Handle]:
        """Starts a thread that enqueues the run after earlier runs; returns handles that hold a promise until then.

        Raises errors of arguments here; later errors are raised where a result is read.
        """
        controller, store, line = self._controller, self._controller.store, caller()
        if self._peaks:
            controller.check_fits(self._request(number, client, handles))
        given = [self._given(*of) for of in zip(self._inputs, arguments, handles, strict=True)]
        held = [None if h is None else h.share()[0] for h in handles]
        earlier = [a for h in held if h is not None and isinstance(a := h.buffer.array, Promise)]
        known = {i: b for i, b in self._held.items() if b.client is client} | passed_on(self._inputs, held)
        promise = Promise(number, self.plan.name, client, self.calls_back, line)
        results = PromisedResults(promise, self._results_of, store, known)
        given_up = Gate()  # while closed, donated arguments look shared, and the run would copy them

        def work() -> None:
            try:
                given_up.pass_through()
                promise.wait_for(earlier)
                with transfer_guard("allow"), on_behalf_of(line):  # the guard was applied at the call
                    results.keep(self._run(number, client, given, held, promise))
            except Exception as error:  # any error must be raised where a result is read
                store.resolve(promise, self._failure(error, line))
            finally:
                held.clear()

        begun = True
        try:
            begun = controller.background.start(promise, work)
            inputs = zip(self._inputs, handles, strict=True)
            taken = [h for wanted, h in inputs if wanted is not None and wanted.port.donated and h is not None]
            store.give_up(taken, self.plan.name, line)
        finally:
            given_up.open()
        if not begun:
            work()
        return results.handles

    def _given(self, wanted: Input | None, value: Any, handle: Handle | None) -> Any:
        """Checks an argument and copies a host array, since the caller may change the array right after the call."""
        if wanted is None:
            return value
        if handle is None:
            return np.array(as_host(value, wanted.port, self.plan.name))
        handle.array()
        wanted.check(handle.buffer)
        return value

    def _failure(self, error: Exception, line: Where | None) -> Poison:
        if isinstance(error, PathwaysError):
            return Poison(error.diagnostic)
        islands = ", ".join(sorted(self._keys))
        cause = f"{type(error).__name__}: {error}"
        return Poison(failed_because(self.plan.name, island=islands, cause=cause, where=line))

    def _request(self, number: int, client: ClientState, handles: Sequence[Handle | None]) -> Request:
        bytes_: Mapping[Hashable, int] = self._peaks
        if bytes_:
            bytes_ = dict(self._peaks)
            for wanted, handle in zip(self._inputs, handles, strict=True):
                if handle is not None and wanted is not None and wanted.is_in_place(handle.buffer):
                    for device in bytes_.keys() & handle.buffer.devices:  # the client holds these bytes already
                        bytes_[device] = max(0, bytes_[device] - handle.buffer.bytes)
        return Request(number, client.label, self.plan.name, self._keys, client.weight, self._cost, bytes_)

    def _at_the_end(self, ticket: Ticket) -> Callable[[float], None]:
        """Returns the function that a flight calls when its run is complete."""
        controller = self._controller

        def done(seconds: float) -> None:
            self._cost.measured(seconds / self._engine.times_scheduled)
            for observer in controller.observers:
                observer.done(ticket.request.number)
            controller.run_queue.finished(ticket)

        return done

    @uninterrupted
    def continue_as_run(
        self, going: Launching, client: ClientState, tokens: Sequence[Any], made: Sequence[Any]
    ) -> None:
        """Gives a ticket and a flight to a run that was called directly, since its results `made` are not ready."""
        ticket = Ticket(self._request(going.number, client, ()))
        flight = going.as_flight()
        flight.tokens.extend(tokens)
        flight.done = self._at_the_end(ticket)
        self._controller.run_queue.adopt(ticket)
        self._flown(ticket, flight, made)

    def _take_off(self, ticket: Ticket, frame: Frame) -> Flight:
        """Registers the run as enqueuing, so that the watchdog monitors it."""
        controller, request = self._controller, ticket.request
        done = self._at_the_end(ticket)
        flight = Flight(request.number, self.plan, self._queues, frame.tokens, request.client, done)
        flight.thread = threading.get_ident()
        controller.flights.enqueuing[request.number] = flight
        if controller.machine.is_local and not controller.watchdog.is_watching:
            controller.watchdog.ensure()
        return flight

    @uninterrupted
    def _flown(self, ticket: Ticket | None, flight: Flight | None, made: Sequence[Any]) -> None:
        """Releases the run's slot because all of its work is enqueued on devices, and tracks the run's completion.

        `made`: the results of its only computation, if it has one. A small run is already complete: the thread that
        enqueues it also executes it. Otherwise its peak memory stays reserved until completion, since devices use
        buffers whose handles were dropped.
        """
        controller = self._controller
        if ticket is None:
            return
        done = False
        if flight is not None:
            flight.thread = 0
        try:
            done = bool(made) and is_any_array(made[0]) and made[0].is_ready()
            if not done:
                controller.run_queue.enqueued(ticket, dict(self._peaks) if self._peaks else None)
            for observer in controller.observers:
                observer.enqueued(ticket.request.number)
        finally:
            try:
                if done and flight is not None:
                    flight.end()
                elif self._line is not None and flight is not None and flight.tokens and not flight.abandoned:
                    self._line.put(flight, eager=controller.eager)
                else:
                    controller.run_queue.finished(ticket)
            finally:
                controller.flights.enqueuing.pop(ticket.request.number, None)

    def _results(
        self, values: list[Any], owners: dict[int, StoredBuffer], client: ClientState, number: int
    ) -> list[Handle]:
        store = self._controller.store
        buffers: list[tuple[int, StoredBuffer]] = []
        fresh: list[StoredBuffer] = []
        for result in self._results_of:
            index = result.index
            buffer = owners.get(index) or self._held.get(index)
            if buffer is None or buffer.client is not client:
                buffer = owners[index] = result.stored(values[index], client, number)
                if not result.pinned:
                    fresh.append(buffer)
            buffers.append((index, buffer))
        first = dict(zip(fresh, store.hold_results(fresh), strict=True))
        handles = [first.pop(buffer, None) or store.hold(buffer, values[index]) for index, buffer in buffers]
        if self.lost is not None:
            self._controller.poison_lost(handles)
        return handles

    def _hold_constants(self, constants: Mapping[int, Any]) -> dict[int, StoredBuffer]:
        """Returns buffers for constants that are results. The plan holds them too, so that no run overwrites them."""
        client = current_client.get()
        return {r.index: r.stored(constants[r.index], client, -1) for r in self._results_of if r.pinned}
