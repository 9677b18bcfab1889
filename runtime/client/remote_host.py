"""A host in another process, as its controller sees it: requests and their answers, runs and their ends."""

import contextlib
import itertools
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.runtime.client.called_back import call_back
from pathways.runtime.client.client_ids import ClientIds
from pathways.runtime.client.ended_arrays import EndedArrays, Sink
from pathways.runtime.control.relay import Relay
from pathways.runtime.host.devices.remote_array import RemoteRun
from pathways.runtime.interrupts import wait_without_end
from pathways.runtime.journal import note
from pathways.runtime.threads import start_thread
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.decided import Said
from pathways.runtime.wire.errors import HostLost
from pathways.runtime.wire.frames import ConnectionEnded


@dataclass(eq=False)
class _Request:
    """Something asked of a host, and its answer."""

    answered: threading.Event = field(default_factory=threading.Event)
    answer: m.Answer | None = None


class RemoteHost:
    """The far end of a connection. When the host is gone, `on_losing` is called before those who wait hear of it, and
    `on_lost` behind that; both once."""

    def __init__(
        self,
        island: str,
        connection: Connection,
        on_lost: Callable[["RemoteHost"], None],
        on_losing: Callable[["RemoteHost"], None] = lambda _: None,
        on_hang: "Callable[[RemoteHost, Diagnostic], None] | None" = None,
        *,
        numbers: ClientIds,
        ordered: Sink | None = None,
        epoch: int = 0,
    ) -> None:
        """`on_hang`: is told that it seems to hang, and decides; else it is lost. `numbers` are those of the client;
        what must keep its order goes to `ordered`, if not to the host itself."""
        self.island = island
        self.epoch = epoch
        self.lost: Diagnostic | None = None
        self.on_missing: Callable[[RemoteHost, m.Missing], None] = lambda host, message: None
        """Called when values of an island do not come to a run there."""
        self.arrays = 0
        """How many arrays it had when it last said so."""
        self.worked = False
        """Whether any run has ended there."""
        self.faults = 0
        """How many faults happened before it hung."""
        self._connection = connection
        self._ordered: Sink = ordered or connection
        self._numbers = numbers
        self._takes_two_ways = ordered is not None
        """Whether runs take another way than arguments, and could overtake them."""
        self._last_put = self._flushed = object()
        """The argument that was sent last, and the last that the host has said it has."""
        self._flushing = threading.Lock()
        """Held until the host has said that."""
        self._on_lost, self._on_losing, self._on_hang = on_lost, on_losing, on_hang
        self._requests: dict[int, _Request] = {}
        self._counter = itertools.count()
        self._runs: dict[int, tuple[RemoteRun, Relay | None]] = {}
        self._ended_arrays = EndedArrays()
        self._lock = threading.Lock()
        """Guards what is under way against the loss of the host."""
        start_thread(f"pathways-{island}", self._read)

    @property
    def members(self) -> "tuple[RemoteHost, ...]":
        """The processes that it is: itself (client/remote_gang.py has several)."""
        return (self,)

    @property
    def heard(self) -> float:
        """When it last sent anything."""
        return self._connection.heard

    def post(self, message: m.Message) -> None:
        """Sends a message; does nothing where the host is gone.

        Never waits for the host: its callers may hold the turns of others, and what they send those is not late.
        """
        if self.lost is None:
            try:
                self._connection.post_soon(message)
            except ConnectionEnded as error:
                self._ended_early(str(error))

    def order(self, *messages: m.Message) -> None:
        """As `post`, behind the runs that were started before, and the ends of arrays."""
        if self.lost is None:
            try:
                self._ordered.post_soon(*self._ended_arrays.take(), *messages)
            except ConnectionEnded as error:
                self._ended_early(str(error))

    def ask(self, make: Callable[[int], m.Message]) -> m.Answer:
        """Sends the request that `make` makes of its number, and waits for the answer.

        Raises the diagnostic that the host answers with, PWC0910 where it is gone.
        """
        return self.request(make)()

    def request(self, make: Callable[[int], m.Message]) -> Callable[[], m.Answer]:
        """As `ask`, but does not wait: what it gives does."""
        number, request = next(self._counter), _Request()
        with self._lock:
            if self.lost is not None:
                raise PathwaysError(self.lost)
            self._requests[number] = request
        self.post(make(number))
        return lambda: self._answer(request)

    def _answer(self, request: _Request) -> m.Answer:
        wait_without_end(request.answered.wait)
        if request.answer is None:
            assert self.lost is not None
            raise PathwaysError(self.lost)
        if request.answer.error:
            raise PathwaysError(read_diagnostic(request.answer.error))
        return request.answer

    def put(self, message: m.PutArray) -> None:
        """Sends an argument of a plan."""
        self.post(message)
        self._last_put = object()

    def flush(self) -> None:
        """Waits until the host has all arguments that were sent to it, where runs could overtake them."""
        if self._takes_two_ways:
            with self._flushing:
                last = self._last_put
                if last is not self._flushed:
                    self.ask(m.Flush)
                    self._flushed = last

    def run(
        self, message: m.RunPlan, run: RemoteRun, relay: Relay | None = None, before: Sequence[m.Message] = ()
    ) -> None:
        """Starts a run, or fails it if the host is lost. `before` is sent ahead of the run in the same write; `relay`
        receives the run's decisions."""
        if self.expect(message.run, run, relay):
            self.order(*before, message)

    def expect(self, number: int, run: RemoteRun, relay: Relay | None = None) -> bool:
        """Notes a run that is about to be started; fails it, and returns False, where the host is gone."""
        with self._lock:
            lost = self.lost
            if lost is None:
                self._runs[number] = run, relay
        if lost is not None:
            _end_all([(run, relay)], lost)
        return lost is None

    @property
    def under_way(self) -> int:
        """How many runs have not ended there."""
        return len(self._runs)

    def runs(self) -> list[int]:
        """The runs that have not ended there."""
        with self._lock:
            return list(self._runs)

    def refuse(self, number: int, cause: Diagnostic) -> None:
        """Ends a run that the host will never hear of."""
        run, _ = self._runs.pop(number, (None, None))
        if run is not None:
            run.end({}, cause)

    def tell(self, message: Said) -> None:
        """As `post`, for what is said under a lock that losing a host takes: a host that is gone is lost elsewhere."""
        with contextlib.suppress(ConnectionEnded):
            self._connection.post_soon(message)

    def wait_for_room(self) -> None:
        """Waits while the host does not take what was sent to it; ends when it is gone."""
        self._connection.wait_for_room()

    def fetch(self, number: int, shard: int) -> tuple[tuple[int, ...], bytes]:
        answer = self.ask(lambda request: m.FetchArray(request, number, shard))
        return tuple(json.loads(answer.value)), answer.blob

    def copy(self, number: int) -> int:
        target = self._numbers.take()
        self.order(m.CopyArray(number, target))
        return target

    def free(self, number: int) -> None:
        self._ended_arrays.add(number)

    def unload(self, plan: int) -> None:
        """Says that no run of a plan will come; may be called anywhere, as `free`."""
        self._ended_arrays.add_plan(plan)

    def abandon(self) -> None:
        """Gives back what a forked child has of the connection, which goes on where it was made."""
        self._connection.abandon()

    def take_ended(self) -> list[m.Message]:
        """Takes messages that tell the host of ended arrays, to be sent with a run."""
        return self._ended_arrays.take_with_run()

    def free_now(self) -> None:
        """Sends the ends of arrays, where nothing else is sent."""
        if self.lost is None:
            try:
                if ended := self._ended_arrays.take():
                    self._ordered.post_soon(*ended)
            except ConnectionEnded as error:
                self._ended_early(str(error))

    def lose(self, reason: str, cause: Diagnostic | None = None) -> None:
        """Ends all that waits for the host: its process has ended, hangs (the cause), or sent what is no message."""
        with self._lock:
            if self.lost is not None:
                return
            self._on_losing(self)
            self.lost = cause or HostLost(island=self.island, reason=reason)
            runs, requests = list(self._runs.values()), list(self._requests.values())
            self._runs.clear()
            self._requests.clear()
        note("host", self.island, f"is gone: {self.lost.text(self.lost.have)}")
        _end_all(runs, self.lost)
        for request in requests:
            request.answered.set()
        self._connection.close()
        self._on_lost(self)

    def _read(self) -> None:
        try:
            while True:
                self.receive(self._connection.receive())
        except ConnectionEnded as error:
            self._ended_early(f"its process has ended: {error}")
        except Exception as error:  # whatever it sent, nothing more can be made of it
            self.lose(str(error))

    def _ended_early(self, reason: str) -> None:
        """Loses the host, whose stream has ended."""
        self.lose(reason)

    def receive(self, message: m.Message) -> None:
        """Takes what the host says, by whatever way."""
        match message:
            case m.Done():
                self._ended(message.run, {})
            case m.Failed():
                found = (message.step, read_diagnostic(message.found)) if message.found else None
                self._ended(message.run, {int(n): read_diagnostic(text) for n, text in message.causes.items()}, found)
            case m.Decided() | m.Undecided() | m.Reached():
                _, relay = self._runs.get(message.run, (None, None))
                if relay is not None:
                    relay.hear(self.island, message)
            case m.Missing():
                self.on_missing(self, message)
            case m.CallBack():
                call_back(message, self.post)
            case m.Hangs():
                self.faults = message.faults
                cause = read_diagnostic(message.cause)
                if self._on_hang is None:
                    self.lose("", cause)
                else:
                    self._on_hang(self, cause)
            case m.Beat():
                self.arrays = message.arrays
                self.free_now()
            case m.Answer():
                request = self._requests.pop(message.request, None)
                if request is not None:
                    request.answer = message
                    request.answered.set()
            case _:
                raise ValueError(f"a {type(message).__name__} from a host")

    def _ended(self, number: int, causes: dict[int, Any], found: tuple[int, Diagnostic] | None = None) -> None:
        self.worked = True
        run, _ = self._runs.pop(number, (None, None))
        if run is not None:
            run.end(causes, found=found)


def _end_all(runs: Sequence[tuple[RemoteRun, Relay | None]], lost: Diagnostic) -> None:
    """Ends the runs of a host that is gone."""
    for run, relay in runs:
        run.end({}, lost)
        if relay is not None:
            relay.doom(lost)
