"""Executes the work of one host process: loads its partitions of plans, enqueues runs on devices (paper, 4.2 and 4.5).

`serve.py` passes messages in. One thread enqueues work in message order, so that hosts see shared runs in one order.
Client threads load plans and copy values meanwhile. Another thread detects the ends of runs.
"""

import json
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from pathways.dialect.diagnostic_json import read_diagnostic, write_diagnostic
from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.plan.check import validate
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.plan_file import read_plan
from pathways.runtime.errors import Hang
from pathways.runtime.host.client_threads import ClientThreads
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.executable_cache import Executables
from pathways.runtime.host.devices.in_flight_limit import DeviceQueue
from pathways.runtime.host.devices.islands import Machine, PhysicalIsland
from pathways.runtime.host.devices.layouts import Sides
from pathways.runtime.host.devices.local_values import all_values, local_values
from pathways.runtime.host.load.costs import costs_of, write_costs
from pathways.runtime.host.load.loaded_part import HostPart, PartResult, copy_if_array, load_host_part
from pathways.runtime.host.load.peer_hosts import PeerHosts
from pathways.runtime.host.observe.numbers import NumbersOnHost
from pathways.runtime.host.observe.on_host import HostObservers
from pathways.runtime.host.observe.stacks import stacks
from pathways.runtime.host.observe.watchdog import Watchdog
from pathways.runtime.host.posting import ClientPost, MakeAnswer, Post, post_answer
from pathways.runtime.host.proven_loads import ProvenLoads
from pathways.runtime.host.run.client_calls import ClientCalls, with_functions
from pathways.runtime.host.run.decisions import Decisions
from pathways.runtime.host.run.enqueuer import Enqueuer
from pathways.runtime.host.run.failures import why_not
from pathways.runtime.host.run.poison import Poison
from pathways.runtime.host.run.progress import drive
from pathways.runtime.host.run.runs_in_flight import Flights
from pathways.runtime.host.run.waiting_flight import WaitingFlight
from pathways.runtime.host.run_ends import PostAll, end_of_run, is_done, report_directly
from pathways.runtime.host.snapshots import Snapshots
from pathways.runtime.journal import note
from pathways.runtime.threads import start_thread
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import BadMessage
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.ids import client_of
from pathways.runtime.wire.loop import Loop

NOTHING_LOST: Mapping[Hashable, DeviceQueue] = MappingProxyType({})
BEAT_S = 0.5
"""Seconds between two heartbeats to the controller."""
_Controls: TypeAlias = m.Connect | m.Record
"""Requests that a separate thread serves, so that they do not wait while a plan is loading."""


class Host:
    """Executes partitions of plans on its islands. `post` sends a message to the controller; any thread may call it.

    `islands_of` returns this host's islands for a plan. It raises if they do not match the islands of the plan.
    """

    def __init__(
        self,
        name: str,
        machine: Machine,
        islands_of: Callable[[Plan], Mapping[str, PhysicalIsland]],
        peer_hosts: PeerHosts,
        post: PostAll,
    ) -> None:
        self.name, self.machine, self.peer_hosts = name, machine, peer_hosts
        self._islands_of = islands_of
        self.decisions = Decisions(post, in_step=peer_hosts.in_step)
        self._post = post
        self.calls = ClientCalls()
        """Pending calls of functions in client processes."""
        self.clients: dict[int, ClientPost] = {}
        """Sends messages to the clients that are connected to this host, by number."""
        self._executables = Executables()
        self._plans: dict[int, HostPart] = {}
        self._arrays: dict[int, Any] = {}
        self._flights = Flights()
        self._line = self._flights.line(name)
        suspect = self._hang if peer_hosts.in_step else None
        self._watchdog = Watchdog(self._flights, self.machine.row.on_host, self._hang, suspect=suspect)
        self._observers = HostObservers(self._executables, self.machine.take_launches, post)
        self._fetches = ClientThreads("pathways-fetch")
        self._loads = ClientThreads("pathways-load")
        self._snapshots = Snapshots(self._answer)
        self._controls: queue.SimpleQueue[tuple[_Controls, Post]] = queue.SimpleQueue()
        self._forgotten: set[int] = set()
        """Disconnected clients. Their late messages are dropped."""
        self._proven = ProvenLoads()
        self._runs = 0

    def expect(self, message: m.Expect) -> None:
        """Accepts messages of a client. Its number is reused only after all hosts have answered `Forget`."""
        self._forgotten.discard(message.client)
        self._observers.is_shared |= message.client != 0  # number 0 has started the cluster
        self._proven.expect(message)

    def start(self, loop: Loop) -> None:
        """Starts to serve control requests, and to send heartbeats when the loop runs. Raises PWC0521."""
        start_thread("pathways-controls", self._serve_controls)
        loop.every(BEAT_S, self._beat)

    def receive(self, message: m.Message, post: Post | None = None) -> None:
        """Handles a message. If that fails, answers its request, or stores the error as its result.

        `post` sends the answer if the requester is not the controller. Raises ConnectionEnded.
        """
        post = post or self._post
        try:
            self._do(message, post)
        except ConnectionEnded:
            raise
        except Exception as error:  # fails this message only: it must not affect other messages
            print(f"note: {self.name} failed to handle a {type(message).__name__}", file=sys.stderr)
            traceback.print_exc()
            self._fail(message, post, why_not("a message", self.name, error))

    def _fail(self, message: m.Message, post: Post, cause: Diagnostic) -> None:
        """Reports a failed message: answers its request, and stores the error in place of its results."""
        if isinstance(message, m.RunPlan):
            results, error = self._refuse(message.plan, message.results, cause), write_diagnostic(cause)
            self.decisions.end(message.run)
            self._post(m.Failed(message.run, 0, {str(number): error for number in results}))
        elif isinstance(message, m.CopyArray):
            self._arrays[message.target] = Poison(cause)
        elif isinstance(message, m.PutArray | m.PutPoison | m.ReadArray):
            self._arrays[message.array] = Poison(cause)
        if isinstance(request := getattr(message, "request", None), int):
            post(m.Answer(request, error=write_diagnostic(cause)))

    def _refuse(self, plan: int, first: int, cause: Diagnostic) -> list[int]:
        """Stores an error in place of the results of a run on this host; returns their numbers in the plan."""
        part = self._plans.get(plan)
        numbers = [] if part is None else [result.number for result in part.results]
        self._arrays.update((first + number, Poison(cause)) for number in numbers)
        return numbers

    def _do(self, message: m.Message, post: Post) -> None:
        match message:
            case m.RunPlan():
                self._run(message)
            case m.RefuseRun():
                self._refuse(message.plan, message.results, read_diagnostic(message.cause))
            case m.FreeArrays():
                for array in message.arrays:
                    self._arrays.pop(array, None)
            case m.UnloadPlan():  # after its runs, and after a load of it that may be pending
                self._unload(message.plan)
            case m.CopyArray(source, target, shard):
                self._arrays[target] = self._made("a copy", lambda: copy_if_array(self._array(source), shard))
            case m.PutArray():
                self._put(message)
            case m.PutPoison():
                self._arrays[message.array] = Poison(read_diagnostic(message.cause))
            case m.FetchArray():
                self._fetch(message, self._array(message.array), post)
            case m.WriteArray():
                self._snapshots.write(message, self._arrays.get(message.array), post)
            case m.Fence():
                self.peer_hosts.end_loss(message.island)
            case m.Mend():
                self.peer_hosts.mend(message.island, message.anew)
            case m.Inject():
                self._answer(message.request, lambda: self._observers.inject(message.client, message.fault), post)
            case m.Forget():
                self._forget(message.client)
                self._loads.put_last(message.client, lambda: post(m.Answer(message.request)))
                self._loads.end(message.client)
                self._fetches.end(message.client)
            case _:
                have, rule = f"a {type(message).__name__}", "a message that controllers send to hosts"
                raise PathwaysError(BadMessage(have_=have, rule=rule))

    def _array(self, number: int) -> Any:
        """Returns an array by its number, or poison if there is none: a client may send any number."""
        if number in self._arrays:
            return self._arrays[number]
        return Poison(BadMessage(have_=f"array {number}", rule=f"an array of {self.name}"))

    def _put(self, message: m.PutArray) -> None:
        if client_of(message.array) not in self._forgotten:
            raw = message.blob
            made = self._made("an argument", lambda: self._part(message.plan).put(message.input, raw))
            self._arrays[message.array] = made

    def _part(self, number: int) -> HostPart:
        """Returns a loaded plan. Raises PWC0911 if there is none: a client may send any number."""
        if (part := self._plans.get(number)) is None:
            raise PathwaysError(BadMessage(have_=f"plan {number}", rule=f"a plan that {self.name} has loaded"))
        return part

    def _made(self, what: str, make: Callable[[], Any]) -> Any:
        """Returns the result of `make`, or poison if it fails, for example for lack of memory."""
        try:
            return make()
        except (MemoryError, ValueError, PathwaysError, *pjrt.FAILURES) as error:
            return Poison(why_not(what, self.name, error))

    def notice(self, message: m.Message, post: Post | None = None) -> bool:
        """Handles a message that must not wait for earlier runs; returns whether `receive` must handle it, too.

        Ends all waits for a host that is lost, and drops offers to it. `post` is as for `receive`.
        """
        post = post or self._post
        try:
            return self._notice(message, post)
        except PathwaysError as error:  # for example: no thread can be started
            self._fail(message, post, error.diagnostic)
            return False

    def _notice(self, message: m.Message, post: Post) -> bool:
        match message:
            case m.Fence() | m.Mend():
                anew = message.anew if isinstance(message, m.Mend) else 0
                self.peer_hosts.lose(message.island, read_diagnostic(message.cause), anew)
                if isinstance(message, m.Fence) and message.is_removed:
                    self.peer_hosts.leave(message.island)
            case m.RunPlan():
                self.decisions.begin(message.run)
            case m.Decided() | m.Undecided():
                self.decisions.deliver(message)
                return False
            case m.LoadPlan() | m.CountCosts():  # no run that needs the plan arrives before the answer
                self._loads.put(client_of(message.plan), lambda: self._load(message, post))
                return False
            case m.Connect() | m.Record():  # must not wait while plans of clients are compiled
                self._controls.put((message, post))
                return False
            case m.FetchArray() if message.array in self._arrays:  # neither freed nor overwritten before the answer
                self._fetch(message, self._arrays[message.array], post)
                return False
            case m.WriteArray() if message.array in self._arrays:  # as above
                self._snapshots.write(message, self._arrays[message.array], post)
                return False
            case m.ReadArray():  # its plan is loaded: the load was answered
                self._snapshots.read(message, self._plans, self._arrays, post)
                return False
            case m.CallRoll():  # must not wait for a run, which may hang
                idle, calls = self._watchdog.report_progress()
                self._post(m.Answer(message.request, value=json.dumps({"idle": idle, "calls": calls})))
                return False
            case m.ReportTime():  # the time from request to answer bounds the error of the clock
                post(m.Answer(message.request, value=str(time.perf_counter_ns())))
                return False
            case m.Flush():  # earlier messages of the same stream are enqueued
                post(m.Answer(message.request))
                return False
            case m.Calling() | m.Returned():  # a device waits for it
                self.calls.deliver(0, message)
                return False
            case m.ReportStacks():
                post(m.Answer(message.request, value=stacks()))
                return False
            case _:
                pass
        return True

    def _prepare(self, message: m.LoadPlan | m.Connect | m.CountCosts | m.Record) -> str | bytes | tuple[str, bytes]:
        if isinstance(message, m.CountCosts):
            plan = self._part(message.plan).plan
            return write_costs(costs_of(plan, Sides(plan, self._islands_of(plan)), self._executables))
        if isinstance(message, m.Record):
            return self._observers.record(message.client, 0 if message.client in self._forgotten else message.limit)
        if isinstance(message, m.Connect):
            if given := {host: text for host, text in message.invitations.items() if text}:
                self.peer_hosts.connect_to(given)
            return json.dumps({n: self.peer_hosts.invite(n) for n, text in message.invitations.items() if not text})
        plan = read_plan(message.blob, message.path)
        validate(plan, message.path)
        proving = self._proven.check(message, plan, self.peer_hosts.ranks)
        islands = self._islands_of(plan)
        plan = with_functions(plan, message.functions, client_of(message.plan), self.calls)
        self._plans[message.plan] = loaded = load_host_part(
            plan, islands, self._executables, self.peer_hosts, message.path, sequential=message.sequential
        )
        return loaded.digest, self._proven.prove(message.plan, proving)

    def _answer(self, request: int, work: MakeAnswer, post: Post, what: str = "a request") -> None:
        post_answer(request, work, post, self.name, what)

    def _forget(self, client: int) -> None:
        """Drops all arrays and plans of a disconnected client. Its earlier runs are already enqueued."""
        self._forgotten.add(client)
        self._observers.forget(client)
        self._loads.put_last(client, lambda: self._proven.forget(client))
        self._controls.put((m.Record(0, client, 0), lambda _: None))
        for number in [n for n in list(self._arrays) if client_of(n) == client]:
            self._arrays.pop(number, None)
        for number in [n for n in list(self._plans) if client_of(n) == client]:
            self._unload(number)

    def _unload(self, plan: int) -> None:
        """Drops a plan after all pending loads of its client."""
        self._loads.put_last(client_of(plan), lambda: (self._plans.pop(plan, None), self._proven.unload(plan)))

    def _load(self, message: m.LoadPlan | m.CountCosts, post: Post) -> None:
        """Loads a plan, or counts its costs, if its client is still connected."""
        if client_of(message.plan) not in self._forgotten:
            self._answer(message.request, lambda: self._prepare(message), post)
        if client_of(message.plan) in self._forgotten:
            self._plans.pop(message.plan, None)

    def _run(self, message: m.RunPlan) -> None:
        """Enqueues a run. Its results are stored under their numbers when this returns."""
        part, decisions = self._plans.get(message.plan), self.decisions.of(message.run)
        if part is None:  # its client has never loaded the plan here
            self.decisions.end(message.run)
            self._post(m.Done(message.run, 0))
            return
        self.peer_hosts.awaited.run = message.run
        frame = part.frame(message.transfers, self.peer_hosts.reached(), decisions)
        results: list[tuple[PartResult, Any]] = []
        numbers = NumbersOnHost(message.wanted) if message.wanted else None
        if numbers is not None:
            numbers.is_whole_here = not self.peer_hosts.in_step

        def done(seconds: float) -> None:
            outcome = end_of_run(message.run, seconds, results, numbers)
            self._post(report_directly(outcome, part.plan, self.clients))

        note("run", message.run, "began")
        observers = self._observers.of_run(message.run, numbers, message.label)
        flight = WaitingFlight(message.run, part.plan, part.queues, frame.tokens, "of the cluster", done)
        for entry, argument in zip(part.inputs.values(), self._arguments(part, message), strict=True):
            if entry.slot >= 0:
                frame.values[entry.slot] = argument
        self._watchdog.ensure()
        run = Enqueuer(self.machine, flight, observers, frames={})
        frame.base = run.begin(None, part.prepared.launches)
        flight.thread = threading.get_ident()
        self._flights.enqueuing[flight.number] = flight
        try:
            for pendings in drive(part.waves, frame, run):
                decisions.go_on()
                flight.wait(pendings, run.tokens)
            results += [(result, result.value_in(frame)) for result in part.results]
        except Exception as error:  # only the run fails; its launches are awaited as always
            traceback.print_exc()
            poison = Poison(why_not(f"a run of {part.plan.name}", self.name, error))
            results[:] = [(result, poison) for result in part.results]
        frame.tokens.extend(run.ends.tokens())
        self.decisions.end(message.run)
        self._arrays.update((message.results + result.number, value) for result, value in results)
        self._runs += 1
        flight.thread = 0
        note("run", message.run, "was enqueued")
        if not self._line.flights and is_done(part, results):
            flight.end()  # a small run: waking the thread of the line takes longer than the run
        else:
            self._line.put(flight, eager=True)
        self._flights.enqueuing.pop(flight.number)

    def _arguments(self, part: HostPart, message: m.RunPlan) -> list[Any]:
        """Lists the arguments of a run. If their number is wrong, all are poison, which is passed to other hosts."""
        if len(message.arguments) == len(part.inputs):
            return [self._array(number) for number in message.arguments]
        have, rule = f"a run with {len(message.arguments)} arguments", f"the {len(part.inputs)} of its plan"
        return [Poison(BadMessage(have_=have, rule=rule))] * len(part.inputs)

    def _hang(self, hang: Hang, _: Mapping[Hashable, DeviceQueue] = NOTHING_LOST) -> None:
        """Reports a proven or suspected hang to the controller, which may replace this process."""
        self._post(m.Unusable(write_diagnostic(hang)))

    def _beat(self) -> None:
        self._post(m.Beat(self._runs, len(self._arrays), self.peer_hosts.open_ports))
        awaited = self.peer_hosts.awaited
        for run, island in awaited.late(time.monotonic()):
            self._post(m.Missing(run, island, f"{awaited.limit:g}"))

    def _serve_controls(self) -> None:
        while True:
            message, post = self._controls.get()
            self._answer(message.request, lambda message=message: self._prepare(message), post)

    def _fetch(self, message: m.FetchArray, array: Any, post: Post) -> None:
        """Sends the values of an array once it is computed, and once the requester has read most earlier data."""

        def work() -> None:
            if isinstance(post, ClientPost):
                post.wait_for_room()
            self._answer(message.request, lambda: self._fetched(message, array), post, "a copy to the host")

        self._fetches.put(client_of(message.array), work)

    def _fetched(self, message: m.FetchArray, array: Any) -> tuple[str, bytes]:
        if isinstance(array, Poison):
            raise array.error()
        return (local_values if self.peer_hosts.in_step else all_values)(array, message.shard)
