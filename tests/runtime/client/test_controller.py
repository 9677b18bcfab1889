"""Tests scheduler, store and machine together, as the controller joins them, with fake devices and without threads.

Random runs of several clients are submitted, paused, enqueued, completed or cancelled. Arrays are dropped, clients
close, devices are lost and recover.
"""

import contextlib
import itertools
import random
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.sharding import MeshSpec, Sharding
from pathways.runtime.client.buffers import KindOfBuffer, StoredBuffer
from pathways.runtime.client.controller import Controller
from pathways.runtime.client.handles import Handle
from pathways.runtime.client.remote_array import RemoteRun
from pathways.runtime.client_state import ClientState, current_client
from pathways.runtime.control.admission import Ticket
from pathways.runtime.control.scheduling import SCHEDULING_POLICIES, Request
from pathways.runtime.errors import Hang, RunCancelled
from pathways.runtime.host.devices.islands import Machine, PhysicalIsland
from pathways.runtime.host.run.poison import Poison, lost_among
from pathways.runtime.host.run.runs_in_flight import Flight

MEMORY_LIMITS = {"w": 100, "x": 100, "y": 150, "z": 60}
DEVICES_PER_ISLAND = 2


@dataclass(eq=False)
class Run:
    """One run, with the memory that the run needs on each of its devices, and its outcome."""

    ticket: Ticket
    client: ClientState
    islands: list[PhysicalIsland]
    size: int
    began: bool = False
    results: list[Handle] = field(default_factory=list[Handle])
    outcome: str = ""


class World:
    def __init__(self, policy: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.machine = Machine("none")
        self.controller = Controller(self.machine, SCHEDULING_POLICIES[policy]())
        for name, limit in MEMORY_LIMITS.items():
            devices: list[Any] = [(name, position) for position in range(DEVICES_PER_ISLAND)]
            self.machine.bind(name, devices)
            for device in devices:
                self.controller.ledger.limit(device, limit)
        self.islands = self.machine.islands
        self.clients = [ClientState(name, weight) for name, weight in zip("abcd", (1, 2, 4, 1), strict=True)]
        self.numbers = itertools.count()
        self.runs: list[Run] = []
        self.order: dict[str, list[int]] = {name: [] for name in MEMORY_LIMITS}

    def of(self, *states: str) -> list[Run]:
        return [run for run in self.runs if run.outcome in states]

    def submit(self) -> None:
        client = self.random.choice(self.clients)
        islands = self.random.sample(self.islands, self.random.choice([1, 1, 1, 2, 3]))
        size = self.random.choice([0, 10, 30, 60])
        wanted: dict[Hashable, int] = {d: size for i in islands for d in i.devices} if size else {}
        keys = frozenset(i.key for i in islands)
        request = Request(next(self.numbers), client.label, "program", keys, client.weight, bytes=wanted)
        run = Run(Ticket(request), client, islands, size)
        self.runs.append(run)
        self.controller.run_queue.line_up(run.ticket)

    def poll(self) -> None:
        """Starts the runs whose slots have come, and checks the invariants."""
        for run in self.of(""):
            if run.ticket.gate.acquire(blocking=False):
                run.outcome = "enqueuing"
                if not run.began:
                    run.began = True
                    for island in run.islands:
                        self.order[island.name].append(run.ticket.request.number)
        busy = Counter(i.name for run in self.of("enqueuing") for i in run.islands)
        assert all(count == 1 for count in busy.values())
        for island in self.islands:
            for device in island.devices:
                assert self.used(island, device) <= MEMORY_LIMITS[island.name]

    def used(self, island: PhysicalIsland, device: Hashable) -> int:
        """Counts the bytes in use: by runs, and by results of other runs that clients hold."""
        going = [r for r in self.runs if r.began and r.outcome in ("", "enqueuing", "flying") and island in r.islands]
        numbers = {r.ticket.request.number for r in going}
        held = (b for b in self.controller.store.buffers if device in b.devices and b.run not in numbers)
        return sum(r.size for r in going) + sum(b.bytes for b in held if b.counted)

    def enqueue(self, run: Run) -> None:
        """Enqueues all of a run: the run has results, which are poison if a device is lost."""
        spec = MeshSpec((("x", DEVICES_PER_ISLAND),), tuple(range(DEVICES_PER_ISLAND)))
        token = current_client.set(run.client)
        for island in run.islands if run.size and not run.client.closed else ():
            array = lost_among([island]) or object()
            type_ = ArrayType((run.size,), "int8")
            kind = KindOfBuffer(type_, "int8", Sharding(spec, ((),)), island.devices, run.size // 2)
            number = run.ticket.request.number
            buffer = StoredBuffer(array, kind, "result", ("call", island.key, None), run.client, number)
            run.results.append(self.controller.store.hold(buffer))
        current_client.reset(token)
        run.outcome = "flying"
        self.controller.run_queue.enqueued(run.ticket, dict(run.ticket.request.bytes))

    def step(self) -> None:
        choice, r = self.random.random(), self.random
        enqueuing, flying, done = self.of("enqueuing"), self.of("flying"), self.of("done")
        if choice < 0.4:
            self.submit()
        elif choice < 0.65 and enqueuing:
            run = r.choice(enqueuing)
            if r.random() < 0.3:
                run.outcome = ""
                self._pause(run)
            else:
                self.enqueue(run)
        elif choice < 0.85 and flying:
            run = r.choice(flying)
            run.outcome = "done"
            self.controller.run_queue.finished(run.ticket)
        elif choice < 0.92 and done:
            r.choice(done).results.clear()  # frees the handles
        elif choice < 0.95 and (waiting := [x for x in self.of("") if not x.began] + enqueuing):
            run = r.choice(waiting)
            run.outcome = "cancelled"
            self.controller.run_queue.cancel(run.ticket)
        elif choice < 0.98:
            self._change_health()
        else:
            self._replace(r.randrange(len(self.clients)))
        self.poll()

    def _pause(self, run: Run) -> None:
        self.controller.run_queue.post(lambda scheduler: scheduler.pause(run.ticket.request.number))

    def _change_health(self) -> None:
        island = self.random.choice(self.islands)
        position = self.random.randrange(DEVICES_PER_ISLAND)
        if position in island.lost:
            self.machine.recover(island, position)
            return
        self.controller.lose(island, position, "on purpose")
        device = island.devices[position]
        for run in self.runs:
            for handle in run.results:
                if device in handle.buffer.devices and not run.client.closed:
                    assert isinstance(handle.buffer.array, Poison)

    def _replace(self, number: int) -> None:
        """Closes a client with all its arrays, and adds a new client."""
        closed_client = self.clients[number]
        self.controller.close(closed_client)
        assert not self.controller.store.of(closed_client)
        self.clients[number] = ClientState(closed_client.name, closed_client.weight)

    def read(self, run: Run) -> None:
        """Reads every result of a run: a value, or the cause of its loss."""
        token = current_client.set(run.client)
        for handle in run.results:
            if run.client.closed:
                with pytest.raises(PathwaysError, match="PWC0509"):
                    handle.array()
            else:
                array = handle.array()
                assert array is not None and (not isinstance(array, Poison) or array.error().code == "PWC0512")
        current_client.reset(token)

    def end(self) -> None:
        """Completes all runs while clients drop their arrays: no run waits forever."""
        for _ in range(10 * len(self.runs) + 10):
            for run in self.of("enqueuing"):
                self.enqueue(run)
            for run in self.of("flying"):
                run.outcome = "done"
                self.controller.run_queue.finished(run.ticket)
            self.poll()
            if not self.of("", "enqueuing", "flying"):
                return
            if not self.of("enqueuing", "flying"):  # all waiting runs need memory that handles hold
                holding = [r for r in self.of("done") if r.results]
                assert holding, "runs wait although no client holds memory"
                holding[0].results.clear()
                self.poll()
        raise AssertionError("some runs were never scheduled")


@pytest.mark.parametrize("policy", SCHEDULING_POLICIES)
@pytest.mark.parametrize("seed", range(40))
def test_random_runs_and_losses_leave_no_state_and_keep_one_order(policy: str, seed: int) -> None:
    world = World(policy, seed)
    for _ in range(300):
        world.step()
    world.end()
    for run in world.runs:
        assert run.outcome in ("done", "cancelled")
        world.read(run)
        run.results.clear()
    controller, ledger = world.controller, world.controller.ledger
    assert not controller.store.buffers and controller.store.bytes == 0
    assert set(ledger.held.values()) == {0} and set(ledger.reserved.values()) == {0}
    scheduler = controller.run_queue.scheduler
    assert not scheduler.waiting and not scheduler.running and not scheduler.active
    assert not any(scheduler.in_flight.values())
    for first, second in itertools.combinations(world.order.values(), 2):  # runs on several islands have one order
        both = set(first) & set(second)
        assert [n for n in first if n in both] == [n for n in second if n in both]


def test_a_hang_loses_its_devices_and_their_queues_admit_nothing_more() -> None:
    controller = Controller(Machine("none"), SCHEDULING_POLICIES["fifo"]())
    devices: list[Any] = [("a", 0), ("a", 1)]
    controller.machine.bind("a", devices)
    (island,) = controller.machine.islands
    hang = Hang(seconds="1", program="step", run=3, client="main", calls="", others="")
    controller.end_hang(hang, {devices[1]: island.queues[1]})
    assert [queue.lost for queue in island.queues] == [False, True]
    assert island.lost == {1: "run 3 of step hangs on it"} and island.causes == {1: hang}


def controller_of(*devices: Any) -> Controller:
    controller = Controller(Machine("none"), SCHEDULING_POLICIES["fifo"]())
    controller.machine.bind("a", devices)
    return controller


@pytest.mark.parametrize("why", ["", "a run waits", "a limit of memory", "an observer"])
def test_the_end_of_a_run_is_detected_at_once_if_anything_may_wait_for_it(why: str) -> None:
    controller = controller_of(("a", 0))
    controller.run_queue.contended = why == "a run waits"
    if why == "a limit of memory":
        controller.ledger.limit(("a", 0), 100)
    observer: Any = object()
    with controller.observed_by(observer) if why == "an observer" else contextlib.nullcontext():
        assert controller.eager == bool(why)
    assert controller.eager == (why in ("a run waits", "a limit of memory"))


def test_a_run_that_waits_makes_the_ends_of_others_known(monkeypatch: pytest.MonkeyPatch) -> None:
    controller, hurried = controller_of(("a", 0)), list[bool]()
    monkeypatch.setattr(controller.flights, "hurry", lambda: hurried.append(True))
    controller.patience(Ticket(Request(0, "main", "program", frozenset("a"))), ClientState("main"))
    assert hurried == [True]


class Part(RemoteRun):
    """A complete run on a host in another process. Records at each cancellation whether its client was closed."""

    def __init__(self, client: ClientState) -> None:
        super().__init__()
        self.client, self.cancellations = client, list[bool]()
        self.end({})

    def cancel(self, cause: Diagnostic) -> bool:
        assert isinstance(cause, RunCancelled) and cause.program == f"of {self.client.name}"
        self.cancellations.append(self.client.closed)
        return False


def test_the_runs_of_a_client_on_other_hosts_are_cancelled_once_when_it_is_closed() -> None:
    """Runs whose callbacks have returned are no reason to cancel others early."""
    controller = controller_of(("a", 0))
    closed, other = ClientState("closed", number=1), ClientState("other", number=2)
    parts = [Part(client) for client in (closed, closed, other)]
    for number, (part, callbacks) in enumerate(zip(parts, [("f",), (), ()], strict=True)):
        plan: Any = SimpleNamespace(name=f"of {part.client.name}", computations=[SimpleNamespace(callbacks=callbacks)])
        flight = Flight(number, plan, (), [part], part.client.label, lambda _: None)
        controller.flights.enqueuing[number] = flight
    controller.close(closed)
    assert [part.cancellations for part in parts] == [[True], [True], []]
