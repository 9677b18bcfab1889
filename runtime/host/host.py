"""A host: the devices of an island, and what it does when a message comes (paper, 4.2 and 4.5).

One thread does all that enqueues work, in the order of messages: two hosts see the runs that they share in one order.
Plans are loaded, and values copied, by threads of each client meanwhile, and ends of runs noticed by another.
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
from pathways.runtime.host.load.neighbors import Neighbors
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
from pathways.runtime.host.run_ends import PostAll, end_of_run, is_done, told_directly
from pathways.runtime.host.snapshots import Snapshots
from pathways.runtime.journal import note
from pathways.runtime.threads import start_thread
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import BadMessage
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.ids import client_of
from pathways.runtime.wire.loop import Loop

NOTHING_LOST: Mapping[Hashable, DeviceQueue] = MappingProxyType({})
_CLIENT = "of the cluster"
BEAT_S = 0.5
"""Seconds between two signs of life."""
_Controls: TypeAlias = m.Connect | m.Record
"""Requests that a thread of their own serves: they wait for no plan that is loading."""


class Host:
    """Executes the parts of plans on its islands. `post` sends a message back; any thread may call it.

    `islands_of` finds the islands of a plan that this host has; it raises where they are not those that the plan needs.
    """

    def __init__(
        self,
        name: str,
        machine: Machine,
        islands_of: Callable[[Plan], Mapping[str, PhysicalIsland]],
        neighbors: Neighbors,
        post: PostAll,
    ) -> None:
        self.name, self.machine, self.neighbors = name, machine, neighbors
        self._islands_of = islands_of
        self.decisions = Decisions(post, in_step=neighbors.in_step)
        self._post = post
        self.calls = ClientCalls()
        """Of functions that clients have."""
        self.clients: dict[int, ClientPost] = {}
        """The ways to clients that are connected with this host, by number."""
        self._executables = Executables()
        self._plans: dict[int, HostPart] = {}
        self._arrays: dict[int, Any] = {}
        self._flights = Flights()
        self._line = self._flights.line(name)
        suspect = self._hang if neighbors.in_step else None
        self._watchdog = Watchdog(self._flights, self.machine.row.on_host, self._hang, suspect=suspect)
        self._observers = HostObservers(self._executables, self.machine.take_launches)
        self._fetches = ClientThreads("pathways-fetch")
        self._loads = ClientThreads("pathways-load")
        self._snapshots = Snapshots(self._answer)
        self._controls: queue.SimpleQueue[tuple[_Controls, Post]] = queue.SimpleQueue()
        self._forgotten: set[int] = set()
        """Clients that are gone: what still comes of theirs is dropped."""
        self._proven = ProvenLoads()
        self._runs = 0

    def expect(self, message: m.Expect) -> None:
        """Accepts messages of a client: its number is used again only when all hosts have answered `Forget`."""
        self._forgotten.discard(message.client)
        self._proven.expect(message)

    def start(self, loop: Loop) -> None:
        """Begins to answer, and to give signs of life when the loop runs. Raises PWC0521."""
        start_thread("pathways-controls", self._serve_controls)
        loop.every(BEAT_S, self._beat)

    def receive(self, message: m.Message, post: Post | None = None) -> None:
        """Does what a message says. If that fails, answers its request, or stores the error as its result.

        `post` sends the answer, where who asks is not the controller. Raises ConnectionEnded.
        """
        post = post or self._post
        try:
            self._do(message, post)
        except ConnectionEnded:
            raise
        except Exception as error:  # of this message alone: others of this host have nothing to do with it
            print(f"note: {self.name} failed a {type(message).__name__}", file=sys.stderr)
            traceback.print_exc()
            self._fail(message, post, why_not("a message", self.name, error))

    def _fail(self, message: m.Message, post: Post, cause: Diagnostic) -> None:
        """Reports a failed message: answers its request, and stores the error in place of what it makes."""
        if isinstance(message, m.RunPlan):
            results, said = self._refuse(message.plan, message.results, cause), write_diagnostic(cause)
            self.decisions.end(message.run)
            self._post(m.Failed(message.run, 0, {str(number): said for number in results}))
        elif isinstance(message, m.CopyArray):
            self._arrays[message.target] = Poison(cause)
        elif isinstance(message, m.PutArray | m.PutPoison | m.ReadArray):
            self._arrays[message.array] = Poison(cause)
        if isinstance(request := getattr(message, "request", None), int):
            post(m.Answer(request, error=write_diagnostic(cause)))

    def _refuse(self, plan: int, first: int, cause: Diagnostic) -> list[int]:
        """Stores an error in place of the results of a run here; lists their numbers in the plan."""
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
            case m.UnloadPlan():  # behind its runs, and behind what may still load it
                self._unload(message.plan)
            case m.CopyArray():
                self._arrays[message.target] = self._made("a copy", lambda: copy_if_array(self._array(message.source)))
            case m.PutArray():
                self._put(message)
            case m.PutPoison():
                self._arrays[message.array] = Poison(read_diagnostic(message.cause))
            case m.FetchArray():
                self._fetch(message, self._arrays.get(message.array), post)
            case m.WriteArray():
                self._snapshots.write(message, self._arrays.get(message.array), post)
            case m.Fence():
                self.neighbors.end_loss(message.island)
            case m.Mend():
                self.neighbors.mend(message.island, message.anew)
            case m.Inject():
                self._answer(message.request, lambda: self._observers.inject(message.client, message.fault), post)
            case m.Forget():
                self._forget(message.client)
                self._loads.put_behind(message.client, lambda: post(m.Answer(message.request)))
                self._loads.end(message.client)
                self._fetches.end(message.client)
            case _:
                have, rule = f"a {type(message).__name__}", "what a controller sends to a host"
                raise PathwaysError(BadMessage(have_=have, rule=rule))

    def _array(self, number: int) -> Any:
        """An array by its number; poison for one that is not there: a client may name what it likes."""
        if number in self._arrays:
            return self._arrays[number]
        return Poison(BadMessage(have_=f"array {number}", rule=f"an array of {self.name}"))

    def _put(self, message: m.PutArray) -> None:
        if client_of(message.array) in self._forgotten:
            return
        part = self._plans.get(message.plan)
        if part is None or message.input not in part.inputs:
            have, rule = f"an argument of plan {message.plan}", f"a plan that {self.name} has loaded"
            self._arrays[message.array] = Poison(BadMessage(have_=have, rule=rule))
            return
        put = part.inputs[message.input].put
        self._arrays[message.array] = self._made("an argument", lambda: put(message.blob))

    def _made(self, what: str, make: Callable[[], Any]) -> Any:
        """What `make` makes; poison where it cannot, for want of memory, say."""
        try:
            return make()
        except (MemoryError, ValueError, *pjrt.FAILURES) as error:
            return Poison(why_not(what, self.name, error))

    def notice(self, message: m.Message, post: Post | None = None) -> bool:
        """Does at once what must not wait behind a run; returns whether the message comes in its turn, too.

        All waits for another host that is gone end, and offers to it are dropped. `post` as for `receive`.
        """
        post = post or self._post
        try:
            return self._notice(message, post)
        except PathwaysError as error:  # no thread can be started, say
            self._fail(message, post, error.diagnostic)
            return False

    def _notice(self, message: m.Message, post: Post) -> bool:
        match message:
            case m.Fence() | m.Mend():
                anew = message.anew if isinstance(message, m.Mend) else 0
                self.neighbors.lose(message.island, read_diagnostic(message.cause), anew)
                if isinstance(message, m.Fence) and message.leaves:
                    self.neighbors.leave(message.island)
            case m.RunPlan():
                self.decisions.begin(message.run)
            case m.Decided() | m.Undecided():
                self.decisions.hear(message)
                return False
            case m.LoadPlan() | m.CountCosts():  # no run that needs it comes before its answer
                self._loads.put(client_of(message.plan), lambda: self._load(message, post))
                return False
            case m.Connect() | m.Record():  # nor behind what clients have compiled here
                self._controls.put((message, post))
                return False
            case m.FetchArray() if message.array in self._arrays:  # it is not freed, or overwritten, before the answer
                self._fetch(message, self._arrays[message.array], post)
                return False
            case m.WriteArray() if message.array in self._arrays:  # as above
                self._snapshots.write(message, self._arrays[message.array], post)
                return False
            case m.ReadArray():  # its plan is there: that was answered
                self._snapshots.read(message, self._plans, self._arrays, post)
                return False
            case m.CallRoll():  # a run may never come back
                idle, calls = self._watchdog.tell()
                self._post(m.Answer(message.request, value=json.dumps({"idle": idle, "calls": calls})))
                return False
            case m.TellTime():  # what lies between the question and the answer is how wrong it may be
                post(m.Answer(message.request, value=str(time.perf_counter_ns())))
                return False
            case m.Flush():  # what came before it on the same stream is in line
                post(m.Answer(message.request))
                return False
            case m.Calling() | m.Returned():  # a device waits for it
                self.calls.hear(0, message)
                return False
            case m.TellStacks():
                post(m.Answer(message.request, value=stacks()))
                return False
            case _:
                pass
        return True

    def _prepare(self, message: m.LoadPlan | m.Connect | m.CountCosts | m.Record) -> str | bytes | tuple[str, bytes]:
        if isinstance(message, m.CountCosts):
            plan = self._plans[message.plan].plan
            return write_costs(costs_of(plan, Sides(plan, self._islands_of(plan)), self._executables))
        if isinstance(message, m.Record):
            return self._observers.record(message.client, 0 if message.client in self._forgotten else message.most)
        if isinstance(message, m.Connect):
            if met := {host: said for host, said in message.invitations.items() if said}:
                self.neighbors.meet(met)
            return json.dumps({n: self.neighbors.invite(n) for n, said in message.invitations.items() if not said})
        plan = read_plan(message.blob, message.path)
        validate(plan, message.path)
        proving = self._proven.check(message, plan, self.neighbors.ranks)
        islands = self._islands_of(plan)
        plan = with_functions(plan, message.functions, client_of(message.plan), self.calls)
        self._plans[message.plan] = loaded = load_host_part(
            plan, islands, self._executables, self.neighbors, message.path, sequential=message.sequential
        )
        return loaded.digest, self._proven.prove(message.plan, proving)

    def _answer(self, request: int, work: MakeAnswer, post: Post, what: str = "a request") -> None:
        post_answer(request, work, post, self.name, what)

    def _forget(self, client: int) -> None:
        """Drops all arrays and plans of a client that is gone; its runs before this are enqueued."""
        self._forgotten.add(client)
        self._observers.forget(client)
        self._loads.put_behind(client, lambda: self._proven.forget(client))
        self._controls.put((m.Record(0, client, 0), lambda _: None))
        for number in [n for n in list(self._arrays) if client_of(n) == client]:
            self._arrays.pop(number, None)
        for number in [n for n in list(self._plans) if client_of(n) == client]:
            self._unload(number)

    def _unload(self, plan: int) -> None:
        """Drops a plan behind all that its client has asked to load."""
        self._loads.put_behind(client_of(plan), lambda: (self._plans.pop(plan, None), self._proven.unload(plan)))

    def _load(self, message: m.LoadPlan | m.CountCosts, post: Post) -> None:
        """Loads a plan, or counts its costs, for a client that is still there."""
        if client_of(message.plan) not in self._forgotten:
            self._answer(message.request, lambda: self._prepare(message), post)
        if client_of(message.plan) in self._forgotten:
            self._plans.pop(message.plan, None)

    def _run(self, message: m.RunPlan) -> None:
        """Enqueues a run; its results have their numbers when this returns."""
        part, decisions = self._plans.get(message.plan), self.decisions.of(message.run)
        if part is None:  # its client has never had it loaded here
            self.decisions.end(message.run)
            self._post(m.Done(message.run, 0))
            return
        self.neighbors.awaited.run = message.run
        frame = part.frame(message.transfers, self.neighbors.reached(), decisions)
        results: list[tuple[PartResult, Any]] = []
        numbers = NumbersOnHost(message.wanted) if message.wanted else None
        if numbers is not None:
            numbers.alone = not self.neighbors.in_step

        def done(seconds: float) -> None:
            said = end_of_run(message.run, seconds, results, numbers)
            self._post(told_directly(said, part.plan, self.clients))

        note("run", message.run, "began")
        observers = self._observers.of_run(message.run, numbers)
        flight = WaitingFlight(message.run, part.plan, part.queues, frame.tokens, _CLIENT, done)
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
        except Exception as error:  # the run fails alone: what it has launched is waited for, as always
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
            flight.end()  # a small one: to wake the thread of the line takes longer than the run
        else:
            self._line.put(flight, eager=True)
        self._flights.enqueuing.pop(flight.number)

    def _arguments(self, part: HostPart, message: m.RunPlan) -> list[Any]:
        """Lists the arguments of a run. With a wrong number of them all are poison, which goes on to other hosts."""
        if len(message.arguments) == len(part.inputs):
            return [self._array(number) for number in message.arguments]
        have, rule = f"a run with {len(message.arguments)} arguments", f"the {len(part.inputs)} of its plan here"
        return [Poison(BadMessage(have_=have, rule=rule))] * len(part.inputs)

    def _hang(self, said: Hang, _: Mapping[Hashable, DeviceQueue] = NOTHING_LOST) -> None:
        """Tells the controller of a hang, or what looks like one: it may replace this process."""
        self._post(m.Hangs(write_diagnostic(said), self._observers.faults))

    def _beat(self) -> None:
        self._post(m.Beat(self._runs, len(self._arrays), self.neighbors.open_ports))
        awaited = self.neighbors.awaited
        for run, island in awaited.late(time.monotonic()):
            self._post(m.Missing(run, island, f"{awaited.limit:g}"))

    def _serve_controls(self) -> None:
        while True:
            message, post = self._controls.get()
            self._answer(message.request, lambda message=message: self._prepare(message), post)

    def _fetch(self, message: m.FetchArray, array: Any, post: Post) -> None:
        """Sends the values of an array when it is there, and when who asks has taken most of what was sent before."""

        def work() -> None:
            if isinstance(post, ClientPost):
                post.wait_for_room()
            self._answer(message.request, lambda: self._fetched(message, array), post, "a copy to the host")

        self._fetches.put(client_of(message.array), work)

    def _fetched(self, message: m.FetchArray, array: Any) -> tuple[str, bytes]:
        if array is None:
            raise PathwaysError(BadMessage(have_=f"array {message.array}", rule="an array of this host"))
        if isinstance(array, Poison):
            raise array.error()
        return (local_values if self.neighbors.in_step else all_values)(array, message.shard)
