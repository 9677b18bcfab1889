"""The single controller of this process: machine, store, compiled code, and the order of all work (paper, 4.3)."""

import gc
import itertools
import os
import threading
import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.memory import readable
from pathways.dialect.plan import Plan
from pathways.dialect.topology import parse_bytes
from pathways.runtime import interrupts
from pathways.runtime.clients import ClientState
from pathways.runtime.errors import ClientSuspended, MemoryHeld, NeverFits
from pathways.runtime.executables import Executables
from pathways.runtime.flights import Flight, Flights
from pathways.runtime.machine import Machine, PhysicalIsland
from pathways.runtime.scheduling import POLICIES, STRIDE, Policy, Request
from pathways.runtime.scheduling.scheduler import Scheduler
from pathways.runtime.steps import Prepared
from pathways.runtime.store import Line, Store, closed, lost_poison
from pathways.runtime.turns import Ticket, Turns
from pathways.runtime.watchdog import Watchdog

FETCH_LIMIT = os.environ.get("PATHWAYS_FETCH_LIMIT", "16GiB")


def _NOBODY() -> None:
    """The line of a run that waits already."""


class Recorder(Protocol):
    """Is told when runs and steps happen (recorder.py)."""

    def submitted(self, number: int, plan: Plan, client: str) -> None: ...
    def turn(self, number: int) -> None: ...
    def enqueued(self, number: int) -> None: ...
    def done(self, number: int) -> None: ...
    def step(self, flight: Flight, prepared: Prepared, base: int, begin: int, end: int) -> None: ...


@dataclass(eq=False)
class Controller:
    """What all loaded plans of a process share."""

    machine: Machine
    policy: Policy = field(default_factory=lambda: POLICIES[STRIDE]())
    store: Store = field(default_factory=Store)
    executables: Executables = field(default_factory=Executables)
    flights: Flights = field(default_factory=Flights)
    fetch_limit: int = field(default_factory=lambda: parse_bytes("PATHWAYS_FETCH_LIMIT", FETCH_LIMIT))
    """The most bytes of an array that are copied to the host."""
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    """Of runs."""

    ending: bool = False
    recorder: Recorder | None = None
    """Who records, while anybody does."""

    def __post_init__(self) -> None:
        self.watchdog = Watchdog(self.flights)
        self.turns = Turns(Scheduler(self.policy, self.machine.ledger))
        self.store.changed = self._held
        interrupts.install()

    @property
    def eager(self) -> bool:
        """Whether anybody waits for runs to be done: a turn, or memory."""
        return self.turns.contended or bool(self.machine.ledger.limits) or self.recorder is not None

    def _held(self, devices: tuple[Hashable, ...], size: int) -> None:
        if self.machine.ledger.limits:
            self.turns.post(lambda scheduler: scheduler.hold(devices, size))

    def enter(self, request: Request, client: ClientState) -> Ticket:
        """Waits for the turn of a run. Raises PWC0506 if it never fits, PWC0507 if its own client holds the memory."""
        if self.ending and threading.current_thread() is not threading.main_thread():
            threading.Event().wait()
        if request.bytes:
            self._check_fits(request)
        return self.turns.enter(request, lambda ticket: self.patience(ticket, client))

    def _check_fits(self, request: Request) -> None:
        for device, size in request.bytes.items():
            limit = self.machine.ledger.limits[device]
            if size > limit:
                island = self.island_of(device)
                raise PathwaysError(
                    NeverFits(
                        program=request.program, island=island.key, limit=f"{limit:,}", size=f"{size:,}",
                        more=readable(size - limit),
                    )
                )  # fmt: skip

    def patience(self, ticket: Ticket, client: ClientState) -> None:
        """While a run waits: has the ends of runs noticed at once, and gives up where only its own client can help."""
        self.flights.hurry()
        self.check_open(client, _NOBODY)
        request = ticket.request
        if not request.bytes or self.turns.ask(lambda s: s.lacks_memory(request.number)) is None:
            return
        gc.collect()  # handles in reference cycles hold memory, too
        device = self.turns.ask(lambda s: s.lacks_memory(request.number))
        if device is None:
            return
        owners = self.store.owners_on(device)
        if self.turns.ask(lambda s: s.lacks_memory(request.number)) != device or not any(owners.values()):
            return  # somebody else gave memory back meanwhile
        if set(owners) <= {request.client}:
            island = self.island_of(device)
            free = self.machine.ledger.free(device)
            raise PathwaysError(
                MemoryHeld(
                    program=request.program, island=island.key, size=readable(request.bytes[device]),
                    free=readable(free), limit=readable(self.machine.ledger.limits[device]),
                    held=readable(sum(owners.values())), client=request.client,
                )
            )  # fmt: skip

    def limit(self, plan: Plan, islands: Mapping[str, PhysicalIsland]) -> None:
        """What a plan's topology states of memory holds from now on."""
        self.turns.ask(lambda _: self._limit(plan, islands))

    def _limit(self, plan: Plan, islands: Mapping[str, PhysicalIsland]) -> None:
        ledger = self.machine.ledger
        for name, island in islands.items():
            memory = plan.topology.island(name).memory
            for device in island.devices if memory is not None else ():
                if device not in ledger.limits:
                    ledger.limit(device, memory or 0)
                    ledger.held[device] = sum(self.store.owners_on(device).values())
                ledger.limits[device] = memory or 0

    def end(self, timeout: float = 5.0) -> None:
        """The process ends: who comes now waits for ever, and what is in flight is waited for.

        A daemon thread inside of XLA aborts the process when the interpreter is gone; here it finds a place to park.
        """
        self.ending = True
        self.flights.drain(timeout)
        until = time.monotonic() + timeout
        while self.flights.enqueuing and time.monotonic() < until:
            time.sleep(0.001)
        self.flights.drain(timeout)
        self.flights.stop()
        time.sleep(0.02)

    def check_open(self, client: ClientState, where: Line) -> None:
        """Raises PWC0509 for a client that is gone, PWC0515 for one that is suspended."""
        if client.suspended and not client.closed and where is not _NOBODY:
            raise PathwaysError(ClientSuspended(client=client.label, where=where()))
        if client.closed:
            raise closed(client, "a client whose with block has ended, or that was closed", where)

    def close(self, client: ClientState) -> None:
        """A client goes: its waiting runs are taken out of line, and its arrays are freed, whoever holds handles."""
        client.closed = True
        self.store.drop(client)
        client.forget_kept()

    def lose(self, island: PhysicalIsland, position: int, reason: str) -> None:
        """A device is gone: nothing on it can be read from now on."""
        device = island.devices[position]
        self.machine.lose(island, position, reason)
        self.store.lose(device, lost_poison(island, position))

    def island_of(self, device: Hashable) -> PhysicalIsland:
        return next(i for i in self.machine.islands if device in i.devices)
