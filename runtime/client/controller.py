"""Holds what all loaded plans of a process share: devices, stored arrays, compiled code, and the scheduler that puts
all runs in one order (paper, section 4.3). The API creates one `Controller` for each process.

Loaded plans, `suspend` and `pw.status` use it.
"""

import contextlib
import gc
import itertools
import os
import threading
import time
import weakref
from collections.abc import Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pathways.dialect.diagnostics import Diagnostic, PathwaysError, Where
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.topology import parse_bytes, readable
from pathways.dialect.user_line import caller
from pathways.runtime import interrupts
from pathways.runtime.client.handles import Handle, closed
from pathways.runtime.client.remote_array import RemoteRun
from pathways.runtime.client.store import Store
from pathways.runtime.client_state import ClientState
from pathways.runtime.control.admission import PassThroughQueue, RunQueue, Ticket
from pathways.runtime.control.scheduling import SCHEDULING_POLICIES, STRIDE, Request, SchedulingPolicy
from pathways.runtime.control.scheduling.memory_ledger import Ledger
from pathways.runtime.control.scheduling.scheduler import DEPTH, Scheduler
from pathways.runtime.control.wait_texts import before_it, lacking
from pathways.runtime.errors import CLUSTER_CLOSED, ClientSuspended, Forked, Hang, MemoryHeld, NeverFits, RunCancelled
from pathways.runtime.host.devices.executable_cache import Executables
from pathways.runtime.host.devices.in_flight_limit import DeviceQueue
from pathways.runtime.host.devices.islands import Machine, PhysicalIsland
from pathways.runtime.host.observe.watchdog import Watchdog
from pathways.runtime.host.run.background import BackgroundRuns, Promise
from pathways.runtime.host.run.observer import Observer
from pathways.runtime.host.run.poison import Poison, lost_among, lost_poison
from pathways.runtime.host.run.runs_in_flight import Flight, Flights
from pathways.runtime.wire.errors import NotOverProcesses

FETCH_LIMIT, DEFAULT_FETCH_LIMIT = "PATHWAYS_FETCH_LIMIT", "16GiB"


def _daemons() -> bool:
    """Whether the user's program has daemon threads, which run until interpreter shutdown."""
    return any(t.daemon and not t.name.startswith("pathways-") for t in threading.enumerate())


@dataclass(eq=False)
class Controller:
    """State that all loaded plans of a process share."""

    machine: Machine
    policy: SchedulingPolicy = field(default_factory=lambda: SCHEDULING_POLICIES[STRIDE]())
    depth: int = DEPTH
    """Maximum number of runs in flight on an island while clients compete for the island."""
    ledger: Ledger = field(default_factory=Ledger)
    store: Store = field(default_factory=Store)
    executables: Executables = field(default_factory=Executables)
    flights: Flights = field(default_factory=Flights)
    background: BackgroundRuns = field(default_factory=BackgroundRuns)
    fetch_limit: int = field(
        default_factory=lambda: parse_bytes(FETCH_LIMIT, os.environ.get(FETCH_LIMIT, DEFAULT_FETCH_LIMIT))
    )
    """Maximum size of an array that may be copied to the host."""
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    """Allocates run numbers."""

    ending: bool = False
    closing: bool = False
    """Whether the controller's `with` block is ending. Calls of other threads are refused from then on."""
    forked: bool = False
    """Whether this process is a fork of the controller's process. A fork has no devices and no runtime threads."""
    observers: tuple[Observer, ...] = ()
    """Observers of every run."""

    def __post_init__(self) -> None:
        self.watchdog = Watchdog(self.flights, self.machine.row.on_host, self.end_hang)
        scheduler = Scheduler(self.policy, self.ledger, self.depth)
        self.run_queue = (
            RunQueue(scheduler, self._why_waits) if self.machine.schedules_here else PassThroughQueue(scheduler)
        )
        self.store.notify(self._held, self.ledger.limits)
        self.machine.devices_in_use = self._devices_in_use
        if hasattr(os, "register_at_fork"):
            this = weakref.ref(self)
            os.register_at_fork(after_in_child=lambda: None if (there := this()) is None else there._in_child())

    def _in_child(self) -> None:
        """Marks the controller's copy in a forked process: calls raise, and exit waits for no device or thread."""
        self.forked = self.flights.ending = True
        self.store.in_child()
        self.machine.keep_for_ever()

    @property
    def eager(self) -> bool:
        """Whether run completions must be detected at once: a run waits for a slot or memory, or an observer exists."""
        has_limits = bool(self.ledger.limits) and self.machine.schedules_here
        return self.run_queue.contended or has_limits or bool(self.observers)

    @contextlib.contextmanager
    def observed_by(self, observer: Observer) -> Generator[None]:
        """Adds an observer of all runs for the duration of a block. It sees steps only on devices of this process."""
        self.observers = (*self.observers, observer)
        try:
            yield
        finally:
            self.observers = tuple(o for o in self.observers if o is not observer)

    def check_local(self, what: str) -> None:
        """Raises PWC0912 if the islands are not in this process, for operations that need local devices."""
        if not self.machine.is_local:
            have, rule = "islands in other processes", "islands in this process"
            raise PathwaysError(NotOverProcesses(what=what, have_=have, rule=rule, where=caller()))

    def _held(self, devices: tuple[Hashable, ...], size: int, client: str, run: int) -> None:
        if self.ledger.limits:
            self.run_queue.post(lambda scheduler: scheduler.hold(devices, size))

    def _devices_in_use(self) -> set[Hashable]:
        """Returns the devices that hold arrays or have runs in flight."""
        busy_queues = {queue for flight in self.flights.all() for queue in flight.queues}
        return self.store.devices_in_use() | self.machine.devices_with(busy_queues)

    def enter(self, request: Request, client: ClientState, promise: Promise | None = None) -> Ticket:
        """Waits until the scheduler grants the run a slot.

        Raises PWC0506 if it never fits, PWC0507 if its own client holds the memory, PWC0518 if it is cancelled.
        """
        if self.ending and threading.current_thread() is not threading.main_thread():
            threading.Event().wait()
        if request.bytes:
            self.check_fits(request)
        if promise is None:
            return self.run_queue.enter(request, lambda ticket: self.patience(ticket, client))
        promise.check()

        def patience(ticket: Ticket) -> None:
            promise.check()
            self.patience(ticket, client)

        return self.run_queue.enter(request, patience)

    def check_fits(self, request: Request) -> None:
        """Raises PWC0506 if a run needs more memory than a device's limit."""
        for device, size in request.bytes.items():
            limit = self.ledger.limits.get(device)
            if limit is not None and size > limit:
                island = self.island_of(device)
                raise PathwaysError(
                    NeverFits(
                        program=request.program, island=island.key, limit=f"{limit:,}", size=f"{size:,}",
                        more=readable(size - limit),
                    )
                )  # fmt: skip

    def patience(self, ticket: Ticket, client: ClientState) -> None:
        """Checks for completed runs while a run waits. Raises PWC0507 if only its own client can free the memory."""
        self.flights.hurry()
        self._check_there(client)
        request = ticket.request
        if not request.bytes or self.run_queue.ask(lambda s: s.lacks_memory(request.number)) is None:
            return
        gc.collect()  # handles in reference cycles hold memory, too
        device = self.run_queue.ask(lambda s: s.lacks_memory(request.number))
        if device is None:
            return
        owners = self.store.owners_on(device)
        if self.run_queue.ask(lambda s: s.lacks_memory(request.number)) != device or not any(owners.values()):
            return  # memory was freed in the meantime
        if set(owners) <= {request.client}:
            raise PathwaysError(self._memory_held(request, device, self.ledger.free(device), sum(owners.values())))

    def _memory_held(self, request: Request, device: Hashable, free: int, held: int) -> MemoryHeld:
        return MemoryHeld(
            program=request.program, island=self.island_of(device).key, size=readable(request.bytes[device]),
            free=readable(free), limit=readable(self.ledger.limits[device]), held=readable(held), client=request.client,
        )  # fmt: skip

    def check_room(self, request: Request) -> None:
        """Checks that arrays fit that are sent to a cluster outside of a run, since the cluster cannot queue them.

        Raises PWC0506 if they never fit, PWC0507 if arrays of this process leave too little memory.
        """
        self.check_fits(request)
        for device, size in request.bytes.items() if not self.machine.schedules_here else ():
            limit = self.ledger.limits[device]
            if size + self._held_on(device) > limit:
                gc.collect()  # handles in reference cycles hold memory, too
                if (held := self._held_on(device)) + size > limit:
                    raise PathwaysError(self._memory_held(request, device, max(0, limit - held), held))

    def _held_on(self, device: Hashable) -> int:
        return sum(self.store.owners_on(device).values())

    def _why_waits(self, request: Request) -> str:
        """Describes what a run waits for: memory and the clients that hold it, or the runs that go first."""
        number = request.number
        short, before = self.run_queue.ask(lambda s: (s.ledger.short_of(request.bytes), s.goes_before(number)))
        if short is None:
            return before_it(before)
        return lacking(
            self.island_of(short).key, request.bytes[short] - self.ledger.free(short), self.store.owners_on(short)
        )

    def limit(self, plan: Plan, islands: Mapping[str, PhysicalIsland]) -> None:
        """Sets the memory limits of devices to the values in a plan's topology."""
        self.run_queue.ask(lambda _: self._limit(plan, islands))

    def _limit(self, plan: Plan, islands: Mapping[str, PhysicalIsland]) -> None:
        ledger = self.ledger
        for name, island in islands.items():
            memory = plan.topology.island(name).memory
            if memory is None and len(island.users) <= 1:  # remove limits of an earlier island on these devices
                for device in island.devices:
                    ledger.limits.pop(device, None)
            for device in island.devices if memory is not None else ():
                if device not in ledger.limits:
                    ledger.limit(device, memory or 0)
                    ledger.held[device] = sum(self.store.owners_on(device).values())
                ledger.limits[device] = memory or 0

    def end(self, timeout: float = 5.0) -> None:
        """Shuts the runtime down at exit: waits for runs in flight. Threads that call a program from now on block
        forever.

        Waits without limit for runs with host callbacks, as JAX does. Cancels other background runs, since their
        results can no longer be read. A daemon thread that executes inside XLA during interpreter shutdown aborts the
        process. Blocking such threads in the runtime prevents that.
        """
        if self.forked:
            return
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C: shut down now, without waiting for callbacks
            self._finish_callbacks(None, timeout)
        interrupts.ignore()
        self.cancel(self.background.of())
        self.background.drain(timeout=timeout)
        self.ending = True
        self.cancel_elsewhere(self.flights.all())
        self.flights.drain(timeout)
        until = time.monotonic() + timeout
        while self.flights.enqueuing and time.monotonic() < until:
            time.sleep(0.001)
        self.flights.drain(timeout)
        self.flights.stop()
        time.sleep(0.5 if _daemons() else 0.02)

    def check_open(self, client: ClientState) -> None:
        """Raises PWC0509 for a closed client, PWC0515 for a suspended one, PWC0520 in a forked process."""
        self._check_there(client)
        if client.suspended:
            raise PathwaysError(ClientSuspended(client=client.label, where=caller()))

    def _check_there(self, client: ClientState) -> None:
        """Checks like `check_open`, for a run that is already waiting: it continues even if its client is suspended."""
        if self.forked:
            raise PathwaysError(Forked(where=caller()))
        if client.closed:
            raise closed(client, "a client whose with block has ended, or that was closed")
        if self.closing:
            raise closed(client, CLUSTER_CLOSED)

    def cancel(self, runs: Iterable[Promise]) -> None:
        """Cancels background runs. Work that they have enqueued still executes, but their results are poison."""
        for promise in runs:
            promise.cancelled = True
            self.store.resolve(promise, Poison(promise.cancellation))

    def cancel_elsewhere(self, flights: Iterable[Flight], where: Where | None = None) -> bool:
        """Cancels runs on hosts in other processes: their data-dependent loops end, and their results are poison.

        Returns False if no run can be cancelled. `where` is the user's line.
        """
        parts = [(flight, part) for flight in flights for part in flight.tokens if isinstance(part, RemoteRun)]
        are_cancelled = [part.cancel(RunCancelled(program=f.plan.name, run=f.number, where=where)) for f, part in parts]
        return any(are_cancelled)

    def wait_for_callbacks(self, client: ClientState) -> None:
        """Waits until all runs of a client that have host callbacks are complete."""
        self.background.drain(client, calling_back=True)
        for part in self._parts_with_callbacks(client):
            part.block_until_ready()

    def _parts_with_callbacks(self, client: ClientState | None) -> list[RemoteRun]:
        """Returns the runs on hosts in other processes that may call back to the client's process."""
        mine = [f for f in self.flights.all() if client is None or f.client == client.label]
        calling = [f for f in mine if any(c.callbacks for c in f.plan.computations)]
        return [token for f in calling for token in f.tokens if isinstance(token, RemoteRun)]

    def _finish_callbacks(self, client: ClientState | None, grace: float = 5.0) -> None:
        """Waits for runs with host callbacks. After `grace` seconds, cancels other runs, which may block them."""
        if not self.background.drain(client, calling_back=True, timeout=grace):
            self.cancel(p for p in self.background.of(client) if not p.calls_back)
            self.background.drain(client, calling_back=True)
        parts = self._parts_with_callbacks(client)
        if not _done(parts, grace):  # they wait for loops that never end
            mine = [f for f in self.flights.all() if client is None or f.client == client.label]
            self.cancel_elsewhere(f for f in mine if not any(part in parts for part in f.tokens))
            for part in parts:
                part.block_until_ready()

    def close(self, client: ClientState) -> None:
        """Closes a client: removes its waiting runs from the queue and frees its arrays, even if handles still exist.

        Waits for the client's background runs that have host callbacks; cancels the others.
        """
        self._finish_callbacks(client)
        client.closed = True
        self.cancel(self.background.of(client))
        self.cancel_elsewhere(f for f in self.flights.all() if f.client == client.label)
        self.store.drop(client)
        client.forget_kept()
        self.machine.retire(client.label)

    def lose(self, island: PhysicalIsland, position: int, reason: str, cause: Diagnostic | None = None) -> None:
        """Marks a device as lost. Reading arrays on the device raises `cause`, or PWC0512 if `cause` is None."""
        device = island.devices[position]
        self.machine.lose(island, position, reason, cause)
        self.store.lose(device, lost_poison(island, position))

    def poison_lost(self, handles: Iterable[Handle]) -> None:
        """Replaces results on devices that were lost after their launch and before the store held them."""
        for handle in handles:
            cause = lost_among(self.machine.islands, handle.buffer.devices)
            if cause is not None and not isinstance(array := handle.buffer.array, Poison):
                self.store.replace(handle.buffer, array, cause, held=False)

    def end_hang(self, hang: Hang, lost: Mapping[Hashable, DeviceQueue]) -> None:
        """Marks the devices of a hang and all arrays on them as lost, so that threads waiting for those continue."""
        for island in self.machine.islands:
            for position, device in enumerate(island.devices):
                if device in lost:
                    self.lose(island, position, f"run {hang.run} of {hang.program} hangs on it", hang)
        for queue in lost.values():
            queue.lose()
        self.flights.abandon(lost)

    def island_of(self, device: Hashable) -> PhysicalIsland:
        island = self.machine.island_of(device)
        assert island is not None
        return island


def _done(parts: Sequence[RemoteRun], seconds: float) -> bool:
    """Waits at most `seconds`; returns whether all parts have completed."""
    end = time.monotonic() + seconds
    while not all(part.is_ready() for part in parts):
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True
